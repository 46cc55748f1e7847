/** The reset button: asks for confirmation, then reports what was still open. */
import type { EndedHolding, ResetReport } from '#contract/protocol/control';
import { type ApiClient, ApiError } from './api-client.ts';
import { byId, el } from './dom.ts';
import { clientsText, heldText, programText } from './objects-view.ts';
import type { PageStore } from './page-state.ts';
import { TableView } from './table-view.ts';
import { counted } from './units.ts';

/** Activates the button; calls `done` after a reset. */
export function showReset(store: PageStore, api: ApiClient, done: () => void): void {
  const dialog = byId('dialog');
  const button = byId('reset');
  if (!(dialog instanceof HTMLDialogElement) || !(button instanceof HTMLButtonElement)) {
    throw new Error('the page has no dialog to ask back');
  }
  store.watch(
    ({ link }) => link.phase,
    (phase) => {
      button.disabled = phase !== 'live';
    },
  );
  const show = (title: string, body: readonly (Node | string)[], buttons: HTMLElement[]): void => {
    dialog.replaceChildren(
      el('h2', { id: 'dialog-title', text: title }),
      ...body,
      el('div', { class: 'buttons' }, buttons),
    );
    if (!dialog.open) dialog.showModal();
    buttons[0]?.focus();
  };
  const close = (text: string) => plainButton(text, '', () => dialog.close());
  const reset = async (confirm: HTMLButtonElement): Promise<void> => {
    confirm.disabled = true;
    try {
      const report = await api.call('reset', {});
      show('The daemon was reset', reportBody(report), [close('Close')]);
      done();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const text = el('p', { class: 'error', text: error.message });
      show('The daemon was not reset', [text], [close('Close')]);
    }
  };
  button.addEventListener('click', () => {
    const { status } = store.state;
    const faults = counted(status?.faults ?? 0, 'fault');
    const question =
      `This ends ${clientsText(status)} and every connection, destroys all objects, ` +
      `removes ${faults} and sets the counters to zero. Programs get EIO; peers see their ` +
      'connections end.';
    const confirm = plainButton('Reset', 'danger', () => void reset(confirm));
    show('Reset the daemon?', [el('p', { text: question })], [close('Cancel'), confirm]);
  });
}

/** Objects still open, and those that programs left behind, by client. */
function reportBody(report: ResetReport): (Node | string)[] {
  const { leaks, endedHolding, clients, connections, faults } = report;
  const ended = `Ended ${counted(clients, 'client')} and ${counted(connections, 'connection')}`;
  const removed = faults === 0 ? '' : `, removed ${counted(faults, 'fault')}`;
  const summary = el('p', { text: `${ended}${removed}.` });
  if (leaks.length + endedHolding.length === 0) {
    return [el('p', { class: 'good', text: 'No client held anything: no leaks.' }), summary];
  }
  const still = leaks.map(({ usage, ...client }) => ({ ...client, objects: usage.objects }));
  return [
    ...holders(still, 'still held objects', 'Leaks by client'),
    ...holders(endedHolding, 'had ended without releasing objects', 'Left by client'),
    summary,
  ];
}

/** The report of `reset` about a client that held objects. */
type Holder = Pick<EndedHolding, 'id' | 'pid' | 'program' | 'objects'>;

/** A line and a table of clients that held objects; nothing if there are none. */
function holders(clients: readonly Holder[], text: string, caption: string): Node[] {
  if (clients.length === 0) return [];
  const table = new TableView<Holder>(
    caption,
    [
      { title: 'Program (PID)', value: programText },
      { title: 'Held', value: ({ objects }) => heldText(objects), long: true },
    ],
    ({ id }) => String(id),
  );
  table.update(clients);
  const line = `${counted(clients.length, 'client')} ${text}:`;
  return [el('p', { class: 'bad', text: line }), table.element];
}

function plainButton(text: string, style: string, onClick: () => void): HTMLButtonElement {
  return el('button', { text, class: style, attributes: { type: 'button' }, onClick });
}
