/** Refusals: why verbs failed, by program. */
import { type Refusal, refusalPlace, refusedCall } from '#contract/protocol/refusals';
import { byId, el, setText, showChildren } from './dom.ts';
import { programText } from './objects-view.ts';
import type { PageStore } from './page-state.ts';
import { type Column, TableView } from './table-view.ts';
import { counted, whole } from './units.ts';

/** Shows them and keeps them up to date. */
export function showRefusals(store: PageStore): void {
  const hint = el('p', { class: 'hint' });
  const groups = new GroupList();
  byId('refusals').append(
    el('div', { class: 'title' }, [el('h2', { id: 'refusals-title', text: 'Refusals' }), hint]),
    groups.element,
  );
  store.watch(
    ({ refusals }) => refusals,
    ({ total, last }) => {
      const shown = last.reduce((sum, { times }) => sum + times, 0);
      const some = `The last ${whole(shown)} of ${whole(total)}.`;
      setText(hint, shown < total ? `${HINT} ${some}` : HINT);
      groups.update(refusalGroups(last));
    },
  );
}

const HINT = 'Why verbs failed, by program.';

const COLUMNS: readonly Column<Refusal>[] = [
  { title: 'Time', value: ({ at }) => new Date(at).toTimeString().slice(0, 8), mono: true },
  { title: 'Call', value: refusedCall, mono: true },
  { title: 'Result', value: ({ code }) => code },
  { title: 'Reason', value: ({ sentence }) => sentence, long: true },
  { title: 'Object', value: refusalPlace },
  {
    title: 'Times',
    help: 'How often in a row',
    value: ({ times }) => whole(times),
    numeric: true,
  },
];

interface ShownGroup {
  readonly element: HTMLElement;
  readonly tally: HTMLElement;
  readonly table: TableView<Refusal>;
}

/** A table for each program. */
class GroupList {
  readonly element = el('div', { class: 'refusals' });
  readonly #empty = el('p', { class: 'empty', text: 'No refusals.' });
  #groups = new Map<string, ShownGroup>();

  update(groups: readonly RefusalGroup[]): void {
    const shown = new Map<string, ShownGroup>();
    for (const group of groups) {
      const key = groupKey(group);
      const known = this.#groups.get(key) ?? newGroup(group);
      shown.set(key, known);
      setText(known.tally, counted(group.times, 'refusal'));
      known.table.update(group.refusals);
    }
    this.#groups = shown;
    const elements: HTMLElement[] = [...shown.values()].map(({ element }) => element);
    if (elements.length === 0) elements.push(this.#empty);
    showChildren(this.element, elements);
  }
}

function newGroup(group: RefusalGroup): ShownGroup {
  const program = programText(group);
  const tally = el('span', { class: 'hint' });
  const table = new TableView(`Refusals of ${program}`, COLUMNS, ({ number }) => String(number));
  const title = el('div', { class: 'title' }, [el('h3', { text: program }), tally]);
  return { element: el('div', {}, [title, table.element]), tally, table };
}

/** One program's refusals. */
interface RefusalGroup {
  readonly pid: number;
  readonly program: string;
  /** The last one first. */
  readonly refusals: readonly Refusal[];
  /** Number of refusals; repeats count. */
  readonly times: number;
}

/** Identifies a group: a program may execute another one in the same process. */
function groupKey({ pid, program }: Pick<RefusalGroup, 'pid' | 'program'>): string {
  return `${pid} ${program}`;
}

/** The groups; the one with the latest refusal is first. `refusals` are oldest first. */
export function refusalGroups(refusals: readonly Refusal[]): RefusalGroup[] {
  const groups = new Map<string, Refusal[]>();
  for (const refusal of refusals.toReversed()) {
    const key = groupKey(refusal);
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [refusal]);
    else known.push(refusal);
  }
  return [...groups.values()].flatMap((all) => {
    const [first] = all;
    if (first === undefined) return [];
    const times = all.reduce((sum, { times: often }) => sum + often, 0);
    return { pid: first.pid, program: first.program, refusals: all, times };
  });
}
