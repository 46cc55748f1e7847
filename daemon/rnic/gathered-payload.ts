/**
 * What a send queue has gathered since its wire last asked whether it is all there, so that the work
 * request whose memory is gone can be told from the others.
 */
import { DeferredReads } from './deferred-reads.ts';
import type { SendWqe } from './send-wqe.ts';
import { Fault } from './wire-port.ts';

/** One piece. */
interface Piece {
  wqe: SendWqe;
  offset: number;
  length: number;
  target: Uint8Array;
  start: number;
}

/** See the module's comment. */
export class GatheredPayload {
  readonly #deferred = new DeferredReads();
  /** The first `#count` are gathered; the others are kept to be used again. */
  readonly #pieces: Piece[] = [];
  #count = 0;

  /** As `SendWqe.gather`; the bytes may be missing until `finish`. */
  gather(wqe: SendWqe, offset: number, length: number, target: Uint8Array, start: number): Fault {
    const piece = this.#pieces[this.#count];
    this.#count += 1;
    if (piece === undefined) {
      this.#pieces.push({ wqe, offset, length, target, start });
    } else {
      piece.wqe = wqe;
      piece.offset = offset;
      piece.length = length;
      piece.target = target;
      piece.start = start;
    }
    return wqe.gather(offset, length, target, start, this.#deferred);
  }

  /** All bytes are in their targets now; else the first work request whose memory is gone. */
  finish(): SendWqe | undefined {
    const count = this.#count;
    this.#count = 0;
    if (this.#deferred.fetch()) return undefined;
    for (let index = 0; index < count; index += 1) {
      const { wqe, offset, length, target, start } = this.#pieces[index] as Piece;
      if (wqe.gather(offset, length, target, start) !== Fault.none) return wqe;
    }
    return undefined;
  }
}
