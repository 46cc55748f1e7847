/**
 * Counts what a program awaits of a device. The sockets of a daemon's client keep its process alive;
 * those of an embedded device need not, so its channel does while something is awaited.
 */

export class PendingWaits {
  readonly #hold: (alive: boolean) => void;
  #count = 0;

  /** `hold` is called with whether anything is awaited, when that changes. */
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
