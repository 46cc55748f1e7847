/**
 * Payload of short sends, read together: memory that is reached by system calls costs as much for a few
 * bytes as for a page. With the payload of one work request comes what lies behind it on the same
 * page, and serves those that were posted by then: a program may not change their buffers until they
 * complete.
 *
 * A work request with a fence may send what a Read before it wrote, so it and those behind it read anew.
 */
import type { MemoryBacking } from './memory-backing.ts';

/** Longest payload that is served from here; longer ones are worth a call of their own. */
const AHEAD_PAYLOAD_MAX_BYTES = 256;
/** Bytes that are read at once. */
const AHEAD_BYTES = 4096;

/** Reads without bytes for others that follow one which served no other. */
const PLAIN_READS = 16;

const NO_BYTES = new Uint8Array(0);

/** The work requests that are posted. */
interface Posted {
  /** Index of the next element, modulo 2^32. */
  readonly index: number;
  ready(): boolean;
  readyCount(): number;
}

/** What one send queue has read. */
export class ReadAhead {
  readonly #posted: Posted;
  #backing: MemoryBacking | undefined = undefined;
  #bytes = NO_BYTES;
  #from = 0;
  #end = 0;
  /** Work requests before this index were posted when the bytes were read. */
  #limit = 0;
  /** The bytes have served another work request than the one that they were read for. */
  #served = true;
  /** Reads that are still to be plain. */
  #plain = 0;
  /** Index of the work request that is gathered. */
  #order = 0;

  constructor(posted: Posted) {
    this.#posted = posted;
  }

  /** The work request of this index is gathered from here on. */
  aim(order: number): this {
    this.#order = order;
    return this;
  }

  /** Later work requests read anew. */
  forget(): void {
    this.#backing = undefined;
  }

  /** Copies the bytes into `target`. False when the memory is gone. */
  read(
    backing: MemoryBacking,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): boolean {
    if (length > AHEAD_PAYLOAD_MAX_BYTES) return backing.read(offset, length, target, start);
    if (this.#has(backing, offset, length)) this.#served = true;
    else if (!this.#fetch(backing, offset, length)) {
      return backing.read(offset, length, target, start);
    }
    const bytes = this.#bytes;
    const at = offset - this.#from;
    for (let index = 0; index < length; index += 1) target[start + index] = bytes[at + index] ?? 0;
    return true;
  }

  #has(backing: MemoryBacking, offset: number, length: number): boolean {
    if (this.#backing !== backing || offset < this.#from || offset + length > this.#end)
      return false;
    return ((this.#limit - this.#order) | 0) > 0;
  }

  /** False if that gains nothing, or cannot be done. */
  #fetch(backing: MemoryBacking, offset: number, length: number): boolean {
    const posted = this.#posted;
    const wholeBytes = backing.bytesAhead?.(offset) ?? 0;
    if (wholeBytes <= length || !posted.ready()) return false;
    if (!this.#served) {
      this.#served = true;
      this.#plain = PLAIN_READS;
    }
    if (this.#plain > 0) {
      this.#plain -= 1;
      return false;
    }
    if (this.#bytes.length === 0) this.#bytes = new Uint8Array(AHEAD_BYTES);
    // Counted first: what is posted while the bytes are read may be younger than they are.
    const limit = (posted.index + posted.readyCount()) >>> 0;
    const ahead = Math.min(wholeBytes, AHEAD_BYTES);
    this.#backing = undefined;
    if (!backing.read(offset, ahead, this.#bytes, 0)) return false;
    this.#backing = backing;
    this.#from = offset;
    this.#end = offset + ahead;
    this.#limit = limit;
    this.#served = false;
    return true;
  }
}
