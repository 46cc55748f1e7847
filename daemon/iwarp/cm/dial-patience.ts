/**
 * Retries refused TCP connections. Programs coordinate their connections by messages, and rely on
 * the time that resolving a path takes: perftest's server starts to listen for its queue pairs
 * while its client already connects them.
 */
import type { Micros } from '#base/time';

/**
 * The first pause between two attempts. Each is twice as long as the previous one, up to the last.
 */
const PAUSE_FIRST_MICROS = 5_000;
const PAUSE_LAST_MICROS = 80_000;

export class DialPatience {
  readonly #endsAt: Micros;
  #pause: Micros = PAUSE_FIRST_MICROS;

  /** Attempts start no later than `endsAt`. */
  constructor(endsAt: Micros) {
    this.#endsAt = endsAt;
  }

  /** When to retry after a failure at `now`; undefined if there is no further attempt. */
  retryAt(errorCode: string, now: Micros): Micros | undefined {
    const due = now + this.#pause;
    if (errorCode !== 'ECONNREFUSED' || due > this.#endsAt) return undefined;
    this.#pause = Math.min(2 * this.#pause, PAUSE_LAST_MICROS);
    return due;
  }
}
