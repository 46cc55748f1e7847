/** Numbers objects: the lowest free number first, as in the kernel. */
import { assert } from '#base/assert';
import { VerbsError } from '#contract/verbs/errors';

export class HandleSpace<T> {
  readonly #objects: (T | undefined)[] = [];
  readonly #first: number;
  readonly #end: number;
  /** Every number below it is in use. */
  #lowest: number;
  #size = 0;

  /** Numbers from `first` up to, but not including, `end`. Default: from 0, without a limit. */
  constructor(first = 0, end = Number.POSITIVE_INFINITY) {
    this.#first = first;
    this.#end = end;
    this.#lowest = first;
  }

  get size(): number {
    return this.#size;
  }

  /**
   * Adds the result of `make` under the next number; adds nothing if it throws. ENOMEM if all numbers
   * are in use.
   */
  add<Made extends T>(make: (handle: number) => Made): Made {
    while (this.#objects[this.#lowest] !== undefined) this.#lowest += 1;
    const handle = this.#lowest;
    if (handle >= this.#end) {
      throw new VerbsError('ENOMEM', `all ${this.#end - this.#first} numbers are in use`);
    }
    const object = make(handle);
    this.#objects[handle] = object;
    this.#size += 1;
    return object;
  }

  find(handle: number): T | undefined {
    return this.#objects[handle];
  }

  /** Frees a number. Does nothing if it is free. */
  remove(handle: number): void {
    if (this.#objects[handle] === undefined) return;
    this.#objects[handle] = undefined;
    this.#lowest = Math.min(this.#lowest, handle);
    this.#size -= 1;
  }

  values(): T[] {
    return this.#objects.filter((object): object is T & {} => object !== undefined);
  }

  select<S extends T>(is: (object: T) => object is S): S[] {
    const found: S[] = [];
    for (const object of this.#objects) {
      if (object !== undefined && is(object)) found.push(object);
    }
    return found;
  }

  /** Recounts the objects, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    assert(this.values().length === this.#size, 'wrong count of objects');
    for (let handle = this.#first; handle < this.#lowest; handle++) {
      assert(this.#objects[handle] !== undefined, 'free number below the lowest');
    }
  }
}
