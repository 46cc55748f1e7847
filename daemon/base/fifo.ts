/**
 * A first-in, first-out list that reuses its memory. To set the length of an array, V8 calls its runtime, and the
 * next push allocates again; here, neither happens while the list is short.
 */

/** Places that an empty list keeps. */
const KEPT_MAX = 1024;

export class Fifo<T> {
  /** The items are from `#head` up to `#tail`. */
  readonly #places: (T | undefined)[] = [];
  #head = 0;
  #tail = 0;

  get count(): number {
    return this.#tail - this.#head;
  }

  push(item: T): void {
    this.#places[this.#tail] = item;
    this.#tail += 1;
  }

  /** Removes and returns the oldest item; undefined if there is none. */
  shift(): T | undefined {
    if (this.#head === this.#tail) return undefined;
    const item = this.#places[this.#head];
    this.#places[this.#head] = undefined;
    this.#head += 1;
    if (this.#head === this.#tail) this.#restart();
    else if (this.#head === KEPT_MAX) this.#dropFirst();
    return item;
  }

  /** A copy of the items, oldest first. */
  items(): T[] {
    return this.#places.slice(this.#head, this.#tail) as T[];
  }

  #restart(): void {
    this.#head = 0;
    this.#tail = 0;
    if (this.#places.length > KEPT_MAX) this.#places.length = KEPT_MAX;
  }

  /** A list that is never empty must not grow for ever. */
  #dropFirst(): void {
    this.#places.splice(0, this.#head);
    this.#tail -= this.#head;
    this.#head = 0;
  }
}
