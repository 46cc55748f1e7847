/** One state, and those who want to know of its changes. */

/** Holds a state of which parts are replaced, never changed in place. */
export class Store<S extends object> {
  #state: S;
  readonly #listeners = new Set<(state: S) => void>();

  constructor(initial: S) {
    this.#state = initial;
  }

  get state(): Readonly<S> {
    return this.#state;
  }

  /** Replaces some parts, and tells everyone. */
  update(changes: Partial<S>): void {
    this.#state = { ...this.#state, ...changes };
    for (const listener of this.#listeners) listener(this.#state);
  }

  /** Calls `show` now and after every change of what `select` picks. */
  watch<P>(select: (state: Readonly<S>) => P, show: (part: P) => void): void {
    let shown = select(this.#state);
    show(shown);
    this.#listeners.add((state) => {
      const part = select(state);
      if (Object.is(part, shown)) return;
      shown = part;
      show(part);
    });
  }
}
