/** Numbers for the objects of one file: the lowest free one first, from 0, as the kernel's. */

/** See the module's comment. */
export class HandleSpace<T> {
  readonly #objects: (T | undefined)[] = [];
  /** No free number is below it. */
  #lowest = 0;
  #size = 0;

  /** Objects in it. */
  get size(): number {
    return this.#size;
  }

  /** Adds what `make` returns for the next number. Nothing is added when it throws. */
  add<Made extends T>(make: (handle: number) => Made): Made {
    while (this.#objects[this.#lowest] !== undefined) this.#lowest += 1;
    const handle = this.#lowest;
    const object = make(handle);
    this.#objects[handle] = object;
    this.#size += 1;
    return object;
  }

  find(handle: number): T | undefined {
    return this.#objects[handle];
  }

  /** Frees a number; one that is free already stays so. */
  remove(handle: number): void {
    if (this.#objects[handle] === undefined) return;
    this.#objects[handle] = undefined;
    this.#lowest = Math.min(this.#lowest, handle);
    this.#size -= 1;
  }

  /** All objects, by number. */
  values(): T[] {
    return this.#objects.filter((object): object is T & {} => object !== undefined);
  }
}
