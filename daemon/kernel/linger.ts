/**
 * Keeps the event loop awake for some microseconds after a sleeping program received an event. It mostly
 * posts work next, and to wake the daemon for that takes longer than the program needs.
 *
 * The loop stops lingering when it finds that others had the core meanwhile, and lingers rarely while nothing
 * comes of it, so a daemon on a busy machine, and one whose programs only receive, sleep as before.
 */
import type { Micros } from '#base/time';

/** Longer than most programs need to handle an event, and about as long as a processor needs to wake up. */
const LINGER_MICROS: Micros = 50;
/** Turns of the loop, each with a look at its sockets, that take about as long. */
const TURNS_MAX = 64;
/** Time between two turns from which others must have had the core, or other work came up. */
const GAP_MICROS: Micros = 200;
/** After this many times in vain, the loop lingers only at each sixteenth event. */
const VAIN_MAX = 8;
const RARELY = 16;

interface LingerHost {
  now(): Micros;
  /** Calls back in the next turn of the event loop. */
  soon(run: () => void): void;
}

export class Linger {
  readonly #host: LingerHost;
  /** Lingering until then, unless it is 0 turns. */
  #until: Micros = 0;
  #turnsLeft = 0;
  #lastTurn: Micros = 0;
  /** How often nothing has come of it in a row. */
  #vain = 0;
  #skipped = 0;

  constructor(host: LingerHost) {
    this.#host = host;
  }

  /** An event was sent to a program. */
  begin(): void {
    if (this.#vain >= VAIN_MAX) {
      this.#skipped = (this.#skipped + 1) % RARELY;
      if (this.#skipped !== 0) return;
    }
    const lingers = this.#turnsLeft > 0;
    // Events one after the other, and the programs send nothing.
    if (lingers && this.#until > 0) this.#vain += 1;
    const now = this.#host.now();
    this.#until = now + LINGER_MICROS;
    this.#turnsLeft = TURNS_MAX;
    if (lingers) return;
    this.#lastTurn = now;
    this.#host.soon(this.#turn);
  }

  /** A program has sent something: what the loop has lingered for, if it does. */
  end(): void {
    if (this.#turnsLeft === 0) return;
    this.#vain = 0;
    this.#until = 0;
  }

  readonly #turn = (): void => {
    const now = this.#host.now();
    this.#turnsLeft -= 1;
    const late = now >= this.#until || now - this.#lastTurn > GAP_MICROS;
    this.#lastTurn = now;
    if (!late && this.#turnsLeft > 0) {
      this.#host.soon(this.#turn);
      return;
    }
    this.#turnsLeft = 0;
    // Otherwise `end` was called.
    if (this.#until > 0) this.#vain += 1;
  };
}
