/**
 * How the NIC reaches the bytes of a memory region: its "DMA".
 *
 * Offsets count from the backing's first byte and have been checked against the registration
 * before any call. The NIC never keeps a view beyond a call.
 */
import type { MemoryTier } from '#contract/verbs/provider';

/** A message whose payload is lent. */
export interface LentMessage {
  /** Parts of its payload that are lent by a stream. */
  lent: number;
}

/** Who sends the payload of a copy. */
export interface Lender {
  /** Parts of its payload that are lent: to packets on their way, or to copies that are not over. */
  lent: number;
  /** A copy of this many bytes is over. */
  returned(message: LentMessage, length: number): void;
  /** A copy failed because payload of this message could not be read. */
  lendingFailed(message: object): void;
}

/** How a copy ended. */
export type CopyEnd =
  /** The bytes are in place. */
  | 'placed'
  /** They could not be written. */
  | 'lost'
  /** They could not be read, as if they had never arrived. */
  | 'unread';

/** Who receives it. */
export interface CopyTaker {
  /** The next copy is over, in the order in which they were ordered. */
  copied(end: CopyEnd): void;
}

/** Both ends of a copy. */
export interface CopyParties {
  readonly lender: Lender;
  /** The lender's name of the message. */
  readonly message: LentMessage;
  readonly taker: CopyTaker;
}

/** Copies registered memory of one process into other memory, in order. */
export interface Copier {
  /** The lender's program takes back its memory, once its copies are over. */
  hasten(lender: Lender): void;
  /** The taker's program takes back its memory: drops what has not begun. */
  abandon(taker: CopyTaker): void;
  /**
   * The taker's program withdraws rights, or its queue pair has failed: makes what has not begun at once. The
   * program's command gets no answer before all is over.
   */
  conclude(taker: CopyTaker): void;
}

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
  /**
   * Bytes prepared in this range may never be read. Later reads must not use them, since the owner
   * may change the memory first. Undefined if nothing is fetched.
   */
  abandonRead?(offset: number, length: number): void;
  /** Copies bytes into `target`. False when the memory is gone. */
  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean;
  /**
   * Like `read`, but may defer it until `flushReads`, so that one system call reads many pieces.
   * Undefined if there is no gain.
   */
  readLater?(offset: number, length: number, target: Uint8Array, targetStart: number): boolean;
  /**
   * How many bytes from `offset` one read gets at the cost of a few; 0 if the offset is not
   * covered. Undefined if a read costs no system call.
   */
  bytesAhead?(offset: number): number;
  /** Performs the reads that `readLater` deferred. False when any since the last call failed. */
  flushReads?(): boolean;
  /** Copies `length` bytes from `bytes` at `start`. False when the memory is gone. */
  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean;
  /**
   * Like `write`, but may defer it until `flush`, so that one system call writes many segments, even
   * of several queue pairs. Each passes itself as the `owner` of its segments. Undefined if there is
   * no gain.
   */
  writeLater?(
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    owner: object,
  ): boolean;
  /**
   * Performs the writes deferred by `writeLater`. Returns false if any of the owner's since its last
   * call was lost.
   */
  flush?(owner: object): boolean;
  /** Copies these bytes straight into other memory; undefined if that is impossible now. */
  readonly lender?: Copier | undefined;
  /** True if `copyFrom` is possible. */
  readonly takesCopies?: boolean;
  /**
   * Orders a copy of `length` bytes of `source`, which has a lender, at `sourceOffset`, into this memory. `taker`
   * is told later, after all earlier copies of that lender. Returns false if the memory is gone.
   */
  copyFrom?(
    offset: number,
    source: MemoryBacking,
    sourceOffset: number,
    length: number,
    parties: CopyParties,
  ): boolean;
  /** Accepted writes that have not reached the owner's memory (agent tier); later CQEs wait. */
  readonly pendingWrites: number;
  /**
   * True while so much data waits for the owner's memory that peers should pause (agent tier);
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

/** Up to this many bytes, words beat `set`, whose view of its source costs time and garbage. */
const WORD_COPY_MAX_BYTES = 192;

/** Copies `length` bytes, four at a time; for few bytes. Both ranges lie inside their views. */
function copyWords(
  source: DataView,
  sourceStart: number,
  length: number,
  target: DataView,
  targetStart: number,
): void {
  const paired = length - (length & 7);
  let at = 0;
  for (; at < paired; at += 8) {
    target.setInt32(targetStart + at, source.getInt32(sourceStart + at, true), true);
    target.setInt32(targetStart + at + 4, source.getInt32(sourceStart + at + 4, true), true);
  }
  for (; at < length; at += 1) {
    target.setUint8(targetStart + at, source.getUint8(sourceStart + at));
  }
}

/** Copies `length` bytes with one view of the source; both ranges lie inside their arrays. */
export function copyBytes(
  source: Uint8Array,
  sourceStart: number,
  length: number,
  target: Uint8Array,
  targetStart: number,
): void {
  target.set(source.subarray(sourceStart, sourceStart + length), targetStart);
}

/** Caches the view of one array: consecutive messages mostly share their input or output. */
class RecentView {
  #bytes: Uint8Array = new Uint8Array(0);
  #view: DataView = new DataView(this.#bytes.buffer);

  of(bytes: Uint8Array): DataView {
    if (bytes !== this.#bytes) {
      this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      this.#bytes = bytes;
    }
    return this.#view;
  }
}

/** For buffers of the wires. They are long-lived, so holding on to the latest leaks nothing. */
const INPUT = new RecentView();
const OUTPUT = new RecentView();

/** A backing mapped into this process: ordinary or shared memory. */
export class ViewBacking implements MemoryBacking {
  readonly tier: MemoryTier;
  readonly view: Uint8Array;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;
  readonly #words: DataView;

  /** The backing keeps `bytes` alive. */
  constructor(bytes: Uint8Array, tier: MemoryTier = 'local') {
    this.view = bytes;
    this.tier = tier;
    this.#words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    // A detached or shrunk buffer is lost memory, not a reason to throw.
    if (offset + length > this.view.length) return false;
    if (length > WORD_COPY_MAX_BYTES) copyBytes(this.view, offset, length, target, targetStart);
    else copyWords(this.#words, offset, length, OUTPUT.of(target), targetStart);
    return true;
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    if (offset + length > this.view.length) return false;
    if (length > WORD_COPY_MAX_BYTES) copyBytes(bytes, start, length, this.view, offset);
    else copyWords(INPUT.of(bytes), start, length, this.#words, offset);
    return true;
  }

  /** Copies `length` bytes from `source` to the start of the backing. Few bytes, and they fit. */
  take(source: DataView, sourceStart: number, length: number): void {
    copyWords(source, sourceStart, length, this.#words, 0);
  }
}
