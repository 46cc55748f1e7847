/** The objects of one native device, and the routing of their completions and events. */
import { Fifo } from '#base/fifo';
import {
  cqBytes,
  INLINE_MAX,
  ringCount,
  rqBytes,
  SGE_MAX,
  sqBytes,
} from '#contract/protocol/queue-layout';
import type { DeviceAttributes, QPCapabilities } from '#contract/verbs/attributes';
import type { WC } from '#contract/verbs/completion';
import { type AsyncEventType, type MWType, QPState } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { DeviceMW, DeviceObjects } from '../host/served-device.ts';
import type { NicEffect } from '../rnic/effect.ts';
import type { MRInit } from '../rnic/memory/memory-region.ts';
import { checkCount, grantedCapabilities } from '../rnic/queue-pair-init.ts';
import { CQ, type CQInit } from '../rnic/queues/completion-queue.ts';
import type { SRQInit } from '../rnic/queues/shared-receive-queue.ts';
import { SlotCompletionWriter } from '../rnic/rings/completion-writer.ts';
import { requestRing } from '../rnic/rings/ring.ts';
import { BridgedCQ } from './bridged-completion-queue.ts';
import { type BridgedMR, BridgedPD, registerShared } from './bridged-memory.ts';
import { BridgedCounters, BridgedQP, type BridgedQPHost } from './bridged-queue-pair.ts';
import { BridgedSRQ } from './bridged-shared-receive-queue.ts';
import { giveBack } from './give-back.ts';
import type { LowerChannel, LowerDevice, LowerQP } from './lower.ts';

/** Entries of a native queue beyond the client's: for sends without a requested completion. */
const EXTRA_ENTRIES = 1024;
/** Turns of completions to move at once when a queue pair closes; more is an error. */
const LAST_TURNS_MAX = 1024;

/** Options of a queue pair, with objects of this device. */
interface BridgedQPInit {
  readonly sendCQ: BridgedCQ;
  readonly recvCQ: BridgedCQ;
  readonly srq: BridgedSRQ | undefined;
  readonly capabilities: QPCapabilities;
  readonly sqSigAll: boolean;
  readonly ring: (bytes: number) => Uint8Array;
  readonly tag: unknown;
}

export interface NicHost {
  /** An asynchronous event of an object, or of the device. */
  raise(
    object: BridgedQP | BridgedCQ | BridgedSRQ | undefined,
    event: AsyncEventType,
    text: string,
  ): void;
  /** Requests a call of `settle` in a later turn. */
  later(): void;
  lost(error: VerbsError): void;
  /** An armed queue of a client fired. */
  completed(cq: BridgedCQ): void;
}

export class BridgedNic implements DeviceObjects {
  readonly name: string;
  readonly counters = new BridgedCounters();
  readonly #lower: LowerDevice;
  readonly #channel: LowerChannel;
  readonly #host: NicHost;
  readonly #limits: DeviceAttributes;
  readonly #effects = new Fifo<NicEffect>();
  readonly #qps = new Map<number, BridgedQP>();
  /** Served objects by native ones, which events name. */
  readonly #served = new Map<object, BridgedQP | BridgedCQ | BridgedSRQ>();
  readonly #qpHost: BridgedQPHost;
  readonly #route: (wc: WC) => void;
  /** Queue pairs with work to do after completions are moved. */
  #due = new Set<BridgedQP>();
  /** Completion queues with more completions than a turn moves. */
  readonly #full = new Set<BridgedCQ>();

  /** `limits` are the limits reported to clients. */
  constructor(
    name: string,
    lower: LowerDevice,
    channel: LowerChannel,
    limits: DeviceAttributes,
    host: NicHost,
  ) {
    this.name = name;
    this.#lower = lower;
    this.#channel = channel;
    this.#limits = limits;
    this.#host = host;
    this.#route = (wc) => this.#qps.get(wc.qpNum)?.handleCompletion(wc);
    this.#qpHost = {
      deviceName: name,
      flushesLatePosts: lower.traits.flushesLatePosts,
      counters: this.counters,
      make: (qp) => this.#makeQP(qp),
      unmake: (qp) => this.#unmakeQP(qp),
      later: (qp) => void this.#due.add(qp),
      raise: (qp, event, text) => host.raise(qp, event, text),
      failed: (_qp, error) => host.lost(error),
      forget: (qp) => void this.#due.delete(qp),
    };
  }

  // Commands, see `DeviceObjects`

  resetCounters(): void {
    Object.assign(this.counters, new BridgedCounters());
  }

  allocPD(): BridgedPD {
    return new BridgedPD(this.#lower.allocPD());
  }

  regMR(pd: BridgedPD, init: MRInit): BridgedMR {
    const { maxMrSize } = this.#limits;
    const { iova } = this.#lower.traits;
    return registerShared({ name: this.name, maxMrSize, iova }, pd, init);
  }

  allocMW(_pd: BridgedPD, _type: MWType): DeviceMW {
    throw new VerbsError('EOPNOTSUPP', `${this.name} has no memory windows`);
  }

  createCQ(init: CQInit): BridgedCQ {
    checkCount('cqe', init.cqe, 1, this.#limits.maxCqe);
    const count = ringCount(init.cqe);
    const entries = Math.min(this.#limits.maxCqe, 2 * count + EXTRA_ENTRIES);
    const lower = this.#lower.createCQ(entries, this.#channel);
    return orDispose(lower, () => {
      const ring = requestRing(init.ring, cqBytes(count));
      const slots = new SlotCompletionWriter(ring, count);
      const writer = new CQ({ writer: slots, tag: undefined }, this.#effects, () => undefined);
      const cq: BridgedCQ = new BridgedCQ({
        lower,
        writer,
        tag: init.tag,
        route: this.#route,
        onClose: () => {
          this.#served.delete(lower);
          this.#full.delete(cq);
        },
      });
      lower.requestNotify(false);
      this.#served.set(lower, cq);
      return cq;
    });
  }

  createSRQ(pd: BridgedPD, init: SRQInit): BridgedSRQ {
    pd.assertOpen();
    const { maxSrqWr, maxSrqSge } = this.#limits;
    checkCount('maxWr', init.maxWr, 1, maxSrqWr);
    checkCount('maxSge', init.maxSge, 0, maxSrqSge);
    checkCount('srqLimit', init.srqLimit, 0, init.maxWr);
    const count = ringCount(init.maxWr);
    const lower = pd.lower.createSRQ({
      maxWr: Math.min(count, maxSrqWr),
      maxSge: Math.max(1, init.maxSge),
      srqLimit: init.srqLimit,
    });
    return orDispose(lower, () => {
      const ring = requestRing(init.ring, rqBytes(count));
      const srq = new BridgedSRQ(lower, init, ring, count, () => {
        this.#served.delete(lower);
        pd.members -= 1;
      });
      pd.members += 1;
      this.#served.set(lower, srq);
      return srq;
    });
  }

  createQP(pd: BridgedPD, asked: BridgedQPInit): BridgedQP {
    pd.assertOpen();
    const init = { ...asked, capabilities: grantedCapabilities(asked) };
    this.#checkCapabilities(init.capabilities);
    if (init.sendCQ.writer.closed || init.recvCQ.writer.closed || init.srq?.closed === true) {
      throw invalid('a queue of the queue pair is closed');
    }
    const sqCount = ringCount(init.capabilities.maxSendWr);
    const rqCount = init.srq === undefined ? ringCount(init.capabilities.maxRecvWr) : 0;
    const rqOffset = sqBytes(sqCount);
    const ring = requestRing(init.ring, rqOffset + rqBytes(rqCount));
    const { sendCQ, recvCQ, srq, capabilities, sqSigAll, tag } = init;
    const host = this.#qpHost;
    const queues = { sendCQ, recvCQ, srq, capabilities, sqSigAll, tag };
    return new BridgedQP({ host, pd, ...queues, ring, sqCount, rqOffset, rqCount });
  }

  // Calls from the event loop

  handleFired(lower: object): void {
    const cq = this.#served.get(lower);
    if (cq instanceof BridgedCQ && cq.fired()) this.#full.add(cq);
  }

  /** An asynchronous event; `lower` is the native object that it names. */
  handleAsync(lower: object | undefined, event: AsyncEventType, text: string): void {
    this.counters.asyncEvents += 1;
    const object = lower === undefined ? undefined : this.#served.get(lower);
    // Ignore events of an object that was closed meanwhile.
    if (lower === undefined || object !== undefined) this.#host.raise(object, event, text);
  }

  /** The device is gone: flushes its work. */
  handleLoss(): void {
    for (const qp of this.#qps.values()) qp.deviceLost();
    this.settle();
  }

  // Steps

  /**
   * Passes the receives of all queues to the device: a sender may use any of them, and its doorbell
   * may be handled before the receiver's.
   */
  takeReceives(): void {
    for (const object of this.#served.values()) {
      if (object instanceof BridgedCQ) continue;
      object.takeReceives();
    }
  }

  /** Polls for completions of the queue pair's requests: many are done when posting returns. */
  look(qp: BridgedQP): void {
    for (const cq of qp.sendCQ === qp.recvCQ ? [qp.sendCQ] : [qp.sendCQ, qp.recvCQ]) {
      if (cq.move()) this.#full.add(cq);
    }
  }

  /** Continues queue pairs that now have room, then reports the queues that fired. */
  settle(): void {
    for (const cq of [...this.#full]) {
      if (!cq.move()) this.#full.delete(cq);
    }
    const due = this.#due;
    this.#due = new Set();
    for (const qp of due) qp.pump();
    for (let effect = this.#effects.shift(); effect !== undefined; effect = this.#effects.shift()) {
      this.#act(effect);
    }
    if (this.#due.size > 0 || this.#full.size > 0) this.#host.later();
  }

  #act(effect: NicEffect): void {
    if (effect.type !== 'completion' && effect.type !== 'async') return;
    const writer = effect.type === 'completion' ? effect.cq : effect.object;
    const cq = writer?.tag;
    if (!(cq instanceof BridgedCQ) || cq.writer.closed) return;
    if (effect.type === 'completion') this.#host.completed(cq);
    else this.#host.raise(cq, effect.event, effect.text);
  }

  #makeQP(qp: BridgedQP): LowerQP {
    const { capabilities, srq } = qp;
    const lower = qp.pd.lower.createQP({
      sendCQ: qp.sendCQ.lower,
      recvCQ: qp.recvCQ.lower,
      srq: srq?.lower,
      maxSendWr: Math.min(qp.sqCount, this.#limits.maxQpWr),
      maxRecvWr: Math.min(Math.max(1, qp.rqCount), this.#limits.maxQpWr),
      // Devices use an element to post an empty receive or inline payload.
      maxSendSge: Math.max(1, capabilities.maxSendSge),
      maxRecvSge: Math.max(1, capabilities.maxRecvSge),
      maxInlineData: capabilities.maxInlineData,
      sqSigAll: false,
    });
    return orDispose(lower, () => {
      lower.modify(QPState.INIT);
      this.#qps.set(lower.qpNum, qp);
      this.#served.set(lower, qp);
      return lower;
    });
  }

  #unmakeQP(qp: BridgedQP): void {
    const { lower } = qp;
    giveBack(() => this.#moveAll(qp));
    this.#qps.delete(lower.qpNum);
    this.#served.delete(lower);
    giveBack(() => lower.dispose());
    // Move the last completions now: another queue pair may get the same number.
    giveBack(() => this.#moveAll(qp));
  }

  #moveAll({ sendCQ, recvCQ }: BridgedQP): void {
    for (let turns = 0; turns < LAST_TURNS_MAX && sendCQ.move(); turns += 1);
    for (let turns = 0; turns < LAST_TURNS_MAX && recvCQ.move(); turns += 1);
  }

  #checkCapabilities(capabilities: QPCapabilities): void {
    const { maxQpWr, maxSge, maxInline } = this.#limits;
    checkCount('maxSendWr', capabilities.maxSendWr, 1, maxQpWr);
    checkCount('maxRecvWr', capabilities.maxRecvWr, 0, maxQpWr);
    checkCount('maxSendSge', capabilities.maxSendSge, 0, maxSge);
    checkCount('maxRecvSge', capabilities.maxRecvSge, 0, maxSge);
    checkCount('maxInlineData', capabilities.maxInlineData, 0, maxInline);
  }
}

/** The device's limits, capped by those of clients' rings. */
export function servedLimits(attributes: DeviceAttributes): DeviceAttributes {
  return {
    ...attributes,
    maxSge: Math.min(attributes.maxSge, SGE_MAX),
    maxSrqSge: Math.min(attributes.maxSrqSge, SGE_MAX),
    maxSgeRd: 1,
    maxInline: Math.min(attributes.maxInline, INLINE_MAX),
    maxMw: 0,
    maxMrSize: Math.min(attributes.maxMrSize, 2 ** 47),
    immediateData: false,
  };
}

/** Disposes of the native object if `make` throws. */
function orDispose<T>(lower: { dispose(): void }, make: () => T): T {
  try {
    return make();
  } catch (error) {
    lower.dispose();
    throw error;
  }
}
