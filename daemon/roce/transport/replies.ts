/**
 * Pending replies to Reads and atomics, in the order of their PSNs, and the results of the last atomics (IBTA
 * 9.7.4.1, 9.7.5.2.2).
 *
 * A repeated Read is executed again. A repeated atomic is answered with its saved result. Results are kept
 * for as many requests as the requester may have in flight.
 */
import { addPsn, psnDistance } from '../wire/psn.ts';

/** A pending reply, possibly sent in part. */
export class Reply {
  /** An atomic's result; otherwise data of a Read. */
  atomic = false;
  /** The peer repeated the request. */
  repeated = false;
  msn = 0;
  /** First PSN, number of packets, and how many are sent. */
  firstPsn = 0;
  packets = 0;
  sent = 0;
  stag = 0;
  toHi = 0;
  toLo = 0;
  lengthBytes = 0;
  originalHi = 0;
  originalLo = 0;
}

export class Replies {
  readonly #depth: number;
  /** In order of PSN. Entries move between this list and `#spare`. */
  readonly #pending: Reply[] = [];
  readonly #spare: Reply[] = [];
  /** Results of atomics as a ring: PSN, MSN, original value. */
  readonly #results: Uint32Array;
  #nextResult = 0;
  #resultCount = 0;

  /** `depth`: how many requests the peer may have in flight. */
  constructor(depth: number) {
    this.#depth = depth;
    this.#results = new Uint32Array(depth * RESULT_WORDS);
  }

  get head(): Reply | undefined {
    return this.#pending[0];
  }

  /** True if the peer has reached its limit of requests in flight. */
  get full(): boolean {
    let count = 0;
    for (const reply of this.#pending) if (!reply.repeated) count += 1;
    return count >= this.#depth;
  }

  /** An entry to fill in and `add`. */
  spare(): Reply {
    return this.#spare.pop() ?? new Reply();
  }

  /**
   * Inserts an entry in order, replacing entries with the same PSNs. Drops a repeated one if there are too
   * many: the peer asks again.
   */
  add(reply: Reply): void {
    const pending = this.#pending;
    let at = pending.length;
    // Append new replies. Do not compare their PSNs: they may be 2^23 apart, where serial order is undefined.
    // Pending and repeated ones are always closer.
    while (reply.repeated && at > 0) {
      const other = pending[at - 1] as Reply;
      const otherPsn = addPsn(other.firstPsn, other.sent);
      if (psnDistance(reply.firstPsn, otherPsn) >= other.packets - other.sent) break;
      if (psnDistance(otherPsn, reply.firstPsn) < reply.packets) {
        pending.splice(at - 1, 1);
        this.#spare.push(other);
      }
      at -= 1;
    }
    if (reply.repeated && pending.length >= 2 * this.#depth) this.#spare.push(reply);
    else pending.splice(at, 0, reply);
  }

  /** Returns an entry that is not added. */
  discard(reply: Reply): void {
    this.#spare.push(reply);
  }

  /** Removes the head, once it is sent. */
  shift(): void {
    const reply = this.#pending.shift();
    if (reply !== undefined) this.#spare.push(reply);
  }

  /** Restores a pending reply of which only `sent` packets were sent. Call in reverse order. */
  putBack(reply: Reply, sent: number): void {
    reply.sent = sent;
    const at = this.#spare.lastIndexOf(reply);
    if (at < 0) return;
    this.#spare.splice(at, 1);
    this.#pending.unshift(reply);
  }

  /** Drops pending replies to requests from this PSN on. */
  clearFrom(psn: number): void {
    let count = 0;
    for (const { firstPsn, packets } of this.#pending) {
      if (psnDistance(addPsn(firstPsn, packets - 1), psn) < 0) count += 1;
    }
    this.#pending.length = count;
  }

  clear(): void {
    this.#pending.length = 0;
  }

  /** Saves the result of an atomic. */
  remember({ firstPsn, msn, originalHi, originalLo }: Reply): void {
    const results = this.#results;
    const at = this.#nextResult * RESULT_WORDS;
    results[at] = firstPsn;
    results[at + 1] = msn;
    results[at + 2] = originalHi;
    results[at + 3] = originalLo;
    this.#nextResult = (this.#nextResult + 1) % this.#depth;
    this.#resultCount = Math.min(this.#resultCount + 1, this.#depth);
  }

  /** Fills in the reply to the atomic at `firstPsn`; false if its result is no longer saved. */
  recall(firstPsn: number, reply: Reply): boolean {
    const results = this.#results;
    for (let index = 0; index < this.#resultCount; index += 1) {
      const at = index * RESULT_WORDS;
      if (results[at] !== firstPsn) continue;
      reply.msn = results[at + 1] ?? 0;
      reply.originalHi = results[at + 2] ?? 0;
      reply.originalLo = results[at + 3] ?? 0;
      return true;
    }
    return false;
  }
}

const RESULT_WORDS = 4;
