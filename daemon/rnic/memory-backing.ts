/**
 * How the NIC reaches the bytes of a memory region: its "DMA".
 *
 * Offsets count from the backing's first byte and have been checked against the registration
 * before any call. The NIC never keeps a view beyond a call.
 */
import type { MemoryTier } from '../../verbs-api/contract/verbs/provider.ts';

/** Bytes somewhere, readable and writable by offset. */
export interface MemoryBacking {
  readonly tier: MemoryTier;
  /**
   * Direct view of all bytes when the memory is mapped here ('local', 'shared'); else undefined.
   */
  readonly view: Uint8Array | undefined;
  /**
   * True when `read(offset, length)` is possible now. False while the bytes are being fetched;
   * `onReady` is called later, never during this call (agent tier only).
   */
  prepareRead(offset: number, length: number): boolean;
  /** Copies bytes into `target`. False when the memory is gone. */
  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean;
  /** Copies `length` bytes from `bytes` at `start`. False when the memory is gone. */
  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean;
  /**
   * As `write`, but may leave the bytes where they are until `flush`: for memory that is reached by
   * a system call, so one call writes many segments. Undefined where that gains nothing.
   */
  writeLater?(offset: number, bytes: Uint8Array, start: number, length: number): boolean;
  /**
   * Performs the writes that `writeLater` deferred. False when any since the last call was lost.
   */
  flush?(): boolean;
  /** Writes accepted but not yet in the owner's memory (agent tier); CQEs behind them wait. */
  readonly pendingWrites: number;
  /**
   * True while so much data waits to reach the owner's memory that peers should pause (agent tier);
   * `onReady` is called when they may continue. Undefined for memory without this limit.
   */
  readonly congested?: boolean;
  /** True once an accepted write has failed. */
  readonly writeLost?: boolean;
  /** After a failed access: true when the process that owns the memory has ended. */
  readonly ownerGone?: boolean;
  /** Set by the NIC: resumes QPs that wait for these bytes, and releases held CQEs. */
  onReady: (() => void) | undefined;
}

/** Below this many bytes a loop beats `set`, which needs a view of its source (measured). */
const LOOP_COPY_MAX = 16;

/** Copies `length` bytes; both ranges lie inside their arrays. */
export function copyBytes(
  source: Uint8Array,
  sourceStart: number,
  length: number,
  target: Uint8Array,
  targetStart: number,
): void {
  if (length > LOOP_COPY_MAX) {
    target.set(source.subarray(sourceStart, sourceStart + length), targetStart);
    return;
  }
  for (let index = 0; index < length; index += 1) {
    target[targetStart + index] = source[sourceStart + index] ?? 0;
  }
}

/** A backing mapped into this process: ordinary or shared memory. */
export class ViewBacking implements MemoryBacking {
  readonly tier: MemoryTier;
  readonly view: Uint8Array;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;

  /** The backing keeps `bytes` alive. */
  constructor(bytes: Uint8Array, tier: MemoryTier = 'local') {
    this.view = bytes;
    this.tier = tier;
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    // A detached or shrunk buffer is memory that is gone, not a reason to throw.
    if (offset + length > this.view.length) return false;
    copyBytes(this.view, offset, length, target, targetStart);
    return true;
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    if (offset + length > this.view.length) return false;
    copyBytes(bytes, start, length, this.view, offset);
    return true;
  }
}
