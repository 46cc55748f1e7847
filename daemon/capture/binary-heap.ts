/**
 * What comes first of many: a binary heap. Each entry costs the same few steps to add and to take,
 * whatever the order in which they come.
 */
export class BinaryHeap<T> {
  /** Each comes before the two at twice its index and one or two more. */
  readonly #entries: T[] = [];
  readonly #precedes: (left: T, right: T) => boolean;

  /** `precedes` orders any two entries: none are equal. */
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

  /** Removes the first and returns it. */
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
