/**
 * The emulated NIC: one device's objects and limits. The host calls it, then drains `pollEffect`.
 *
 * Pure: memory comes as backings and rings, time as arguments, randomness as a seed or a source.
 */
import type { DeviceAttributes, QPCapabilities } from '../../verbs-api/contract/attributes.ts';
import { MWType } from '../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { cqBytes, ringCount, rqBytes, sqBytes } from '../../verbs-api/contract/queue-layout.ts';
import type { Micros } from '../engine/stream-api.ts';
import { ATOMIC_WORD_BYTES } from './atomic-operation.ts';
import { CQ, type CQInit } from './completion-queue.ts';
import { type DeviceProfile, deviceProfile } from './device-profile.ts';
import { DeviceRegistry } from './device-registry.ts';
import { EffectQueue, type NicEffect } from './effect.ts';
import { checkMRInit, MR, type MRInit } from './memory-region.ts';
import { MW } from './memory-window.ts';
import { type NicCounters, newCounters } from './nic-counters.ts';
import { type NicFaults, noNicFaults } from './nic-faults.ts';
import { PD } from './protection-domain.ts';
import { QP, type QPHost, type QPInit } from './queue-pair.ts';
import { requestRing } from './ring.ts';
import { SRQ, type SRQInit } from './shared-receive-queue.ts';
import { type Random32, StagTable, seededRandom } from './stag-table.ts';
import { WorkWatch } from './work-watch.ts';

/** Options of a device. */
export interface NicOptions {
  readonly name: string;
  readonly profile?: Partial<DeviceProfile>;
  /** Seeds the choice of STags (simulations); a number of up to 53 bits. */
  readonly seed: number;
  /** A better source for STags than the seed, for a device on a network (RFC 5040 §8.1.1). */
  readonly random?: Random32;
}

/** The limits that a device reports; identity (GUID, firmware) is its host's. */
export type DeviceLimits = Omit<
  DeviceAttributes,
  'fwVer' | 'nodeGuid' | 'vendorId' | 'vendorPartId' | 'hwVer' | 'physPortCnt'
>;

/** The RQ starts on a page of its own, so that a host can map SQ and RQ apart. */
const RQ_ALIGNMENT_BYTES = 4096;

/** One emulated RNIC. */
export class Nic {
  readonly name: string;
  readonly profile: DeviceProfile;
  readonly counters: NicCounters = newCounters();
  /** Its host may have things go wrong. */
  readonly faults: NicFaults = noNicFaults();
  /** Its host may watch its work. */
  readonly watch = new WorkWatch();
  private readonly stags: StagTable;
  private readonly effects = new EffectQueue();
  private readonly registry: DeviceRegistry;
  /** Windows by entry index, for the work requests that name them. */
  private readonly windows = new Map<number, MW>();
  private readonly qps = new Map<number, QP>();
  private readonly host: QPHost;
  private readonly onBackingReady: () => void;

  constructor(options: NicOptions) {
    this.name = options.name;
    this.profile = deviceProfile(options.profile);
    this.stags = new StagTable(options.random ?? seededRandom(options.seed));
    this.registry = new DeviceRegistry(this.profile);
    const word = new Uint8Array(ATOMIC_WORD_BYTES);
    this.host = {
      stags: this.stags,
      windows: this.windows,
      effects: this.effects,
      counters: this.counters,
      watch: this.watch,
      unsettled: new Set<QP>(),
      waiting: new Set<QP>(),
      now: 0,
      word,
      wordView: new DataView(word.buffer),
    };
    this.onBackingReady = (): void => this.backingReady();
  }

  queryDevice(): DeviceLimits {
    const { profile } = this;
    return {
      maxMrSize: profile.maxMrSize,
      maxQp: profile.maxQp,
      maxQpWr: profile.maxQpWr,
      maxSge: profile.maxSge,
      maxSgeRd: profile.maxSgeRd,
      maxInline: profile.maxInline,
      maxCq: profile.maxCq,
      maxCqe: profile.maxCqe,
      maxMr: profile.maxMr,
      maxMw: profile.maxMw,
      maxPd: profile.maxPd,
      maxQpRdAtom: profile.irdMax,
      maxQpInitRdAtom: profile.ordMax,
      maxSrq: profile.maxSrq,
      maxSrqWr: profile.maxSrqWr,
      maxSrqSge: profile.maxSge,
      // RDMAPX-1.1-01: both atomics or none.
      atomics: true,
      immediateData: true,
    };
  }

  /** ENOMEM when the device has no more. */
  allocPD(): PD {
    const release = this.registry.take('pd');
    return new PD(release);
  }

  /** EINVAL for bad ranges, rights or keys; EOPNOTSUPP; ENOMEM. */
  regMR(pd: PD, init: MRInit): MR {
    pd.assertOpen();
    checkMRInit(init, this.profile.maxMrSize);
    const release = this.registry.take('mr');
    const mr = this.orRelease(release, () => new MR(pd, init, this.stags, release));
    init.backing.onReady = this.onBackingReady;
    return mr;
  }

  /** EINVAL for an unknown type; ENOMEM. */
  allocMW(pd: PD, type: MWType): MW {
    pd.assertOpen();
    if (type !== MWType.type1 && type !== MWType.type2) {
      throw new VerbsError('EINVAL', `unknown memory window type ${String(type)}`);
    }
    const release = this.registry.take('mw');
    const mw: MW = this.orRelease(release, () => {
      return new MW(pd, type, this.stags, () => {
        this.windows.delete(mw.rkey >>> 8);
        release();
      });
    });
    this.windows.set(mw.rkey >>> 8, mw);
    return mw;
  }

  /** EINVAL for a bad size; ENOMEM. */
  createCQ(init: CQInit): CQ {
    checkCount('cqe', init.cqe, 1, this.profile.maxCqe);
    const release = this.registry.take('cq');
    return this.orRelease(release, () => {
      const count = ringCount(init.cqe);
      const ring = requestRing(init.ring, cqBytes(count));
      return new CQ(ring, count, init.tag, this.effects, release, this.faults, this.watch);
    });
  }

  /** EINVAL for a bad size or limit; ENOMEM. */
  createSRQ(pd: PD, init: SRQInit): SRQ {
    pd.assertOpen();
    checkCount('maxWr', init.maxWr, 1, this.profile.maxSrqWr);
    checkCount('maxSge', init.maxSge, 0, this.profile.maxSge);
    checkCount('srqLimit', init.srqLimit, 0, init.maxWr);
    const release = this.registry.take('srq');
    return this.orRelease(release, () => {
      const count = ringCount(init.maxWr);
      const ring = requestRing(init.ring, rqBytes(count));
      return new SRQ(pd, init, ring, count, this.effects, release, this.faults);
    });
  }

  /** EINVAL for sizes beyond the profile or a closed CQ, SRQ or PD; ENOMEM. */
  createQP(pd: PD, init: QPInit): QP {
    pd.assertOpen();
    const { capabilities } = init;
    this.checkCapabilities(capabilities);
    if (init.sendCQ.closed || init.recvCQ.closed) {
      throw new VerbsError('EINVAL', 'the completion queue is closed');
    }
    if (init.srq?.closed === true) {
      throw new VerbsError('EINVAL', 'the shared receive queue is closed');
    }
    const release = this.registry.take('qp');
    const qp: QP = this.orRelease(release, () => {
      const sqCount = ringCount(capabilities.maxSendWr);
      const rqCount = init.srq === undefined ? ringCount(capabilities.maxRecvWr) : 0;
      const rings = requestRings(init, sqCount, rqCount);
      const qpn = this.registry.nextQpn((candidate) => this.qps.has(candidate));
      const layout = { ...rings, sqCount, rqCount };
      return new QP(qpn, pd, init, layout, this.host, () => {
        this.qps.delete(qpn);
        release();
      });
    });
    this.qps.set(qp.qpn, qp);
    return qp;
  }

  private checkCapabilities(capabilities: QPCapabilities): void {
    const { profile } = this;
    checkCount('maxSendWr', capabilities.maxSendWr, 1, profile.maxQpWr);
    checkCount('maxRecvWr', capabilities.maxRecvWr, 0, profile.maxQpWr);
    checkCount('maxSendSge', capabilities.maxSendSge, 0, profile.maxSge);
    checkCount('maxRecvSge', capabilities.maxRecvSge, 0, profile.maxSge);
    checkCount('maxInlineData', capabilities.maxInlineData, 0, profile.maxInline);
  }

  /** Gives the slot back when making the object fails: nothing is half-created. */
  private orRelease<T>(release: () => void, make: () => T): T {
    try {
      return make();
    } catch (error) {
      release();
      throw error;
    }
  }

  /** The QP of this number, for diagnostics. */
  findQP(qpn: number): QP | undefined {
    return this.qps.get(qpn);
  }

  /** All queue pairs. */
  listQPs(): readonly QP[] {
    return [...this.qps.values()];
  }

  /** Takes all counters to zero. */
  resetCounters(): void {
    Object.assign(this.counters, newCounters());
  }

  /**
   * Flushes receives posted to QPs that are in error already: no doorbell tells about those, and
   * programs drain that way. The host calls it from a slow timer while such QPs exist; the answer
   * is how many there are.
   */
  flushErrored(now: Micros): number {
    let errored = 0;
    for (const qp of this.qps.values()) {
      if (qp.flushPosted(now)) errored += 1;
    }
    return errored;
  }

  private backingReady(): void {
    const { waiting } = this.host;
    const ready = [...waiting];
    waiting.clear();
    for (const qp of ready) {
      qp.memoryReady();
      this.effects.push({ type: 'transmit', qp });
    }
  }

  /** The next effect; to be drained after every call into the NIC, a QP or a stream. */
  pollEffect(): NicEffect | undefined {
    const { unsettled } = this.host;
    // A failed work request is found while its stream asks for the next message, when the stream
    // must not be called; here nobody is inside it.
    if (unsettled.size > 0) {
      for (const qp of unsettled) qp.settle(this.host.now);
    }
    for (;;) {
      const effect = this.effects.poll();
      if (effect?.type === 'completion' && effect.cq.closed) continue;
      return effect;
    }
  }
}

/** Memory for SQ and RQ: each its own, or one with the RQ on a page of its own. */
function requestRings(
  init: QPInit,
  sqCount: number,
  rqCount: number,
): { ring: Uint8Array; receiveRing: Uint8Array; rqOffset: number } {
  if (init.receiveRing !== undefined) {
    const ring = requestRing(init.ring, sqBytes(sqCount));
    const receiveRing = rqCount === 0 ? ring : requestRing(init.receiveRing, rqBytes(rqCount));
    return { ring, receiveRing, rqOffset: 0 };
  }
  const rqOffset = Math.ceil(sqBytes(sqCount) / RQ_ALIGNMENT_BYTES) * RQ_ALIGNMENT_BYTES;
  const ring = requestRing(init.ring, rqOffset + rqBytes(rqCount));
  return { ring, receiveRing: ring, rqOffset };
}

function checkCount(what: string, value: number, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw new VerbsError('EINVAL', `${what} is ${least} to ${most}, not ${value}`);
}
