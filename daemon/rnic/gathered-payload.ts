/**
 * What a send queue has gathered since its wire last asked whether it is all there, so that the work
 * request whose memory is gone can be told from the others.
 */
import type { DeferredReads } from './deferred-reads.ts';
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

export class GatheredPayload {
  /** The work request whose memory is gone, after `finish` has failed; undefined if it is none's. */
  failed: SendWqe | undefined = undefined;
  readonly #deferred: DeferredReads;
  /** The first `#count` are gathered; the others are kept to be used again. */
  readonly #pieces: Piece[] = [];
  #count = 0;

  /** `deferred` may have other bytes to fetch. */
  constructor(deferred: DeferredReads) {
    this.#deferred = deferred;
  }

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

  /** True when all bytes are in their targets now, those of others among them. */
  finish(): boolean {
    const count = this.#count;
    this.#count = 0;
    this.failed = undefined;
    if (this.#deferred.fetch()) return true;
    for (let index = 0; index < count; index += 1) {
      const { wqe, offset, length, target, start } = this.#pieces[index] as Piece;
      if (wqe.gather(offset, length, target, start) !== Fault.none) {
        this.failed = wqe;
        break;
      }
    }
    return false;
  }
}
