/**
 * A binary heap: finds the first of many entries. Adding and removing an entry takes a logarithmic
 * number of steps, whatever their order.
 */
export class BinaryHeap<T> {
  /** Each entry precedes those at twice its index plus one and plus two. */
  readonly #entries: T[] = [];
  readonly #precedes: (left: T, right: T) => boolean;

  /** `precedes` must be a strict order in which no two entries are equal. */
  constructor(precedes: (left: T, right: T) => boolean) {
    this.#precedes = precedes;
  }

  get count(): number {
    return this.#entries.length;
  }

  get first(): T | undefined {
    return this.#entries[0];
  }

  push(entry: T): void {
    const entries = this.#entries;
    let at = entries.length;
    entries.push(entry);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = entries[parent] as T;
      if (!this.#precedes(entry, above)) break;
      entries[at] = above;
      at = parent;
    }
    entries[at] = entry;
  }

  pop(): T | undefined {
    const entries = this.#entries;
    const { first } = this;
    const last = entries.pop();
    if (last === undefined || entries.length === 0) return first;
    let at = 0;
    for (let child = 1; child < entries.length; child = 2 * at + 1) {
      const right = child + 1;
      if (right < entries.length && this.#precedes(entries[right] as T, entries[child] as T)) {
        child = right;
      }
      const least = entries[child] as T;
      if (!this.#precedes(least, last)) break;
      entries[at] = least;
      at = child;
    }
    entries[at] = last;
    return first;
  }

  clear(): void {
    this.#entries.length = 0;
  }
}
