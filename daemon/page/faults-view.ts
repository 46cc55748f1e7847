/** Faults: the active ones with their counts, and a form to add one. */
import { FAULT_KINDS, type FaultKind, type FaultStatus } from '#contract/protocol/faults';
import { type ApiClient, ApiError } from './api-client.ts';
import { byId, el, setText, showChildren } from './dom.ts';
import {
  type FaultField,
  faultFields,
  faultOf,
  faultText,
  KIND_GROUPS,
  TRIGGERS,
} from './fault-form.ts';
import type { PageStore } from './page-state.ts';
import { counted, whole } from './units.ts';

/** Shows the faults and keeps them up to date; calls `changed` when one was added or removed. */
export function showFaults(store: PageStore, api: ApiClient, changed: () => void): void {
  const failure = el('p', { class: 'error', attributes: { role: 'alert' } });
  const act = async (action: () => Promise<unknown>): Promise<void> => {
    setText(failure, '');
    try {
      await action();
      await refresh(store, api);
      changed();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setText(failure, error.message);
    }
  };
  const list = new FaultList(async (id) => {
    await act(() => api.call('removeFault', { id }));
    // The button that had the focus was removed.
    (list.element.querySelector('button') ?? byId('fault-kind')).focus();
  });
  const all = el('button', { text: 'Remove all', attributes: { type: 'button' } });
  all.addEventListener('click', () => void act(() => api.call('removeFaults', {})));
  const form = new FaultForm(store, api, changed);
  const hint = el('p', {
    class: 'hint',
    text: 'Programs see them as failures of a device or a network.',
  });
  byId('faults').append(
    el('div', { class: 'title' }, [
      el('h2', { id: 'faults-title', text: 'Faults' }),
      hint,
      el('span', { class: 'spring' }),
      all,
    ]),
    list.element,
    failure,
    form.element,
  );
  store.watch(
    ({ faults }) => faults,
    (faults) => {
      all.hidden = faults.length < 2;
      list.update(faults);
    },
  );
}

/** Updates the list after a change, rather than at the next poll. */
async function refresh(store: PageStore, api: ApiClient): Promise<void> {
  store.update({ faults: await api.call('listFaults', {}) });
}

class FaultList {
  readonly element = el('ul', { class: 'faults', attributes: { 'aria-label': 'Faults' } });
  readonly #remove: (id: number) => Promise<void>;
  #items = new Map<number, { item: HTMLElement; tally: HTMLElement }>();
  readonly #empty = el('li', { class: 'empty', text: 'No faults.' });

  constructor(remove: (id: number) => Promise<void>) {
    this.#remove = remove;
  }

  update(faults: readonly FaultStatus[]): void {
    this.#items = new Map(
      faults.map((fault) => {
        const shown = this.#items.get(fault.id) ?? this.#make(fault);
        setText(shown.tally, tallyText(fault));
        shown.item.classList.toggle('fired', fault.fired > 0);
        return [fault.id, shown];
      }),
    );
    const items = [...this.#items.values()].map(({ item }) => item);
    showChildren(this.element, items.length > 0 ? items : [this.#empty]);
  }

  #make(fault: FaultStatus) {
    const { id, spec } = fault;
    const tally = el('span', { class: 'tally' });
    const remove = el('button', {
      text: 'Remove',
      attributes: { type: 'button', 'aria-label': `Remove fault ${id}, ${spec.kind}` },
      onClick: () => void this.#remove(id),
    });
    const item = el('li', {}, [
      el('span', { class: 'mono number', text: String(id) }),
      el('strong', { text: spec.kind, title: FAULT_KINDS[spec.kind].summary }),
      el('span', { class: 'scope', text: faultText(fault) }),
      tally,
      remove,
    ]);
    return { item, tally };
  }
}

/** How often a fault triggered, and on how many occasions. */
function tallyText({ matched, fired }: FaultStatus): string {
  if (matched === 0) return 'no occasion yet';
  const times = fired === 0 ? 'never triggered' : `happened ${timesText(fired)}`;
  return `${times} on ${counted(matched, 'occasion')}`;
}

function timesText(count: number): string {
  return count === 1 ? 'once' : `${whole(count)} times`;
}

/** Shows the fields of the selected kind. */
class FaultForm {
  readonly element = el('form', { class: 'fault-form', attributes: { autocomplete: 'off' } });
  readonly #store: PageStore;
  readonly #api: ApiClient;
  readonly #changed: () => void;
  readonly #kind = kindSelect();
  readonly #summary = el('p', { class: 'hint' });
  readonly #fields = el('div', { class: 'fields' });
  readonly #trigger = choice('fault-trigger', TRIGGERS);
  readonly #count = el('input', { id: 'fault-count', attributes: NUMERIC });
  readonly #seed = el('input', {
    id: 'fault-seed',
    attributes: { ...NUMERIC, placeholder: 'random' },
  });
  readonly #error = el('p', { class: 'error', attributes: { role: 'alert' } });
  /** Inputs by field name, to find the one that the daemon rejected. */
  #inputs = new Map<string, HTMLInputElement | HTMLSelectElement>();

  constructor(store: PageStore, api: ApiClient, changed: () => void) {
    this.#store = store;
    this.#api = api;
    this.#changed = changed;
    const add = el('button', {
      class: 'primary',
      text: 'Add fault',
      attributes: { type: 'submit' },
    });
    const nth = labelled('N', this.#count);
    const seed = labelled('Seed', this.#seed);
    this.element.append(
      el('div', { class: 'fields' }, [labelled('Kind', this.#kind), this.#summary]),
      this.#fields,
      el('div', { class: 'fields' }, [labelled('Happens', this.#trigger), nth, seed, add]),
      this.#error,
    );
    this.#kind.addEventListener('change', () => this.#showFields());
    const showTrigger = (): void => {
      const { value } = this.#trigger;
      this.#count.required = value !== 'always' && value !== 'once';
      nth.hidden = value === 'always' || value === 'once';
      seed.hidden = value !== 'probability';
      setText(nth.firstElementChild ?? nth, value === 'probability' ? 'Probability' : 'N');
      this.#count.placeholder = value === 'probability' ? '0.1' : '3';
    };
    this.#trigger.addEventListener('change', showTrigger);
    showTrigger();
    this.element.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#submit();
    });
    store.watch(
      ({ status }) => status?.devices.map(({ device }) => device.name).join('\n'),
      () => this.#showFields(),
    );
  }

  get #chosen(): FaultKind {
    return this.#kind.value as FaultKind;
  }

  #showFields(): void {
    const kind = this.#chosen;
    const before = this.#answers();
    setText(this.#summary, `${FAULT_KINDS[kind].summary}.`);
    setText(this.#error, '');
    this.#inputs = new Map<string, HTMLInputElement | HTMLSelectElement>([
      ['kind', this.#kind],
      ['seed', this.#seed],
    ]);
    const fields = faultFields(kind, this.#devices(kind)).map((field) => {
      const input = inputOf(field);
      // Keep the values of fields that the new kind has too.
      input.value = before[field.name] ?? '';
      this.#inputs.set(field.name, input);
      return labelled(field.label, input);
    });
    this.#fields.replaceChildren(...fields);
    for (const name of ['nth', 'every', 'probability']) this.#inputs.set(name, this.#count);
  }

  /** Native devices only support faults of verbs. */
  #devices(kind: FaultKind): string[] {
    const devices = this.#store.state.status?.devices ?? [];
    return devices
      .filter(({ device }) => device.backend === 'emulated' || kind === 'errno')
      .map(({ device }) => device.name);
  }

  #answers(): Record<string, string> {
    return Object.fromEntries([...this.#inputs].map(([name, { value }]) => [name, value]));
  }

  async #submit(): Promise<void> {
    setText(this.#error, '');
    for (const input of this.#inputs.values()) input.removeAttribute('aria-invalid');
    const trigger = {
      name: this.#trigger.value,
      value: this.#count.value,
      seed: this.#seed.value,
    };
    try {
      await this.#api.call('addFault', faultOf(this.#chosen, this.#answers(), trigger));
      await refresh(this.#store, this.#api);
      this.#changed();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#refused(error);
    }
  }

  #refused({ field, message }: ApiError): void {
    const name = field.replace(/^body ?/, '');
    const input = this.#inputs.get(name);
    const label = input?.labels?.[0]?.textContent ?? name;
    setText(this.#error, label === '' ? message : `${label}: ${message}`);
    input?.setAttribute('aria-invalid', 'true');
    input?.focus();
  }
}

/** For inputs: lets the browser report an error before the daemon does. */
const NUMERIC = { inputmode: 'decimal', pattern: '[0-9]+([.][0-9]+)?', title: 'a number' };

function kindSelect(): HTMLSelectElement {
  const groups = KIND_GROUPS.map(([label, kinds]) => {
    const options = kinds.map((kind) => el('option', { text: kind, attributes: { value: kind } }));
    return el('optgroup', { attributes: { label } }, options);
  });
  return el('select', { id: 'fault-kind' }, groups);
}

function inputOf(field: FaultField): HTMLInputElement | HTMLSelectElement {
  const { name, input, required, hint = '', choices = [] } = field;
  const id = `fault-${name}`;
  const needed = required ? '' : undefined;
  if (input === 'choice') {
    const select = choice(id, [['', hint], ...choices.map((one) => [one, one] as const)]);
    select.required = required;
    return select;
  }
  const attributes = {
    placeholder: hint,
    required: needed,
    ...(input === 'number' ? NUMERIC : {}),
    spellcheck: 'false',
  };
  return el('input', { id, attributes });
}

function choice(
  id: string,
  options: readonly (readonly [value: string, text: string])[],
): HTMLSelectElement {
  const elements = options.map(([value, text]) => {
    return el('option', { text, attributes: { value } });
  });
  return el('select', { id }, elements);
}

/** The label is next to its input: options inside it would become part of its name. */
function labelled(text: string, input: HTMLElement): HTMLElement {
  const label = el('label', { text, attributes: { for: input.id } });
  return el('div', { class: 'field' }, [label, input]);
}
