/**
 * Places the responses to a queue pair's own Reads and atomics into the memory that its oldest
 * outstanding request named.
 */
import { CQEStatus } from '#contract/protocol/queue-layout';
import { type CauseHolder, MEMORY_GONE } from '../failure-cause.ts';
import { ATOMIC_WORD_BYTES } from '../memory/atomic-operation.ts';
import type { PeerAccess, PeerAccessHost } from '../memory/peer-access.ts';
import { distance } from '../memory/region-address.ts';
import type { ScatterList } from '../rings/scatter-list.ts';
import { AccessRefusal } from '../wire-port.ts';
import type { CompletionGate } from './completion-gate.ts';
import type { OutstandingRequest } from './outstanding.ts';
import type { SendQueue } from './send-queue.ts';

export class ResponseSink {
  readonly #host: PeerAccessHost;
  readonly #sendQueue: SendQueue;
  readonly #memory: PeerAccess;
  readonly #gate: CompletionGate;
  readonly #user: CauseHolder;

  constructor(
    host: PeerAccessHost,
    user: CauseHolder,
    sendQueue: SendQueue,
    memory: PeerAccess,
    gate: CompletionGate,
  ) {
    this.#host = host;
    this.#sendQueue = sendQueue;
    this.#memory = memory;
    this.#gate = gate;
    this.#user = user;
  }

  placeRead(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    const request = this.#sendQueue.oldestRequest;
    if (request === undefined || request.atomic) return AccessRefusal.stagInvalid;
    // RDMAP-5.2.2-06, RDMAP-5.2.2-07: only into the sink of the oldest read, and only while its owner
    // keeps it registered.
    const { sink } = request;
    if (stag !== request.sinkStag) return AccessRefusal.stagInvalid;
    if (sink.alive && toHi === 0xffffffff && toLo + length >= 2 ** 32) return AccessRefusal.toWrap;
    const offset = distance(toHi, toLo, request.sinkToHi, request.sinkToLo);
    return this.#place(request, offset, bytes, start, length);
  }

  placePart(offset: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    const request = this.#sendQueue.oldestRequest;
    if (request === undefined || request.atomic) return AccessRefusal.stagInvalid;
    return this.#place(request, offset, bytes, start, length);
  }

  #place(
    request: OutstandingRequest,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    const { sink, pieces } = request;
    if (pieces !== undefined) return this.#scatter(request, pieces, offset, bytes, start, length);
    if (!sink.alive) {
      this.#blame();
      return AccessRefusal.stagInvalid;
    }
    if (offset < 0 || offset + length > request.lengthBytes) return AccessRefusal.bounds;
    const position = request.sinkOffset + offset;
    this.#gate.kind = 'response';
    const refusal = this.#memory.place(sink.backing, position, bytes, start, length);
    if (refusal !== AccessRefusal.none) this.#blame();
    return refusal;
  }

  #scatter(
    request: OutstandingRequest,
    pieces: ScatterList,
    offset: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    if (offset < 0 || offset + length > request.lengthBytes) return AccessRefusal.bounds;
    this.#gate.kind = 'response';
    const refusal = pieces.scatter(this.#user.pd, offset, bytes, start, length, this.#gate);
    if (refusal !== AccessRefusal.none) this.#blame();
    return refusal;
  }

  /**
   * Places the result of an atomic, the oldest request, and completes it. Returns false if its memory
   * is gone: the request is blamed.
   */
  completeAtomic(request: OutstandingRequest, originalHi: number, originalLo: number): boolean {
    const { word, wordView } = this.#host;
    wordView.setUint32(0, originalLo, true);
    wordView.setUint32(4, originalHi, true);
    const { sink } = request;
    const placed =
      sink.alive &&
      this.#memory.write(sink.backing, request.sinkOffset, word, 0, ATOMIC_WORD_BYTES) ===
        AccessRefusal.none;
    if (placed) this.#sendQueue.requestCompleted();
    else this.#blame();
    return placed;
  }

  #blame(): void {
    this.#user.found = MEMORY_GONE;
    this.#sendQueue.blameOldestRequest(CQEStatus.locProtErr);
  }
}
