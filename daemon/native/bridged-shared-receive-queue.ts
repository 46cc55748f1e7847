/**
 * A shared receive queue of a native device: moves receives from the client's ring to the device.
 */
import { RQE, RQE_BYTES } from '#contract/protocol/queue-layout';
import type { SRQAttributes } from '#contract/verbs/attributes';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { DeviceSRQ } from '../host/served-device.ts';
import type { SRQInit } from '../rnic/queues/shared-receive-queue.ts';
import { ElementRing } from '../rnic/rings/ring.ts';
import { giveBack } from './give-back.ts';
import type { LowerSRQ } from './lower.ts';
import { ReceivePoster } from './receive-poster.ts';
import { BATCH } from './request-number.ts';

export class BridgedSRQ implements DeviceSRQ {
  tag: unknown;
  readonly lower: LowerSRQ;
  readonly count: number;
  readonly receives: ReceivePoster;
  /** Queue pairs that receive from it. */
  users = 0;
  readonly #init: SRQInit;
  readonly #onClose: () => void;
  #closed = false;

  /** `ring` has `rqBytes(count)` bytes. */
  constructor(
    lower: LowerSRQ,
    init: SRQInit,
    ring: Uint8Array,
    count: number,
    onClose: () => void,
  ) {
    this.lower = lower;
    this.tag = init.tag;
    this.count = count;
    this.#init = init;
    this.#onClose = onClose;
    this.receives = new ReceivePoster({
      ring: new ElementRing(ring, 0, count, RQE_BYTES, RQE.flags),
      maxSge: init.maxSge,
      // A receive whose queue pair is gone never completes: only the device knows how many it holds.
      capacity: Number.POSITIVE_INFINITY,
      post: (requests) => lower.postRecv(requests),
      // There is no completion queue to report it to: the receive is lost, like an empty one.
      onRefused: () => undefined,
    });
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Posts a batch of the client's ring. Returns true if there may be more. */
  pump(): boolean {
    return !this.#closed && this.receives.pump() === BATCH;
  }

  /** Like `pump`; the rest has its own doorbell. */
  takeReceives(): void {
    this.pump();
  }

  modify({ srqLimit }: { readonly srqLimit: number }): void {
    if (!Number.isInteger(srqLimit) || srqLimit < 0 || srqLimit > this.count) {
      throw invalid(`the limit must be 0 to ${this.count}, not ${srqLimit}`);
    }
    this.lower.setLimit(srqLimit);
  }

  query(): SRQAttributes {
    const { srqLimit } = this.lower.query();
    return { maxWr: this.#init.maxWr, maxSge: this.#init.maxSge, srqLimit };
  }

  close(): void {
    if (this.#closed) return;
    if (this.users > 0) throw new VerbsError('EBUSY', 'queue pairs still receive from the queue');
    this.#closed = true;
    this.#onClose();
    giveBack(() => this.lower.dispose());
  }
}
