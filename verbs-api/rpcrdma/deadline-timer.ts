/** One timer for a state machine with a next deadline. */

/** Milliseconds of a monotonic clock. */
export function nowMs(): number {
  return performance.now();
}

/** Calls back at the set time. */
export class DeadlineTimer {
  readonly #expire: () => void;
  #timer: NodeJS.Timeout | undefined;
  #dueMs = Number.POSITIVE_INFINITY;

  constructor(expire: () => void) {
    this.#expire = expire;
  }

  /**
   * Sets the time. A timer already set for an earlier time is kept: an occasional spurious call
   * costs less than resetting the timer with every message.
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

  /** Stops the timer until the next `set`. */
  clear(): void {
    clearTimeout(this.#timer);
    this.#dueMs = Number.POSITIVE_INFINITY;
  }
}
