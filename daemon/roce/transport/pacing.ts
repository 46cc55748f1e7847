/**
 * How much a reliable connection sends ahead on a network that loses packets, and when it asks again.
 *
 * A loss halves what may be unacknowledged, and each window that is acknowledged adds a packet to it,
 * as in TCP. The acknowledgment timer of a queue pair is the program's, and long: it tells that a
 * peer has gone. A lost packet behind which none was sent would wait for it, so packets are sent again
 * sooner, by what round trips have taken so far (RFC 6298), without counting as a retry.
 */
import type { Micros } from '../../rnic/wire-port.ts';
import { psnDistance } from '../wire/psn.ts';

/** So many packets show the loss of one by a NAK. */
const LIMIT_MIN_PACKETS = 4;
/** Peers are programs: one may have to wait for its processor so long. */
const PATIENCE_MIN_MICROS = 5_000;
const PATIENCE_MAX_MICROS = 1_000_000;
/** Before any round trip was measured. */
const PATIENCE_FIRST_MICROS = 20_000;
const NONE = -1;

export class Pacing {
  /** Packets that may be unacknowledged now. */
  limit: number;
  readonly #window: number;
  /** Packets acknowledged since `limit` grew last. */
  #grownBy = 0;
  /** Round trip: smoothed, and its variation; 0 before the first. */
  #smoothed = 0;
  #variation = 0;
  /** The PSN whose round trip is measured, or `NONE`, and when it was sent. */
  #sample = NONE;
  #sampleAt: Micros = 0;
  /** Doubled for each time that packets were sent again without an answer. */
  #patience = PATIENCE_FIRST_MICROS;

  constructor(windowPackets: number) {
    this.limit = windowPackets;
    this.#window = windowPackets;
  }

  /** How long an answer may take before packets are sent again. */
  get patienceMicros(): Micros {
    return this.#patience;
  }

  /** A packet leaves for the first time. */
  sent(psn: number, now: Micros): void {
    if (this.#sample !== NONE) return;
    this.#sample = psn;
    this.#sampleAt = now;
  }

  /** `packets` are acknowledged, all before `psn`. */
  acknowledged(packets: number, psn: number, now: Micros): void {
    if (this.#sample !== NONE && psnDistance(psn, this.#sample) > 0) {
      this.#measure(now - this.#sampleAt);
      this.#sample = NONE;
    }
    this.#patience = this.#expected();
    if (this.limit === this.#window) return;
    this.#grownBy += packets;
    if (this.#grownBy < this.limit) return;
    this.#grownBy = 0;
    this.limit += 1;
  }

  /** A packet got lost; what is behind it goes again. */
  lost(): void {
    this.limit = Math.max(this.limit >> 1, LIMIT_MIN_PACKETS);
    this.#grownBy = 0;
    this.sentAgain();
  }

  /** Unacknowledged packets were resent: drops the sample, since an answer would not show its copy. */
  sentAgain(): void {
    this.#sample = NONE;
  }

  /** No answer came in time. */
  unanswered(): void {
    this.lost();
    this.#patience = Math.min(2 * this.#patience, PATIENCE_MAX_MICROS);
  }

  #measure(micros: Micros): void {
    if (this.#smoothed === 0) {
      this.#smoothed = micros;
      this.#variation = micros / 2;
      return;
    }
    this.#variation += (Math.abs(this.#smoothed - micros) - this.#variation) / 4;
    this.#smoothed += (micros - this.#smoothed) / 8;
  }

  #expected(): Micros {
    if (this.#smoothed === 0) return PATIENCE_FIRST_MICROS;
    const expected = this.#smoothed + 4 * this.#variation;
    return Math.min(Math.max(expected, PATIENCE_MIN_MICROS), PATIENCE_MAX_MICROS);
  }
}
