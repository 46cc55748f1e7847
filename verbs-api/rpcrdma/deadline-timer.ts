/** One timer for a machine that tells when it wants to be called. */

/** Milliseconds of a clock that does not go back. */
export function nowMs(): number {
  return performance.now();
}

/** Calls back once the time that was set has come. */
export class DeadlineTimer {
  readonly #expire: () => void;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(expire: () => void) {
    this.#expire = expire;
  }

  /**
   * Sets the time. A timer that is set for earlier stays: to be called in vain now and then costs
   * less than to set it with every message.
   */
  set(dueMs: number): void {
    if (dueMs >= this.#dueMs) return;
    this.clear();
    this.#dueMs = dueMs;
    this.#timer = setTimeout(
      () => {
        this.#dueMs = Number.POSITIVE_INFINITY;
        this.#expire();
      },
      Math.max(dueMs - nowMs(), 0) + 1,
    );
  }

  /** Calls no more, until the next `set`. */
  clear(): void {
    clearTimeout(this.#timer);
    this.#dueMs = Number.POSITIVE_INFINITY;
  }
}
