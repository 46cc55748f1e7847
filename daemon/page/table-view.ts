/** A table whose rows keep their place and selection while their texts change. */
import { el, setText, showChildren } from './dom.ts';

export interface Column<T> {
  readonly title: string;
  /** Explains the title. */
  readonly help?: string;
  readonly value: (row: T) => string;
  /** Right-aligned. */
  readonly numeric?: boolean;
  /** In a monospace font: identifiers and addresses. */
  readonly mono?: boolean;
  /** May wrap over several lines. */
  readonly long?: boolean;
  /** A state, colored by the class returned. */
  readonly badge?: (row: T) => string;
}

interface ShownRow {
  readonly element: HTMLTableRowElement;
  readonly cells: readonly HTMLElement[];
}

export class TableView<T> {
  readonly element: HTMLElement;
  readonly #columns: readonly Column<T>[];
  readonly #key: (row: T) => string;
  readonly #body = el('tbody');
  #rows = new Map<string, ShownRow>();

  /** `key` identifies rows; `caption` describes the table to screen readers. */
  constructor(caption: string, columns: readonly Column<T>[], key: (row: T) => string) {
    this.#columns = columns;
    this.#key = key;
    const titles = columns.map(({ title, help, numeric }) => {
      const attributes = { scope: 'col', title: help };
      return el('th', { text: title, class: numeric === true ? 'number' : '', attributes });
    });
    const table = el('table', {}, [
      el('caption', { class: 'unseen', text: caption }),
      el('thead', {}, [el('tr', {}, titles)]),
      this.#body,
    ]);
    // Wider than a phone: scrolls on its own, also by keyboard.
    const attributes = { role: 'region', 'aria-label': caption, tabindex: '0' };
    this.element = el('div', { class: 'table', attributes }, [table]);
  }

  /** Shows these rows, in this order. */
  update(rows: readonly T[]): void {
    const shown = new Map<string, ShownRow>();
    for (const row of rows) {
      const key = this.#key(row);
      const known = this.#rows.get(key) ?? this.#newRow();
      shown.set(key, known);
      this.#fill(known, row);
    }
    this.#rows = shown;
    const elements = [...shown.values()].map(({ element }) => element);
    showChildren(this.#body, elements);
  }

  #newRow(): ShownRow {
    const cells = this.#columns.map(({ numeric = false, mono = false, long = false, badge }) => {
      const kinds = Object.entries({ number: numeric, mono, long });
      const kind = kinds.flatMap(([name, is]) => (is ? name : [])).join(' ');
      const inner = badge === undefined ? [] : [el('span', { class: 'badge' })];
      return el('td', { class: kind }, inner);
    });
    return { element: el('tr', {}, cells), cells };
  }

  #fill({ cells }: ShownRow, row: T): void {
    for (const [index, { value, badge }] of this.#columns.entries()) {
      const cell = cells[index];
      if (cell === undefined) continue;
      const target = badge === undefined ? cell : (cell.firstElementChild ?? cell);
      setText(target, value(row));
      if (badge !== undefined) target.className = `badge ${badge(row)}`;
    }
  }
}
