/**
 * Counts the waits of a program. The sockets of a daemon's client keep its process alive; an embedded
 * device may have none, so its channel keeps the process alive during a wait.
 */

export class PendingWaits {
  readonly #hold: (alive: boolean) => void;
  #count = 0;

  /** `hold` is called with true when the first wait starts, with false when the last one ends. */
  constructor(hold: (alive: boolean) => void) {
    this.#hold = hold;
  }

  begin(): void {
    this.#count += 1;
    if (this.#count === 1) this.#hold(true);
  }

  end(): void {
    this.#count -= 1;
    if (this.#count === 0) this.#hold(false);
  }
}
