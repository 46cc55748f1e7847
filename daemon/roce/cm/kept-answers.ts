/**
 * Answers to finished requests, for peers that repeat a request because the answer was lost. Without them, a
 * rejected request would reach its listener twice.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import type { Transaction } from '../wire/cm-message.ts';
import { gidKey } from './cm-path.ts';

/** Limit on kept answers of 256 bytes each. */
const KEPT_MAX = 4096;

/** Identifies a request of a peer, by its id and transaction. */
interface Question {
  readonly name: 'REQ' | 'SIDR_REQ';
  readonly number: number;
  readonly transaction: Transaction;
}

interface Kept {
  readonly mad: Uint8Array;
  readonly transaction: Transaction;
  readonly until: Micros;
}

/** Ordered by expiry. */
export class KeptAnswers {
  readonly #kept = new Map<string, Kept>();
  readonly #keepMicros: Micros;

  /** `keepMicros`: how long each answer is kept after its request arrived for the last time. */
  constructor(keepMicros: Micros) {
    this.#keepMicros = keepMicros;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** The kept answer to this request from `gid`, which has arrived again. */
  recall(gid: Uint8Array, question: Question, now: Micros): Uint8Array | undefined {
    const kept = this.#kept.get(keyOf(gid, question));
    if (kept === undefined) return undefined;
    const { hi, lo } = question.transaction;
    if (kept.transaction.hi !== hi || kept.transaction.lo !== lo) return undefined;
    this.keep(gid, question, kept.mad, now);
    return kept.mad;
  }

  keep(gid: Uint8Array, question: Question, mad: Uint8Array, now: Micros): void {
    const key = keyOf(gid, question);
    const { transaction } = question;
    this.#kept.delete(key);
    if (this.#kept.size >= KEPT_MAX) {
      const [oldest] = this.#kept.keys();
      if (oldest !== undefined) this.#kept.delete(oldest);
    }
    this.#kept.set(key, { mad, transaction, until: now + this.#keepMicros });
  }

  nextDeadline(): Micros {
    if (this.#kept.size === 0) return NEVER;
    for (const { until } of this.#kept.values()) return until;
    return NEVER;
  }

  handleDeadline(now: Micros): void {
    for (const [key, { until }] of this.#kept) {
      if (until > now) return;
      this.#kept.delete(key);
    }
  }

  /** For tests. Throws `InvariantError`. */
  assertInvariants(): void {
    assert(this.#kept.size <= KEPT_MAX, 'too many answers kept');
  }
}

function keyOf(gid: Uint8Array, { name, number }: Question): string {
  return `${gidKey(gid)}/${name}/${number}`;
}
