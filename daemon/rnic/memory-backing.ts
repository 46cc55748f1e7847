/**
 * How the NIC reaches the octets of a memory region: its "DMA".
 *
 * Offsets count from the backing's first octet and have been checked against the registration
 * before any call. The NIC never keeps a view beyond a call.
 */
import type { MemoryTier } from '../../verbs-api/contract/provider.ts';

/** Octets somewhere, readable and writable by offset. */
export interface MemoryBacking {
  readonly tier: MemoryTier;
  /** Direct view of all octets when the memory is mapped here ('local', 'shared'); else undefined. */
  readonly view: Uint8Array | undefined;
  /**
   * True when `read(offset, length)` can be done now. False while the octets are being fetched;
   * `onReady` fires later, never from inside this call (agent tier only).
   */
  prepareRead(offset: number, length: number): boolean;
  /** Copies octets into `target`. False when the memory is gone. */
  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean;
  /** Copies `length` octets from `octets` at `start`. False when the memory is gone. */
  write(offset: number, octets: Uint8Array, start: number, length: number): boolean;
  /**
   * As `write`, but the octets may be kept where they are until `flush`: for memory that is reached
   * by a system call, so that one call does for many segments. Undefined where nothing is gained.
   */
  writeLater?(offset: number, octets: Uint8Array, start: number, length: number): boolean;
  /** Carries out what `writeLater` kept. False when memory is gone. */
  flush?(): boolean;
  /** Writes accepted but not yet in the owner's memory (agent tier); CQEs behind them wait. */
  readonly pendingWrites: number;
  /** After a refused access: true when the process whose memory it is has ended. */
  readonly ownerGone?: boolean;
  /** Set by the NIC: lets QPs that wait for these octets go on, and releases held CQEs. */
  onReady: (() => void) | undefined;
}

/** Below this many octets a loop beats `set`, which needs a view of its source (measured). */
const LOOP_COPY_MAX = 16;

/** Copies `length` octets; both ranges lie inside their arrays. */
export function copyOctets(
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

/** A backing that is mapped here: ordinary or shared memory. */
export class ViewBacking implements MemoryBacking {
  readonly tier: MemoryTier;
  readonly view: Uint8Array;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;

  /** `octets` is held as long as the backing. */
  constructor(octets: Uint8Array, tier: MemoryTier = 'local') {
    this.view = octets;
    this.tier = tier;
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    // A detached or shrunk buffer is memory that went away, not a reason to throw.
    if (offset + length > this.view.length) return false;
    copyOctets(this.view, offset, length, target, targetStart);
    return true;
  }

  write(offset: number, octets: Uint8Array, start: number, length: number): boolean {
    if (offset + length > this.view.length) return false;
    copyOctets(octets, start, length, this.view, offset);
    return true;
  }
}
