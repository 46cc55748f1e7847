/** The shared receive queue: one ring of receives for many queue pairs, with a limit event. */
import { assert } from '#base/assert';
import { RQE, RQE_BYTES, ringCount, rqBytes } from '#contract/protocol/queue-layout';
import type { SRQAttributes } from '#contract/verbs/attributes';
import { AsyncEventType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { AsyncEffect, EffectSink } from '../effect-sink.ts';
import type { PD } from '../memory/protection-domain.ts';
import type { NicFaults } from '../nic-faults.ts';
import { IndexRing, ringBytes, ringGeometry } from '../rings/index-ring.ts';
import { receiveElementBytes } from '../rings/indexed-layout.ts';
import { JoinedRings } from '../rings/joined-rings.ts';
import { ElementRing, type RingKind, requestRing, type WorkRing } from '../rings/ring.ts';

export interface SRQInit {
  /** Flags unless given. */
  readonly kind?: RingKind;
  readonly maxWr: number;
  readonly maxSge: number;
  /** The limit event is raised when fewer entries are left; 0 disarms it. */
  readonly srqLimit: number;
  /** Supplies the ring's memory: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  readonly tag: unknown;
}

export type SRQEffect = AsyncEffect<SRQ>;

/** A shared receive queue. Its SGEs are checked against its own protection domain. */
export class SRQ {
  readonly pd: PD;
  readonly kind: RingKind;
  tag: unknown;
  /** Queue pairs that receive from it. */
  users = 0;
  #maxWr: number;
  #elements: WorkRing;
  /** Set while receives remain that were posted before a resize. */
  #joined: JoinedRings | undefined;
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
    faults: NicFaults,
    effects: EffectSink<SRQEffect>,
    onClose: () => void,
  ) {
    this.pd = pd;
    this.kind = init.kind ?? 'flags';
    this.#elements = this.kind === 'flags' ? elementRing(init) : indexRing(init);
    this.#maxWr = init.maxWr;
    this.#maxSge = init.maxSge;
    this.#limit = init.srqLimit;
    this.tag = init.tag;
    this.#effects = effects;
    this.#onClose = onClose;
    this.#faults = faults;
    pd.members += 1;
  }

  /** The ring from which queue pairs take receives; replaced by `resize`. */
  get elements(): WorkRing {
    return this.#elements;
  }

  /** Slots of the ring, a power of two. */
  get count(): number {
    return this.#elements.count;
  }

  get capacity(): number {
    return this.kind === 'flags' ? this.count : this.count - 1;
  }

  get ring(): Uint8Array {
    return this.#elements.memory;
  }

  /**
   * Moves to a new ring for `maxWr` receives, whose first slots count as posted in place of the
   * receives posted so far: these stay in the old ring. `maxWr` has been checked. Calls `emptied` once
   * the memory of the old ring can be freed. EOPNOTSUPP for rings with flags; EINVAL if posted
   * receives do not fit.
   */
  resize(
    maxWr: number,
    memory: (bytes: number) => Uint8Array,
    emptied: () => void = () => undefined,
  ): void {
    const elements = this.#elements;
    if (!(elements instanceof IndexRing || elements instanceof JoinedRings)) {
      throw new VerbsError('EOPNOTSUPP', 'a shared receive queue with flags keeps its size');
    }
    const posted = elements.readyCount();
    if (posted > maxWr) throw invalid(`the queue holds ${posted} receives`);
    const next = indexRing({ maxWr, maxSge: this.#maxSge, ring: memory });
    const joined = JoinedRings.after(elements, posted, next, emptied);
    this.#elements = joined;
    this.#joined = joined instanceof JoinedRings ? joined : undefined;
    this.#maxWr = maxWr;
  }

  /** Call after each element taken: raises the limit event, once per arming. */
  checkLimit(): void {
    if (this.#joined?.drained === true) {
      this.#elements = this.#joined.newest;
      this.#joined = undefined;
    }
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
      object: this,
      text,
    });
  }

  /** Arms the limit event; 0 disarms it. EINVAL beyond the queue's capacity. */
  modify(attributes: { readonly srqLimit: number }): void {
    const { srqLimit } = attributes;
    if (!Number.isInteger(srqLimit) || srqLimit < 0 || srqLimit > this.capacity) {
      throw invalid(`the limit must be 0 to ${this.capacity}, not ${srqLimit}`);
    }
    this.#limit = srqLimit;
  }

  query(): SRQAttributes {
    return { maxWr: this.#maxWr, maxSge: this.#maxSge, srqLimit: this.#limit };
  }

  /** Throws `InvariantError` when a count is impossible. */
  assertInvariants(): void {
    assert(this.users >= 0, 'SRQ: users < 0');
    assert(!this.closed || this.users === 0, 'closed SRQ has users');
    const bounded = this.kind === 'indices' || this.#limit <= this.count;
    assert(this.#limit >= 0 && bounded, 'SRQ: limit out of range');
    this.pd.assertInvariants();
  }

  /** EBUSY while a queue pair uses it; a second call does nothing. */
  close(): void {
    if (this.closed) return;
    if (this.users > 0) {
      throw new VerbsError(
        'EBUSY',
        'queue pairs still receive from the shared queue: destroy them first',
      );
    }
    this.closed = true;
    this.pd.members -= 1;
    this.#elements.end?.();
    this.#onClose();
    this.assertInvariants();
  }
}

type RingInit = Pick<SRQInit, 'maxWr' | 'maxSge' | 'ring'>;

function elementRing({ maxWr, ring }: RingInit): ElementRing {
  const count = ringCount(maxWr);
  return new ElementRing(requestRing(ring, rqBytes(count)), 0, count, RQE_BYTES, RQE.flags);
}

function indexRing({ maxWr, maxSge, ring }: RingInit): IndexRing {
  const geometry = ringGeometry(maxWr, receiveElementBytes(Math.max(1, maxSge)));
  return new IndexRing(requestRing(ring, ringBytes(geometry)), 0, geometry);
}
