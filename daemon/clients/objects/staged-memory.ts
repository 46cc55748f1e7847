/** Bytes fetched from one client's memory and not used yet, over all its regions. */
import { assert } from '#base/assert';
import type { InputAccount } from '../kept-input.ts';

/**
 * Maximum fetched bytes; beyond it the oldest are dropped. Enough for a few messages of each busy
 * queue pair. Ranges still being fetched are kept: at most one per waiting queue pair.
 */
export const STAGED_MAX_BYTES = 16 * 2 ** 20;

export interface StagedRange {
  readonly bytes: Uint8Array;
  /** Pieces that have not arrived. */
  readonly missing: number;
  /** Forgets the range in its region and here. It is fetched again if needed. */
  drop(): void;
}

export class StagedMemory {
  /** The oldest first. */
  readonly #ranges = new Set<StagedRange>();
  readonly #account: InputAccount;
  #bytes = 0;

  /** `account` also counts the bytes. */
  constructor(account: InputAccount) {
    this.#account = account;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(range: StagedRange): void {
    this.#ranges.add(range);
    this.#bytes += range.bytes.length;
    this.#account.keep(range.bytes.length);
  }

  remove(range: StagedRange): void {
    if (!this.#ranges.delete(range)) return;
    this.#bytes -= range.bytes.length;
    this.#account.keep(-range.bytes.length);
  }

  /** Drops the oldest ranges that have arrived, of any region, until `lengthBytes` more fit. */
  makeRoom(lengthBytes: number): void {
    for (const range of this.#ranges) {
      if (this.#bytes + lengthBytes <= STAGED_MAX_BYTES) return;
      if (range.missing === 0) range.drop();
    }
  }

  /** Drops every range: the memory can no longer be accessed. */
  clear(): void {
    for (const range of this.#ranges) range.drop();
  }

  /** Recounts the bytes, for tests. Throws `InvariantError`. */
  assertInvariants(): void {
    let bytes = 0;
    for (const range of this.#ranges) bytes += range.bytes.length;
    assert(bytes === this.#bytes, 'wrong count of staged bytes');
  }
}
