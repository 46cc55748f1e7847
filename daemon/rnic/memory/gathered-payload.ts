/**
 * Payload that a send queue has gathered since its wire last asked whether it is complete: finds
 * the work request whose memory is gone.
 */

import type { SendWqe } from '../rings/send-wqe.ts';
import { AccessRefusal } from '../wire-port.ts';
import type { DeferredReads } from './deferred-reads.ts';

interface Piece {
  wqe: SendWqe;
  offset: number;
  length: number;
  target: Uint8Array;
  start: number;
}

export class GatheredPayload {
  /**
   * After `finish` fails: the work request whose memory is gone, or undefined if that memory
   * belongs to no work request.
   */
  failed: SendWqe | undefined = undefined;
  readonly #deferred: DeferredReads;
  /** The first `#count` are gathered; the rest are kept for reuse. */
  readonly #pieces: Piece[] = [];
  #count = 0;

  /** `deferred` may have bytes of other readers to fetch. */
  constructor(deferred: DeferredReads) {
    this.#deferred = deferred;
  }

  /** Like `SendWqe.gather`; the bytes may be missing until `finish`. */
  gather(
    wqe: SendWqe,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): AccessRefusal {
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

  /** Fetches all deferred bytes, those of other readers included. Returns true if none is lost. */
  finish(): boolean {
    const count = this.#count;
    this.#count = 0;
    this.failed = undefined;
    if (this.#deferred.fetch()) return true;
    for (let index = 0; index < count; index += 1) {
      const { wqe, offset, length, target, start } = this.#pieces[index] as Piece;
      if (wqe.gather(offset, length, target, start) !== AccessRefusal.none) {
        this.failed = wqe;
        break;
      }
    }
    return false;
  }
}
