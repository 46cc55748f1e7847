/**
 * Reads the payloads of short sends together: where each read is a system call, a few bytes cost as
 * much as a page. A read returns one work request's payload and the bytes after it on the same page.
 * These serve the work requests posted by then, whose buffers a program may not change until they
 * complete.
 *
 * A fenced work request may send the result of an earlier Read, so it and later ones need a new read.
 */
import type { MemoryBacking } from './memory-backing.ts';

/** Longest payload to read ahead; longer ones justify a system call. */
const AHEAD_PAYLOAD_MAX_BYTES = 256;
/** Bytes per read. */
const AHEAD_BYTES = 4096;

/** Number of reads without extra bytes, after extra bytes that no other work request used. */
const PLAIN_READS = 16;

const NO_BYTES = new Uint8Array(0);

interface Posted {
  /** Index of the next element, modulo 2^32. */
  readonly index: number;
  ready(): boolean;
  readyCount(): number;
}

export class ReadAhead {
  readonly #posted: Posted;
  #backing: MemoryBacking | undefined = undefined;
  #bytes = NO_BYTES;
  #from = 0;
  #end = 0;
  /** Work requests before this index were posted when the bytes were read. */
  #limit = 0;
  /** True if a work request other than the one that caused the read has used the bytes. */
  #served = true;
  /** Remaining reads without extra bytes. */
  #plain = 0;
  /** Index of the work request being gathered. */
  #order = 0;

  constructor(posted: Posted) {
    this.#posted = posted;
  }

  /** Sets the index of the work request to gather. */
  aim(order: number): this {
    this.#order = order;
    return this;
  }

  /** Drops the bytes: later work requests need a new read. */
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

  /** Returns false if there is no gain or the read fails. */
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
    // Count first: work posted during the read may be newer than the bytes.
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
