/**
 * What a responder owes to Reads and atomics, in the order of their PSNs, and the results of its
 * last atomics (IBTA 9.7.4.1, 9.7.5.2.2).
 *
 * A repeated Read is carried out again. A repeated atomic is not: its result is kept for as long as
 * the requester may ask, which is as many requests as it may have in flight.
 */
import { addPsn, psnDistance } from '../wire/psn.ts';

/** One reply that is owed, in whole or in part. */
export class Reply {
  /** An atomic's result, or else data of a Read. */
  atomic = false;
  /** The peer repeated its request. */
  repeated = false;
  msn = 0;
  /** PSN of the first packet, packets in all, and packets sent. */
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
  /** Owed, in order of PSN; entries move between this list and `#spare`. */
  readonly #owed: Reply[] = [];
  readonly #spare: Reply[] = [];
  /** Results of atomics as a ring: PSN, MSN, original value. */
  readonly #results: Uint32Array;
  #nextResult = 0;
  #resultCount = 0;

  /** `depth`: requests that the peer may have in flight. */
  constructor(depth: number) {
    this.#depth = depth;
    this.#results = new Uint32Array(depth * RESULT_WORDS);
  }

  get head(): Reply | undefined {
    return this.#owed[0];
  }

  /** True when the peer has more requests in flight than it may. */
  get full(): boolean {
    let count = 0;
    for (const reply of this.#owed) if (!reply.repeated) count += 1;
    return count >= this.#depth;
  }

  /** An entry to fill in and `add`. */
  spare(): Reply {
    return this.#spare.pop() ?? new Reply();
  }

  /**
   * Adds an entry at its place. It takes that of others with the same PSNs. A repeated one is left
   * out when there are too many: the peer asks again.
   */
  add(reply: Reply): void {
    const owed = this.#owed;
    let at = owed.length;
    // One that is not repeated comes behind all. Its PSN may be half of all away from others, which
    // is no order; what is left of those, and what may be repeated, is always less apart.
    while (reply.repeated && at > 0) {
      const other = owed[at - 1] as Reply;
      const otherPsn = addPsn(other.firstPsn, other.sent);
      if (psnDistance(reply.firstPsn, otherPsn) >= other.packets - other.sent) break;
      if (psnDistance(otherPsn, reply.firstPsn) < reply.packets) {
        owed.splice(at - 1, 1);
        this.#spare.push(other);
      }
      at -= 1;
    }
    if (reply.repeated && owed.length >= 2 * this.#depth) this.#spare.push(reply);
    else owed.splice(at, 0, reply);
  }

  /** An entry that is not added after all. */
  discard(reply: Reply): void {
    this.#spare.push(reply);
  }

  /** The head is sent. */
  shift(): void {
    const reply = this.#owed.shift();
    if (reply !== undefined) this.#spare.push(reply);
  }

  /** One that was owed, and of which only `sent` packets are sent after all. The last one first. */
  putBack(reply: Reply, sent: number): void {
    reply.sent = sent;
    const at = this.#spare.lastIndexOf(reply);
    if (at < 0) return;
    this.#spare.splice(at, 1);
    this.#owed.unshift(reply);
  }

  /** Drops pending replies to requests from this PSN on. */
  clearFrom(psn: number): void {
    let count = 0;
    for (const { firstPsn, packets } of this.#owed) {
      if (psnDistance(addPsn(firstPsn, packets - 1), psn) < 0) count += 1;
    }
    this.#owed.length = count;
  }

  /** Nothing is owed any more. */
  clear(): void {
    this.#owed.length = 0;
  }

  /** Keeps the result of an atomic. */
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

  /** Fills in the reply to the atomic at `firstPsn`; false when its result is not kept any more. */
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
