/** One state and its subscribers. */

/** Holds a state whose parts are replaced, never mutated. */
export class Store<S extends object> {
  #state: S;
  readonly #listeners = new Set<(state: S) => void>();

  constructor(initial: S) {
    this.#state = initial;
  }

  get state(): Readonly<S> {
    return this.#state;
  }

  /** Replaces some parts and notifies subscribers. */
  update(changes: Partial<S>): void {
    this.#state = { ...this.#state, ...changes };
    for (const listener of this.#listeners) listener(this.#state);
  }

  /** Calls `show` now, and whenever the result of `select` changes. */
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
