/**
 * The rings of one open device, in one file: the program's descriptor of the device refers to it, so
 * the offset of a ring is the offset at which the program maps it, with a plain mmap(2).
 *
 * The daemon maps large parts of the file, each with many small rings. A mapping costs system calls when
 * it is made, when it is released and when it is garbage-collected: those of ten thousand queue pairs
 * would take a hundred milliseconds at once.
 */
import { assert } from '#base/assert';
import { VerbsError } from '#contract/verbs/errors';
import { SystemCallError } from '#native-bridge/libc/libc';
import {
  SharedFile,
  type SharedMemory,
  SYSTEM_PAGE_BYTES,
} from '#native-bridge/libc/shared-memory';
import { takeFor } from '../clients/objects/daemon-budget.ts';
import type { RingSource } from '../clients/objects/queue-rings.ts';
import type { QuotaLedger } from '../clients/objects/quotas.ts';
import type { KernelReply } from './kernel-file.ts';

export const PAGE_BYTES = 4096;
/** Rings begin at multiples of this: programs map whole pages. */
const ALIGNMENT_BYTES = Math.max(PAGE_BYTES, SYSTEM_PAGE_BYTES);
/**
 * Offset of the first ring. siw's provider takes the offset 0x90000 for an error; lower offsets would
 * be overwritten by a write(2) that bypasses the preload library.
 */
const FIRST_OFFSET = 0xa_0000;

/** Length of the first part; each later one is twice as long as the one before, up to a maximum. */
const FIRST_PART_BYTES = 64 * 1024;
const LAST_PART_BYTES = 2 ** 20;
/** Longest ring in a shared part; longer ones get a separate part. */
const SHARED_MAX_BYTES = LAST_PART_BYTES / 4;

interface MappedPart {
  readonly start: number;
  readonly memory: SharedMemory;
  rings: number;
}

export interface Ring {
  /** The offset that the program passes to mmap. */
  readonly key: number;
  /** Bytes that the program maps; the memory may extend beyond their last page. */
  readonly mappedBytes: number;
  /** All bytes of the memory: whole pages. */
  readonly view: Uint8Array;
  readonly part: MappedPart;
}

export class RingMappings implements RingSource<Ring> {
  readonly #ledger: QuotaLedger;
  readonly #rings = new Map<number, Ring>();
  #file: SharedFile | undefined;
  /** Offset of the next part. */
  #end = FIRST_OFFSET;
  #nextPartBytes = FIRST_PART_BYTES;
  /** The part with space for small rings; and the offset of the next ring. */
  #part: MappedPart | undefined;
  /** Offsets are never reused: a program that still maps a destroyed ring harms no other ring. */
  #next = FIRST_OFFSET;
  #leaving = false;
  #ending = false;

  /** `ledger` is charged. */
  constructor(ledger: QuotaLedger) {
    this.#ledger = ledger;
  }

  create(mappedBytes: number, memoryBytes: number): Ring {
    const lengthBytes = pagesOf(Math.max(mappedBytes, memoryBytes)) * PAGE_BYTES;
    const place = () => this.#place(mappedBytes, lengthBytes);
    try {
      const ring = this.#ledger.takeFor('sharedBytes', lengthBytes, place);
      this.#rings.set(ring.key, ring);
      return ring;
    } catch (error) {
      throw asVerbsError(error);
    }
  }

  /** Releases a ring; a program that still maps it reads zeros. */
  release(ring: Ring): void {
    const { key, view, part } = ring;
    this.#rings.delete(key);
    part.rings -= 1;
    // Keep the part with space for the next rings.
    if (part.rings === 0 && part !== this.#part) this.#unmap(part);
    else if (!this.#leaving && !this.#ending) {
      part.memory.clearPart(key - part.start, view.length);
    }
    this.#ledger.give('sharedBytes', view.length);
  }

  /**
   * Rings released from now on are not cleared: a program that outlives the daemon finishes its work
   * in them.
   */
  leave(): void {
    this.#leaving = true;
  }

  /** All rings are about to be released: clear each part at once. */
  end(): void {
    this.#ending = true;
  }

  /** The reply to a request for the file. ENOMEM. */
  send(): KernelReply {
    const { descriptor } = this.#opened();
    return { status: 0, attach: (send) => send(descriptor) };
  }

  /** Closes the file, once every ring is released. */
  close(): void {
    if (this.#part !== undefined) this.#unmap(this.#part);
    this.#part = undefined;
    if (this.#file === undefined) return;
    if (!this.#leaving) this.#file.clear();
    this.#file.close();
    this.#file = undefined;
    this.#ledger.share?.give('descriptors');
  }

  /** Bytes of shared memory of all rings. */
  get heldBytes(): number {
    let held = 0;
    for (const { view } of this.#rings.values()) held += view.length;
    return held;
  }

  /** Checks every ring, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    let end = FIRST_OFFSET;
    const rings = [...this.#rings.values()].sort((one, other) => one.key - other.key);
    const counts = new Map<MappedPart, number>();
    for (const { key, mappedBytes, view, part } of rings) {
      assert(this.#rings.get(key)?.view === view, 'ring filed under another key');
      assert(key % ALIGNMENT_BYTES === 0 && key >= end, 'rings overlap');
      assert(mappedBytes <= view.length, 'ring shorter than its mapping');
      end = key + view.length;
      const isInside = key >= part.start && end <= part.start + part.memory.lengthBytes;
      assert(isInside, 'ring outside its part of the file');
      counts.set(part, (counts.get(part) ?? 0) + 1);
    }
    for (const [part, count] of counts) assert(part.rings === count, 'wrong count of rings');
    assert(end <= this.#end, 'next part overlaps a ring');
  }

  #place(mappedBytes: number, lengthBytes: number): Ring {
    const takenBytes = Math.ceil(lengthBytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
    const isShared = takenBytes <= SHARED_MAX_BYTES;
    const part = isShared ? this.#partFor(takenBytes) : this.#map(takenBytes);
    const key = isShared ? this.#next : part.start;
    try {
      this.#opened().reserve(key, takenBytes);
    } catch (error) {
      if (!isShared) this.#unmap(part);
      throw error;
    }
    if (isShared) this.#next += takenBytes;
    part.rings += 1;
    const at = key - part.start;
    return { key, mappedBytes, view: part.memory.view.subarray(at, at + lengthBytes), part };
  }

  /** A part with room for `takenBytes` at `#next`. */
  #partFor(takenBytes: number): MappedPart {
    const part = this.#part;
    if (part !== undefined) {
      const end = part.start + part.memory.lengthBytes;
      if (this.#next + takenBytes <= end) return part;
    }
    while (this.#nextPartBytes < takenBytes) this.#nextPartBytes *= 2;
    const next = this.#map(this.#nextPartBytes);
    this.#nextPartBytes = Math.min(2 * this.#nextPartBytes, LAST_PART_BYTES);
    if (part?.rings === 0) this.#unmap(part);
    this.#part = next;
    this.#next = next.start;
    return next;
  }

  /** Maps the next part of the file. Throws `SystemCallError` and the limit's error. */
  #map(lengthBytes: number): MappedPart {
    const memory = takeFor(this.#ledger.share, ['mappings'], () => {
      return this.#opened().map(this.#end, lengthBytes);
    });
    const part: MappedPart = { start: this.#end, memory, rings: 0 };
    this.#end += lengthBytes;
    return part;
  }

  /** Releases a part without rings. */
  #unmap(part: MappedPart): void {
    if (!this.#leaving) part.memory.clear();
    part.memory.release();
    this.#ledger.share?.give('mappings');
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
