/**
 * Congestion control and early retransmission of a reliable connection on a lossy network.
 *
 * A loss halves the number of unacknowledged packets, and each acknowledged window adds one, as in TCP. The
 * program's acknowledgment timer is long, since it detects a dead peer. Losing the last packet sent would
 * wait for that timer, so packets are retransmitted sooner, by the measured round trip time (RFC 6298),
 * without counting as a retry.
 */
import type { Micros } from '#base/time';
import { psnDistance } from '../wire/psn.ts';

/** Enough packets for a NAK to report the loss of one. */
const LIMIT_MIN_PACKETS = 4;
/** Peers are programs: one may have to wait this long for a processor. */
const PATIENCE_MIN_MICROS = 5_000;
const PATIENCE_MAX_MICROS = 1_000_000;
/** Before the first measurement. */
const PATIENCE_FIRST_MICROS = 20_000;
const NONE = -1;

export class Pacing {
  /** How many packets may be unacknowledged now. */
  limit: number;
  /** Limit of `limit`. */
  readonly most: number;
  /** Packets acknowledged since `limit` last grew. */
  #grownBy = 0;
  /** Round trip time: smoothed, and its variation; 0 before the first measurement. */
  #smoothed = 0;
  #variation = 0;
  /** The PSN whose round trip is measured, or `NONE`, and when it was sent. */
  #sample = NONE;
  #sampleAt: Micros = 0;
  /** Doubled by each retransmission without an answer. */
  #patience = PATIENCE_FIRST_MICROS;

  /** `limit` starts at `first`, and grows to `most`. */
  constructor(first: number, most: number) {
    this.limit = first;
    this.most = most;
  }

  /** How long to wait for an answer before retransmitting. */
  get patienceMicros(): Micros {
    return this.#patience;
  }

  sent(psn: number, now: Micros): void {
    if (this.#sample !== NONE) return;
    this.#sample = psn;
    this.#sampleAt = now;
  }

  /** Notes that `packets` before `psn` were acknowledged. */
  acknowledged(packets: number, psn: number, now: Micros): void {
    if (this.#sample !== NONE && psnDistance(psn, this.#sample) > 0) {
      this.#measure(now - this.#sampleAt);
      this.#sample = NONE;
    }
    this.#patience = this.#expected();
    if (this.limit === this.most) return;
    this.#grownBy += packets;
    if (this.#grownBy < this.limit) return;
    this.#grownBy = 0;
    this.limit += 1;
  }

  /** A packet was lost; retransmission starts there. */
  lost(): void {
    this.limit = Math.max(this.limit >> 1, LIMIT_MIN_PACKETS);
    this.#grownBy = 0;
    this.sentAgain();
  }

  /** Drops the sample after a retransmission: an answer would not show which copy it is for. */
  sentAgain(): void {
    this.#sample = NONE;
  }

  /** No answer arrived in time. */
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
