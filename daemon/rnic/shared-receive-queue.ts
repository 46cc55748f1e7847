/** The shared receive queue: one ring of receives for many queue pairs, with a limit event. */

import { RQE, RQE_BYTES } from '../../verbs-api/contract/protocol/queue-layout.ts';
import type { SRQAttributes } from '../../verbs-api/contract/verbs/attributes.ts';
import { AsyncEventType } from '../../verbs-api/contract/verbs/enums.ts';
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../invariants/assert.ts';
import type { AsyncEffect, EffectSink } from './effect-sink.ts';
import type { NicFaults } from './nic-faults.ts';
import type { PD } from './protection-domain.ts';
import { ElementRing } from './ring.ts';

/** Options of a shared receive queue. */
export interface SRQInit {
  readonly maxWr: number;
  readonly maxSge: number;
  /** The limit event fires when fewer entries are left; 0 is disarmed. */
  readonly srqLimit: number;
  /** Supplies the ring's memory: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  readonly tag: unknown;
}

/** Options that the device adds. */
interface SRQOptions {
  /** `rqBytes(count)` bytes, shared with the client. */
  readonly ring: Uint8Array;
  readonly count: number;
  readonly faults: NicFaults;
}

/** Effects of an SRQ. */
export type SRQEffect = AsyncEffect<SRQ>;

/** A shared receive queue. Its SGEs are checked against its own protection domain. */
export class SRQ {
  readonly pd: PD;
  readonly count: number;
  readonly ring: Uint8Array;
  /** The ring from which queue pairs take receives. */
  readonly elements: ElementRing;
  tag: unknown;
  /** Queue pairs that receive from it. */
  users = 0;
  readonly #maxWr: number;
  readonly #maxSge: number;
  #limit: number;
  readonly #effects: EffectSink<SRQEffect>;
  readonly #onClose: () => void;
  readonly #faults: NicFaults;
  closed = false;

  /** `init` has been checked; `onClose` releases the device's slot. */
  constructor(
    pd: PD,
    init: SRQInit,
    options: SRQOptions,
    effects: EffectSink<SRQEffect>,
    onClose: () => void,
  ) {
    const { ring, count, faults } = options;
    this.pd = pd;
    this.#maxWr = init.maxWr;
    this.#maxSge = init.maxSge;
    this.#limit = init.srqLimit;
    this.tag = init.tag;
    this.ring = ring;
    this.count = count;
    this.#effects = effects;
    this.#onClose = onClose;
    this.#faults = faults;
    this.elements = new ElementRing(ring, 0, count, RQE_BYTES, RQE.flags);
    pd.members += 1;
  }

  /** Call after each element taken: raises the limit event, once per arming. */
  checkLimit(): void {
    if (this.#faults.srqLimit?.() === true) {
      this.#limit = 0;
      this.#reportLimit('the shared receive queue reached its limit (injected fault)');
      return;
    }
    const limit = this.#limit;
    if (limit === 0 || this.elements.readyAt(limit - 1)) return;
    this.#limit = 0;
    this.#reportLimit(`fewer than ${limit} receives are left on the shared receive queue`);
  }

  #reportLimit(text: string): void {
    this.#effects.push({
      type: 'async',
      event: AsyncEventType.srqLimitReached,
      element: this,
      text,
    });
  }

  /** Arms the limit event; 0 disarms it. EINVAL for more than the queue holds. */
  modify(attributes: { readonly srqLimit: number }): void {
    const { srqLimit } = attributes;
    if (!Number.isInteger(srqLimit) || srqLimit < 0 || srqLimit > this.count) {
      throw new VerbsError('EINVAL', `the limit is 0 to ${this.count}, not ${srqLimit}`);
    }
    this.#limit = srqLimit;
  }

  query(): SRQAttributes {
    return { maxWr: this.#maxWr, maxSge: this.#maxSge, srqLimit: this.#limit };
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.users >= 0, 'the users of an SRQ are not negative');
    assert(!this.closed || this.users === 0, 'a closed SRQ has no users');
    assert(this.#limit >= 0 && this.#limit <= this.count, 'the limit of an SRQ is within its size');
    this.pd.assertInvariants();
  }

  /** EBUSY while a queue pair uses it; a second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.users > 0) {
      throw new VerbsError('EBUSY', 'queue pairs still receive from the queue');
    }
    this.closed = true;
    this.pd.members -= 1;
    this.#onClose();
    this.assertInvariants();
  }
}
