/** The producer of a receive ring: of a queue pair, or of a shared receive queue. */
import { QueueFlag, RQE, RQE_BYTES, rqBytes } from '#contract/protocol/queue-layout';
import type { ErrnoCode } from '#contract/verbs/errors';
import { receiveRefusal } from '#contract/verbs/post-refusal';
import { hasUnknownReceiveField } from '#contract/verbs/request-fields';
import type { RecvWR } from '#contract/verbs/work-request';
import { putLong, type RingMemory, ringMemory } from './ring-memory.ts';
import { putScatterGather } from './scatter-gather.ts';

const ELEMENT_WORDS = RQE_BYTES >>> 2;
const WR_ID = RQE.wrId >>> 2;
const CONTROL = RQE.flags >>> 2;
const SGES = RQE.sge >>> 2;
/** Position of num_sge inside the word that starts with the flags. */
const NUM_SGE_SHIFT = (RQE.numSge - RQE.flags) * 8;

/** Writes receive work requests into the ring. Layout and protocol: daemon/contract/protocol/queue-layout.ts. */
export class ReceiveRing {
  readonly #memory: RingMemory;
  readonly #mask: number;
  readonly #maxSge: number;
  #put = 0;
  #batchStart = 0;

  /** `count` elements, a power of two, from `offset` of `mapping` on. */
  constructor(mapping: Uint8Array, offset: number, count: number, maxSge: number) {
    this.#memory = ringMemory(mapping, offset, rqBytes(count));
    this.#mask = count - 1;
    this.#maxSge = maxSge;
  }

  /** Posts one request. undefined when posted; ENOMEM when the ring is full; EINVAL. */
  post(wr: RecvWR): ErrnoCode | undefined {
    const memory = this.#memory;
    const base = (this.#put & this.#mask) * ELEMENT_WORDS;
    if ((Atomics.load(memory.control, base + CONTROL) & QueueFlag.valid) !== 0) return 'ENOMEM';
    const { sgList } = wr;
    if (sgList === undefined || !(sgList.length <= this.#maxSge)) return 'EINVAL';
    if (sgList.length === 0 && (!Array.isArray(sgList) || hasUnknownReceiveField(wr)))
      return 'EINVAL';
    if (!putLong(memory, base + WR_ID, wr.wrId ?? 0)) return 'EINVAL';
    if (!putScatterGather(memory, base + SGES, sgList)) return 'EINVAL';
    const control = QueueFlag.valid | (sgList.length << NUM_SGE_SHIFT);
    Atomics.store(memory.control, base + CONTROL, control);
    this.#put = (this.#put + 1) >>> 0;
    return undefined;
  }

  /** Explains why `post` refused a request with `code`. */
  explain(wr: RecvWR | undefined, code: ErrnoCode): string {
    return receiveRefusal(wr, code, this.#maxSge);
  }

  /**
   * True if something was posted since the last call and the device, which takes receives ahead of
   * messages, may have gone idle without seeing it.
   */
  doorbellDue(): boolean {
    const posted = (this.#put - this.#batchStart) >>> 0;
    if (posted === 0) return false;
    const before = (this.#batchStart - 1) & this.#mask;
    this.#batchStart = this.#put;
    // A batch that fills the ring has overwritten the element before it, so that one was consumed.
    if (posted > this.#mask) return true;
    const flags = Atomics.load(this.#memory.control, before * ELEMENT_WORDS + CONTROL);
    return (flags & QueueFlag.valid) === 0;
  }
}
