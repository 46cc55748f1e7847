/** Keeps whoever is refused from filling the log: so many warnings in a while, then only a count. */
import type { HttpRefusal } from './http-refusal.ts';

/** Warnings in one window of time. */
const WARNINGS_MAX = 10;
const WINDOW_MS = 60_000;

/** How a refusal is to be logged. */
export interface RefusalNote {
  readonly level: 'debug' | 'warn';
  /** Warnings that were held back since the last one that was not. */
  readonly heldBack: number;
}

/** See the module's comment. */
export class RefusalLog {
  #windowStart = Number.NEGATIVE_INFINITY;
  #warnings = 0;
  #heldBack = 0;

  /** `nowMs` never goes back. What is nobody's attack, like a misspelt path, is no warning. */
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
