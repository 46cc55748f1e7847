/**
 * Objects by numbers that increase and are never reused. Reading on after a number costs only the
 * objects read, however many there are.
 */
import { assert } from '#base/assert';

/** Entries of removed objects that may stay, whatever the size of the list. */
const REMOVED_FEW = 1024;

export class NumberedList<T extends object> {
  /** Ascending; includes removed objects until there are many. */
  #numbers: number[] = [];
  #objects: (T | undefined)[] = [];
  #next = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(object: T): number {
    const number = this.#next;
    this.#next += 1;
    this.#numbers.push(number);
    this.#objects.push(object);
    this.#size += 1;
    return number;
  }

  find(number: number): T | undefined {
    const place = this.#placeAfter(number - 1);
    return this.#numbers[place] === number ? this.#objects[place] : undefined;
  }

  remove(number: number): void {
    const place = this.#placeAfter(number - 1);
    const isThere = this.#numbers[place] === number && this.#objects[place] !== undefined;
    assert(isThere, 'removed object is not in the list');
    this.#objects[place] = undefined;
    this.#size -= 1;
    if (this.#objects.length > 2 * this.#size + REMOVED_FEW) this.#compact();
  }

  /** The objects after a number, in order. The list must not change meanwhile. */
  *after(number: number): Generator<readonly [number: number, object: T]> {
    for (let place = this.#placeAfter(number); place < this.#numbers.length; place += 1) {
      const object = this.#objects[place];
      if (object !== undefined) yield [this.#numbers[place] as number, object];
    }
  }

  #placeAfter(number: number): number {
    let low = 0;
    let high = this.#numbers.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#numbers[middle] as number) <= number) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Removes stale entries, once there are as many as entries to examine. */
  #compact(): void {
    const numbers: number[] = [];
    const objects: T[] = [];
    for (const [number, object] of this.after(-1)) {
      numbers.push(number);
      objects.push(object);
    }
    this.#numbers = numbers;
    this.#objects = objects;
  }
}
