/**
 * The rings of one open device, in one file: the program's descriptor of the device is this file, so
 * the offset of a ring is the offset at which the program maps it, by a plain mmap(2).
 */
import { SystemCallError } from '../../../native-bridge/libc/libc.ts';
import { SharedFile, type SharedMemory } from '../../../native-bridge/libc/shared-memory.ts';
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../../invariants/assert.ts';
import { takeFor } from '../objects/daemon-budget.ts';
import type { RingSource } from '../objects/queue-rings.ts';
import type { QuotaLedger } from '../objects/quotas.ts';
import type { KernelReply } from './kernel-file.ts';

/** Bytes of a page. */
export const PAGE_BYTES = 4096;
/** Rings begin at multiples of this: the largest page that Linux has on arm64. */
const ALIGNMENT_BYTES = 65_536;
/**
 * The first ring. siw's provider takes the offset 0x90000 for an error; below lie the bytes that a
 * write(2) past the preload library would fill.
 */
const FIRST_OFFSET = 0xa_0000;

/** One mapped queue. */
export interface Ring {
  /** The offset that the program passes to mmap. */
  readonly key: number;
  /** Bytes that the program maps; the memory may be longer, after the last page of these. */
  readonly mappedBytes: number;
  readonly memory: SharedMemory;
  /** All bytes of the memory. */
  readonly view: Uint8Array;
}

/** See the module's comment. */
export class RingMappings implements RingSource<Ring> {
  readonly #ledger: QuotaLedger;
  readonly #rings = new Map<number, Ring>();
  #file: SharedFile | undefined;
  /** Offsets are used once: a program that still maps a ring which is gone harms no other one. */
  #next = FIRST_OFFSET;
  #leaving = false;
  #ending = false;

  /** `ledger` is charged. */
  constructor(ledger: QuotaLedger) {
    this.#ledger = ledger;
  }

  /** A ring of `mappedBytes` zero bytes, in memory of `memoryBytes` at least. ENOMEM. */
  create(mappedBytes: number, memoryBytes: number): Ring {
    const lengthBytes = pagesOf(Math.max(mappedBytes, memoryBytes)) * PAGE_BYTES;
    this.#ledger.take('sharedBytes', lengthBytes);
    const key = this.#next;
    try {
      const memory = this.#map(key, lengthBytes);
      const ring: Ring = { key, mappedBytes, memory, view: memory.view };
      this.#rings.set(key, ring);
      this.#next += Math.ceil(lengthBytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
      return ring;
    } catch (error) {
      this.#ledger.give('sharedBytes', lengthBytes);
      throw error;
    }
  }

  /** Releases a ring, whose bytes are zero from then on for a program that maps it. */
  release(ring: Ring): void {
    this.#rings.delete(ring.key);
    if (!this.#leaving && !this.#ending) ring.memory.clear();
    ring.memory.release();
    this.#ledger.share?.give('mappings');
    this.#ledger.give('sharedBytes', ring.memory.lengthBytes);
  }

  /**
   * Releases no longer clear rings: a program that outlives the daemon finishes the work in them.
   */
  leave(): void {
    this.#leaving = true;
  }

  /** All rings are about to be released: the whole file is cleared in their place, when it is closed. */
  end(): void {
    this.#ending = true;
  }

  /** The answer to a request for the file. ENOMEM. */
  send(): KernelReply {
    const { descriptor } = this.#opened();
    return { status: 0, attach: (send) => send(descriptor) };
  }

  /** Closes the file, once every ring is released. */
  close(): void {
    if (this.#file === undefined) return;
    if (!this.#leaving) this.#file.clear();
    this.#file.close();
    this.#file = undefined;
    this.#ledger.share?.give('descriptors');
  }

  /** Bytes of shared memory behind all rings. */
  get heldBytes(): number {
    let held = 0;
    for (const { memory } of this.#rings.values()) held += memory.lengthBytes;
    return held;
  }

  /** Checks every ring, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    let end = FIRST_OFFSET;
    for (const [key, ring] of this.#rings) {
      assert(ring.key === key, 'a ring is found by its key');
      assert(key % ALIGNMENT_BYTES === 0 && key >= end, 'rings do not overlap');
      assert(ring.mappedBytes <= ring.view.length, 'a ring has the bytes that are mapped');
      end = key + ring.view.length;
    }
    assert(end <= this.#next || this.#rings.size === 0, 'the next ring lies behind all others');
  }

  #map(offset: number, lengthBytes: number): SharedMemory {
    try {
      return takeFor(this.#ledger.share, ['mappings'], () => {
        return this.#opened().map(offset, lengthBytes);
      });
    } catch (error) {
      throw asVerbsError(error);
    }
  }

  #opened(): SharedFile {
    try {
      this.#file ??= takeFor(this.#ledger.share, ['descriptors'], () => new SharedFile('iwarpd'));
      return this.#file;
    } catch (error) {
      throw asVerbsError(error);
    }
  }
}

function asVerbsError(error: unknown): unknown {
  return error instanceof SystemCallError ? new VerbsError('ENOMEM', error.message) : error;
}

function pagesOf(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES);
}
