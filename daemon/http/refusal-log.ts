/**
 * Keeps rejected clients from filling the log: logs a limited number of warnings per time window,
 * then only a count.
 */
import type { HttpRefusal } from './http-refusal.ts';

/** Maximum warnings per window. */
const WARNINGS_MAX = 10;
const WINDOW_MS = 60_000;

interface RefusalNote {
  readonly level: 'debug' | 'warn';
  /** Warnings suppressed since the last one logged. */
  readonly heldBack: number;
}

export class RefusalLog {
  #windowStart = Number.NEGATIVE_INFINITY;
  #warnings = 0;
  #heldBack = 0;

  /**
   * `nowMs` is monotonic. Rejections that are no sign of an attack, such as a misspelled path, are
   * not warnings.
   */
  judge({ status }: Pick<HttpRefusal, 'status'>, nowMs: number): RefusalNote {
    if (status !== 401 && status !== 403) return { level: 'debug', heldBack: 0 };
    if (nowMs - this.#windowStart >= WINDOW_MS) {
      this.#windowStart = nowMs;
      this.#warnings = 0;
    }
    if (this.#warnings >= WARNINGS_MAX) {
      this.#heldBack += 1;
      return { level: 'debug', heldBack: 0 };
    }
    this.#warnings += 1;
    const heldBack = this.#heldBack;
    this.#heldBack = 0;
    return { level: 'warn', heldBack };
  }
}
