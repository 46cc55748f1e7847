/** The shared receive queue: one ring of receives for many queue pairs, with a limit event. */
import type { SRQAttributes } from '../../verbs-api/contract/attributes.ts';
import { AsyncEventType } from '../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { RQE, RQE_BYTES } from '../../verbs-api/contract/queue-layout.ts';
import type { EffectQueue } from './effect.ts';
import { type NicFaults, noNicFaults } from './nic-faults.ts';
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

/** A shared receive queue. Its SGEs are checked against its own protection domain. */
export class SRQ {
  readonly pd: PD;
  readonly count: number;
  readonly ring: Uint8Array;
  /** What the queue pairs take their receives from. */
  readonly elements: ElementRing;
  tag: unknown;
  /** Queue pairs that receive from it. */
  users = 0;
  private readonly maxWr: number;
  private readonly maxSge: number;
  private limit: number;
  private readonly effects: EffectQueue;
  private readonly onClose: () => void;
  private readonly faults: NicFaults;
  closed = false;

  /** `init` has been checked; `ring` has `rqBytes(count)` octets. */
  constructor(
    pd: PD,
    init: SRQInit,
    ring: Uint8Array,
    count: number,
    effects: EffectQueue,
    onClose: () => void,
    faults: NicFaults = noNicFaults(),
  ) {
    this.pd = pd;
    this.maxWr = init.maxWr;
    this.maxSge = init.maxSge;
    this.limit = init.srqLimit;
    this.tag = init.tag;
    this.ring = ring;
    this.count = count;
    this.effects = effects;
    this.onClose = onClose;
    this.faults = faults;
    this.elements = new ElementRing(ring, 0, count, RQE_BYTES, RQE.flags);
    pd.members += 1;
  }

  /** To be called after each element taken: raises the limit event, once for each arming. */
  checkLimit(): void {
    if (this.faults.srqLimit?.() === true) {
      this.limit = 0;
      this.reportLimit('the limit of the shared receive queue, as a fault has it');
      return;
    }
    const { limit } = this;
    if (limit === 0 || this.elements.readyAt(limit - 1)) return;
    this.limit = 0;
    this.reportLimit(`fewer than ${limit} receives are left on the shared receive queue`);
  }

  private reportLimit(text: string): void {
    this.effects.push({
      type: 'async',
      event: AsyncEventType.srqLimitReached,
      element: this,
      text,
    });
  }

  /** Arms the limit event, or disarms it with 0. EINVAL when more than the queue holds. */
  modify(attributes: { readonly srqLimit: number }): void {
    const { srqLimit } = attributes;
    if (!Number.isInteger(srqLimit) || srqLimit < 0 || srqLimit > this.count) {
      throw new VerbsError('EINVAL', `the limit is 0 to ${this.count}, not ${srqLimit}`);
    }
    this.limit = srqLimit;
  }

  query(): SRQAttributes {
    return { maxWr: this.maxWr, maxSge: this.maxSge, srqLimit: this.limit };
  }

  /** EBUSY while a queue pair uses it; the second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.users > 0) {
      throw new VerbsError('EBUSY', 'queue pairs still receive from the queue');
    }
    this.closed = true;
    this.pd.members -= 1;
    this.onClose();
  }
}
