/**
 * Payload that stays in its memory while packets with it are delivered within a host: the receiver's memory takes
 * it from there, with one copy. A part of the packets' buffer stands for it.
 */
import type { PayloadReader } from './deferred-reads.ts';
import type { Copier, CopyTaker, Lender, LentMessage, MemoryBacking } from './memory-backing.ts';

/** Payload of a packet from which it is lent: below, an order and its result cost more than the second copy. */
export const LENT_BYTES_MIN = 32_768;

/** Bytes that a stream may lend at the same time: enough for copies of several messages to overlap with the rest. */
const LENT_BYTES_MAX = 2_097_152;

/** Receives lent payload. */
export interface LentTaker extends CopyTaker {
  /** A copy was ordered, which `copier` makes. */
  copyOrdered(copier: Copier): void;
}

/** Where the receiver's memory finds payload that parts of some bytes stand for. */
export interface LentSource {
  /** True if the byte at `start` stands for another one. */
  covers(bytes: Uint8Array, start: number): boolean;
  /** Orders copies of what these bytes stand for to `offset` of `target`. Returns false if memory is gone. */
  copyTo(
    target: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    taker: LentTaker,
  ): boolean;
}

/** Where payload is lent. */
export interface LendingPath extends PayloadReader {
  /** Pieces lent that are not delivered. */
  readonly count: number;
  /** Payload read from now on belongs to this message. */
  begin(lender: Lender, message: LentMessage): void;
  /** The latest pieces are not sent: `count` remain. */
  withdraw(count: number): void;
}

interface Piece {
  start: number;
  length: number;
  backing: MemoryBacking;
  offset: number;
  lender: Lender;
  message: LentMessage;
  copier: Copier;
}

const NO_LENDER: Lender = { lent: 0, returned: () => undefined, lendingFailed: () => undefined };
const NO_MESSAGE: LentMessage = { lent: 0 };

export class LentPayload implements LentSource, LendingPath {
  /** Payload of a packet from which it is lent. Simulations lend less. */
  bytesMin = LENT_BYTES_MIN;
  /** Payload that each stream may lend at the same time. */
  bytesMax = LENT_BYTES_MAX;
  #lender: Lender = NO_LENDER;
  #message = NO_MESSAGE;
  #bytes: Uint8Array | undefined = undefined;
  /** By ascending start. */
  readonly #pieces: Piece[] = [];

  get count(): number {
    return this.#pieces.length;
  }

  begin(lender: Lender, message: LentMessage): void {
    this.#lender = lender;
    this.#message = message;
  }

  withdraw(count: number): void {
    for (const { lender } of this.#pieces.splice(count)) lender.lent -= 1;
  }

  /** Makes part of `target` stand for bytes of `backing`, which are lent from now on. */
  read(
    backing: MemoryBacking,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): boolean {
    const copier = backing.lender;
    if (copier === undefined) return false;
    const lender = this.#lender;
    const message = this.#message;
    this.#bytes = target;
    this.#pieces.push({ start, length, backing, offset, lender, message, copier });
    lender.lent += 1;
    return true;
  }

  covers(bytes: Uint8Array, start: number): boolean {
    if (bytes !== this.#bytes) return false;
    return this.#pieces.some((piece) => start >= piece.start && start < piece.start + piece.length);
  }

  copyTo(
    target: MemoryBacking,
    offset: number,
    _bytes: Uint8Array,
    start: number,
    length: number,
    taker: LentTaker,
  ): boolean {
    const end = start + length;
    for (const piece of this.#pieces) {
      const { start: first, backing, lender, message, copier } = piece;
      const from = Math.max(start, first);
      const size = Math.min(end, first + piece.length) - from;
      if (size <= 0) continue;
      const parties = { lender, message, taker };
      const to = offset + from - start;
      const at = piece.offset + from - first;
      if (target.copyFrom?.(to, backing, at, size, parties) !== true) return false;
      lender.lent += 1;
      taker.copyOrdered(copier);
    }
    return true;
  }

  /** The packets are delivered, or dropped: only copies lend from now on. */
  clear(): void {
    if (this.#pieces.length === 0) return;
    let onReady: (() => void) | undefined;
    for (const { lender, backing } of this.#pieces) {
      lender.lent -= 1;
      // Otherwise a copy reports it.
      if (lender.lent === 0) onReady = backing.onReady;
    }
    this.#pieces.length = 0;
    this.#bytes = undefined;
    onReady?.();
  }
}
