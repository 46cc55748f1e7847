/**
 * Payload that one stream lends to its peer on the same host: it stays in the sender's memory while parts of the
 * stream's output stand for it, and the receiver's memory takes it from there, with one copy.
 *
 * Unlike packets, output may wait for its reader. If its bytes are needed before (a capture or fault inspects them, the
 * peer's memory takes no copies, or the sender's program gets its memory back), they are fetched into the output
 * (`recall`). Such bytes are placed at once, so they may not be delivered before earlier copies are over (`waits`).
 */
import { assert } from '#base/assert';
import type { Loans } from '../wire-port.ts';
import type { LendingPath, LentSource, LentTaker } from './lent-payload.ts';
import type {
  Copier,
  CopyEnd,
  CopyParties,
  Lender,
  LentMessage,
  MemoryBacking,
} from './memory-backing.ts';

/** The longest copy, see `copy-ring.ts`. */
const COPY_BYTES_MAX = 65_536;

/** Whether a connection carries lent payload. */
interface HostPath {
  /** Both ends are on this host, nothing inspects the bytes, and the peer's memory takes copies. */
  readonly lends: boolean;
}

/** Who sends. */
interface LendingUser {
  /** Payload of this message could not be read. */
  lendingFailed(message: object): void;
}

interface Piece {
  readonly bytes: Uint8Array;
  readonly start: number;
  readonly length: number;
  readonly backing: MemoryBacking;
  readonly offset: number;
  readonly message: LentMessage;
  readonly copier: Copier;
}

/** A copy that is not posted yet: the next piece may extend it. */
interface Order {
  readonly target: MemoryBacking;
  readonly to: number;
  readonly backing: MemoryBacking;
  readonly at: number;
  length: number;
  readonly parties: CopyParties;
}

export class LentStream implements Loans, LentSource, LendingPath, Lender {
  /** Pieces in the output, and copies that are not over. */
  lent = 0;
  /** Payload could not be read: what is not delivered yet never may be. */
  failed = false;
  /** Who sends; undefined once the result of its last copies does not matter. */
  user: LendingUser | undefined = undefined;
  #message: LentMessage | undefined = undefined;
  readonly #path: HostPath;
  /** In stream order. */
  readonly #pieces: Piece[] = [];
  #order: Order | undefined = undefined;
  /** Who makes the copies. */
  #copier: Copier | undefined = undefined;
  #copying = 0;
  #lentBytes = 0;
  /** Output has bytes of its own that must not overtake copies. */
  #recalled = false;
  #waiting: (() => void)[] = [];

  constructor(path: HostPath) {
    this.#path = path;
  }

  /** True if more payload may be lent while less than `bytesMax` is. */
  isOpen(bytesMax: number): boolean {
    if (this.failed || this.#recalled || this.#lentBytes >= bytesMax) return false;
    return this.#path.lends;
  }

  /** Pieces that the output stands for. */
  get count(): number {
    return this.#pieces.length;
  }

  get waits(): boolean {
    return this.#recalled && this.#copying > 0;
  }

  /** The connection is to end: does not leave copies to a slow program, unless it has begun them. */
  hasten(): void {
    if (this.#copying > 0) this.#copier?.hasten(this);
  }

  whenCopied(run: () => void): void {
    this.#waiting.push(run);
  }

  // Sending

  begin(lender: LendingUser, message: LentMessage): void {
    this.user = lender;
    this.#message = message;
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
    const message = this.#message;
    if (copier === undefined || message === undefined) return false;
    this.#pieces.push({ bytes: target, start, length, backing, offset, message, copier });
    this.#add(message, length);
    return true;
  }

  /** The latest pieces are not sent: `count` remain. */
  withdraw(count: number): void {
    while (this.#pieces.length > count) this.#giveBack(this.#pieces.pop() as Piece);
  }

  /** The peer has read the first `end` bytes of `output`, the oldest: only copies lend them from now on. */
  delivered(output: Uint8Array, end: number): void {
    const pieces = this.#pieces;
    let count = 0;
    for (; count < pieces.length; count += 1) {
      const piece = pieces[count] as Piece;
      if (piece.bytes !== output || piece.start + piece.length > end) break;
      this.#giveBack(piece);
    }
    if (count === pieces.length) pieces.length = 0;
    else if (count > 0) pieces.splice(0, count);
  }

  /** The output is dropped. */
  drop(): void {
    this.withdraw(0);
  }

  recall(): void {
    const pieces = this.#pieces;
    if (pieces.length === 0) return;
    this.#recalled = this.#copying > 0;
    for (const { backing, offset, length, bytes, start, message } of pieces) {
      if (this.failed || backing.read(offset, length, bytes, start)) continue;
      this.lendingFailed(message);
    }
    this.withdraw(0);
  }

  // Receiving

  covers(bytes: Uint8Array, start: number): boolean {
    return this.#pieceAt(bytes, start) !== undefined;
  }

  copyTo(
    target: MemoryBacking,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
    taker: LentTaker,
  ): boolean {
    let done = 0;
    while (done < length) {
      const from = byteAt(bytes, start + done);
      const piece = this.#pieceAt(bytes, start + done);
      assert(piece !== undefined, 'lent payload and other bytes in one segment');
      const skip = from - byteAt(piece.bytes, piece.start);
      const size = Math.min(length - done, piece.length - skip);
      this.#copy(target, offset + done, piece, piece.offset + skip, size, taker);
      done += size;
    }
    return true;
  }

  /** Posts the last copy: nothing may extend it any more. */
  endDelivery(): void {
    const order = this.#order;
    if (order === undefined) return;
    this.#order = undefined;
    const { target, to, backing, at, length, parties } = order;
    if (target.copyFrom?.(to, backing, at, length, parties) === true) return;
    const { message, taker } = parties;
    this.returned(message, length);
    taker.copied('lost' satisfies CopyEnd);
  }

  #copy(
    target: MemoryBacking,
    to: number,
    piece: Piece,
    at: number,
    length: number,
    taker: LentTaker,
  ): void {
    const { backing, message, copier } = piece;
    const last = this.#order;
    // A message may be longer than a segment, so its pieces often follow each other.
    if (last !== undefined && continues(last, target, to, piece, at, length)) {
      last.length += length;
      this.#lentBytes += length;
      return;
    }
    this.endDelivery();
    this.#add(message, length);
    this.#copying += 1;
    taker.copyOrdered(copier);
    this.#copier = copier;
    const parties = { lender: this, message, taker };
    this.#order = { target, to, backing, at, length, parties };
  }

  #pieceAt(bytes: Uint8Array, start: number): Piece | undefined {
    const at = byteAt(bytes, start);
    for (const piece of this.#pieces) {
      if (piece.bytes.buffer !== bytes.buffer) continue;
      const distance = at - byteAt(piece.bytes, piece.start);
      if (distance >= 0 && distance < piece.length) return piece;
    }
    return undefined;
  }

  // Copies

  returned(message: LentMessage, length: number): void {
    this.lent -= 1;
    message.lent -= 1;
    this.#lentBytes -= length;
    this.#copying -= 1;
    if (this.#copying > 0) return;
    this.#recalled = false;
    if (this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const run of waiting) run();
  }

  lendingFailed(message: object): void {
    this.failed = true;
    this.user?.lendingFailed(message);
  }

  /** Throws `InvariantError` if its counts are wrong. */
  assertInvariants(): void {
    assert(this.lent === this.#pieces.length + this.#copying, 'lent payload counted wrongly');
    assert(this.#order === undefined, 'copy not posted');
    assert(this.lent > 0 || this.#lentBytes === 0, 'lent bytes without lent payload');
  }

  #add(message: LentMessage, length: number): void {
    this.lent += 1;
    message.lent += 1;
    this.#lentBytes += length;
  }

  #giveBack({ message, length }: Piece): void {
    this.lent -= 1;
    message.lent -= 1;
    this.#lentBytes -= length;
  }
}

function byteAt({ byteOffset }: Uint8Array, start: number): number {
  return byteOffset + start;
}

function continues(
  last: Order,
  target: MemoryBacking,
  to: number,
  { backing, message }: Piece,
  at: number,
  length: number,
): boolean {
  if (last.target !== target || last.backing !== backing) return false;
  if (last.parties.message !== message || last.length + length > COPY_BYTES_MAX) return false;
  return last.to + last.length === to && last.at + last.length === at;
}
