/**
 * The emulated NIC: one device's objects and limits. The host calls it, then drains `pollEffect`.
 *
 * Pure: memory comes as backings and rings, time as arguments, randomness as a seed or a source.
 */
import { assert } from '#base/assert';
import { Fifo } from '#base/fifo';
import { type Random32, seededRandom } from '#base/random';
import type { Micros } from '#base/time';
import { cqBytes, ringCount } from '#contract/protocol/queue-layout';
import type { DeviceAttributes, QPCapabilities } from '#contract/verbs/attributes';
import { MWType, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { AddressHandles, type AH } from './address-handle.ts';
import { assertCounts } from './deep-invariants.ts';
import { type DeviceProfile, deviceProfile } from './device-profile.ts';
import { type DeviceCapacity, DeviceRegistry } from './device-registry.ts';
import type { NicEffect } from './effect.ts';
import type { IBPort } from './ib-port.ts';
import { ATOMIC_WORD_BYTES } from './memory/atomic-operation.ts';
import { LentPayload } from './memory/lent-payload.ts';
import { checkMRInit, MR, type MRInit } from './memory/memory-region.ts';
import { MW } from './memory/memory-window.ts';
import { PD } from './memory/protection-domain.ts';
import { StagTable } from './memory/stag-table.ts';
import { NicCounters } from './nic-counters.ts';
import { type NicFaults, noNicFaults } from './nic-faults.ts';
import type { AddressVector } from './qp-attributes.ts';
import { QP, type QPHost } from './queue-pair.ts';
import { checkCount, grantedCapabilities, type QPInit } from './queue-pair-init.ts';
import { CQ, type CQInit } from './queues/completion-queue.ts';
import { SRQ, type SRQInit } from './queues/shared-receive-queue.ts';
import { WorkWatch } from './queues/work-watch.ts';
import { type CompletionWriter, SlotCompletionWriter } from './rings/completion-writer.ts';
import { IndexedCompletionWriter } from './rings/indexed-completion-writer.ts';
import {
  INDEXED_INLINE_MAX,
  INDEXED_SGE_MAX,
  INDEXED_SRQ_SGE_MAX,
} from './rings/indexed-layout.ts';
import { makeRings } from './rings/queue-pair-rings.ts';
import { type RingKind, requestRing } from './rings/ring.ts';

/** QPs in error to flush in one turn, even if much may be posted to each. */
const LOADED_QPS_MAX = 4;

interface NicOptions {
  readonly name: string;
  readonly profile?: Partial<DeviceProfile>;
  /** Seed of the STag generator (simulations); a number of up to 53 bits. */
  readonly seed: number;
  /** Replaces the seeded generator, for a device on a network (RFC 5040 §8.1.1). */
  readonly random?: Random32;
  /** Present if programs connect the device's queue pairs; without it, the device is iWARP. */
  readonly ib?: IBPort<QP>;
}

/** The limits that a device reports; the host adds identity (GUID, firmware). */
type DeviceLimits = Omit<
  DeviceAttributes,
  'fwVer' | 'nodeGuid' | 'vendorId' | 'vendorPartId' | 'hwVer' | 'physPortCnt'
>;

export class Nic {
  readonly name: string;
  readonly profile: DeviceProfile;
  readonly counters: NicCounters = new NicCounters();
  /** Set by the host to inject failures. */
  readonly faults: NicFaults = noNicFaults();
  readonly watch = new WorkWatch();
  readonly #random: Random32;
  readonly #stags: StagTable;
  readonly #effects = new Fifo<NicEffect>();
  readonly #registry: DeviceRegistry;
  /** Windows by entry index, for work requests that name them. */
  readonly #windows = new Map<number, MW>();
  readonly #qps = new Map<number, QP>();
  readonly #host: QPHost;
  readonly #onBackingReady: () => void;
  #lastCapabilities: QPCapabilities = {
    maxSendWr: 0,
    maxRecvWr: 0,
    maxSendSge: 0,
    maxRecvSge: 0,
    maxInlineData: 0,
  };

  constructor(options: NicOptions) {
    this.name = options.name;
    this.profile = deviceProfile(options.profile);
    this.#random = options.random ?? seededRandom(options.seed);
    this.#stags = new StagTable(this.#random);
    this.#registry = new DeviceRegistry(this.profile);
    const word = new Uint8Array(ATOMIC_WORD_BYTES);
    this.#host = {
      stags: this.#stags,
      windows: this.#windows,
      effects: this.#effects,
      counters: this.counters,
      watch: this.watch,
      unsettled: new Set<QP>(),
      flushing: new Set<QP>(),
      waiting: new Set<QP>(),
      now: 0,
      ib: options.ib,
      addressHandles: new AddressHandles(),
      lentPayload: options.ib?.lentPayload ?? new LentPayload(),
      closed: (qp: QP): void => this.#forget(qp),
      word,
      wordView: new DataView(word.buffer),
    };
    this.#onBackingReady = (): void => this.#backingReady();
  }

  /** The shortest message that lends its payload, and how much may be lent. Simulations use smaller messages. */
  setLentBytes(min: number, max: number): void {
    this.#host.lentPayload.bytesMin = min;
    this.#host.lentPayload.bytesMax = max;
  }

  /** How many objects of each kind the device may have. */
  get capacity(): DeviceCapacity {
    return this.#registry.capacity;
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
      // RDMAPX-1.1-01: both atomics or neither.
      atomics: true,
      immediateData: true,
    };
  }

  /** ENOMEM at the limit. */
  allocPD(): PD {
    const release = this.#registry.take('pd');
    return new PD(release);
  }

  /** EINVAL for bad ranges, rights or keys; EOPNOTSUPP; ENOMEM. */
  regMR(pd: PD, init: MRInit): MR {
    pd.assertOpen();
    checkMRInit(init, this.profile.maxMrSize);
    const release = this.#registry.take('mr');
    const mr = this.#orRelease(release, () => new MR(pd, init, this.#stags, release));
    init.backing.onReady = this.#onBackingReady;
    return mr;
  }

  /** EINVAL for an unknown type; ENOMEM. */
  allocMW(pd: PD, type: MWType): MW {
    pd.assertOpen();
    if (type !== MWType.type1 && type !== MWType.type2) {
      throw invalid(`unknown memory window type ${String(type)}`);
    }
    const release = this.#registry.take('mw');
    const mw: MW = this.#orRelease(release, () => {
      return new MW(pd, type, this.#stags, () => {
        this.#windows.delete(mw.rkey >>> 8);
        release();
      });
    });
    this.#windows.set(mw.rkey >>> 8, mw);
    return mw;
  }

  /**
   * Makes an address handle. EINVAL, ENODATA and ETIMEDOUT for a bad address, see
   * `checkAddressVector`; EOPNOTSUPP on an iWARP device; ENOMEM.
   */
  createAH(pd: PD, vector: AddressVector): AH {
    pd.assertOpen();
    const { ib, addressHandles } = this.#host;
    if (ib === undefined) throw new VerbsError('EOPNOTSUPP', 'iWARP has no datagrams');
    return addressHandles.create(pd, vector, ib.addresses);
  }

  /** EINVAL for a bad size; ENOMEM. */
  createCQ(init: CQInit): CQ {
    checkCount('cqe', init.cqe, 1, this.profile.maxCqe);
    const release = this.#registry.take('cq');
    return this.#orRelease(release, () => {
      const roce = this.#host.ib !== undefined;
      const writer = completionWriter(init, roce);
      const { faults, watch } = this;
      const options = { writer, tag: init.tag, faults, watch, reportsEachLoss: roce };
      return new CQ(options, this.#effects, release);
    });
  }

  /** EINVAL for a bad size or limit; ENOMEM. */
  createSRQ(pd: PD, init: SRQInit): SRQ {
    pd.assertOpen();
    checkCount('maxWr', init.maxWr, 1, this.profile.maxSrqWr);
    const indexed = init.kind === 'indices';
    checkCount('maxSge', init.maxSge, 0, indexed ? INDEXED_SRQ_SGE_MAX : this.profile.maxSge);
    // rxe accepts any limit at creation.
    if (!indexed) checkCount('srqLimit', init.srqLimit, 0, init.maxWr);
    const release = this.#registry.take('srq');
    return this.#orRelease(release, () => {
      return new SRQ(pd, init, this.faults, this.#effects, release);
    });
  }

  /** EINVAL for sizes beyond the profile or a closed CQ, SRQ or PD; ENOMEM. */
  createQP(pd: PD, asked: QPInit): QP {
    pd.assertOpen();
    const init = { ...asked, capabilities: grantedCapabilities(asked) };
    const { capabilities, type = QPType.rc } = init;
    if (type !== QPType.rc && this.#host.ib === undefined) {
      throw new VerbsError('EOPNOTSUPP', 'iWARP has reliable queue pairs only');
    }
    this.#checkCapabilities(capabilities, init.kind ?? 'flags');
    if (init.srq !== undefined && init.srq.kind !== (init.kind ?? 'flags')) {
      throw invalid('the shared receive queue has rings of another kind');
    }
    if (init.sendCQ.closed || init.recvCQ.closed) throw invalid('the completion queue is closed');
    if (init.srq?.closed === true) throw invalid('the shared receive queue is closed');
    const release = this.#registry.take('qp');
    const qp = this.#orRelease(release, () => {
      const layout = makeRings(init);
      const qpn = this.#nextQpn();
      return new QP(qpn, pd, this.#sharing(init), layout, this.#host);
    });
    this.#qps.set(qp.qpn, qp);
    return qp;
  }

  #forget(qp: QP): void {
    this.#qps.delete(qp.qpn);
    // Without this, an agent that never answers would keep it here forever.
    this.#host.waiting.delete(qp);
    this.#host.flushing.delete(qp);
    this.#registry.give('qp');
  }

  /** Reuses the capabilities of the last QP if they are equal, since each QP stores them. */
  #sharing(init: QPInit): QPInit {
    const last = this.#lastCapabilities;
    const { maxSendWr, maxRecvWr, maxSendSge, maxRecvSge, maxInlineData } = init.capabilities;
    if (
      last.maxSendWr === maxSendWr &&
      last.maxRecvWr === maxRecvWr &&
      last.maxSendSge === maxSendSge &&
      last.maxRecvSge === maxRecvSge &&
      last.maxInlineData === maxInlineData
    ) {
      return { ...init, capabilities: last };
    }
    this.#lastCapabilities = { maxSendWr, maxRecvWr, maxSendSge, maxRecvSge, maxInlineData };
    return { ...init, capabilities: this.#lastCapabilities };
  }

  #nextQpn(): number {
    const registry = this.#registry;
    const inUse = (qpn: number): boolean => this.#qps.has(qpn);
    if (this.#host.ib === undefined) return registry.nextQpn(inUse);
    return registry.randomQpn(this.#random, inUse);
  }

  #checkCapabilities(capabilities: QPCapabilities, kind: RingKind): void {
    const { profile } = this;
    const indexed = kind === 'indices';
    const sgeMax = indexed ? INDEXED_SGE_MAX : profile.maxSge;
    const inlineMax = indexed ? INDEXED_INLINE_MAX : profile.maxInline;
    checkCount('maxSendWr', capabilities.maxSendWr, indexed ? 0 : 1, profile.maxQpWr);
    checkCount('maxRecvWr', capabilities.maxRecvWr, 0, profile.maxQpWr);
    checkCount('maxSendSge', capabilities.maxSendSge, 0, sgeMax);
    checkCount('maxRecvSge', capabilities.maxRecvSge, 0, sgeMax);
    checkCount('maxInlineData', capabilities.maxInlineData, 0, inlineMax);
  }

  /** Releases the slot when `make` throws, so nothing is half-created. */
  #orRelease<T>(release: () => void, make: () => T): T {
    try {
      return make();
    } catch (error) {
      release();
      throw error;
    }
  }

  findQP(qpn: number): QP | undefined {
    return this.#qps.get(qpn);
  }

  listQPs(): readonly QP[] {
    return [...this.#qps.values()];
  }

  resetCounters(): void {
    Object.assign(this.counters, new NicCounters());
  }

  /**
   * Flushes receives posted to QPs in error: programs drain them that way, and no doorbell announces
   * them. The host calls it from a slow timer while such QPs exist. Returns the number of those that had
   * work.
   */
  flushErrored(now: Micros): number {
    const { flushing } = this.#host;
    let loaded = 0;
    for (const qp of flushing) {
      const { posted } = qp;
      if (posted) loaded += 1;
      qp.flushPosted(now, posted && loaded > LOADED_QPS_MAX);
    }
    return loaded;
  }

  /** Number of QPs in error. */
  get erroredQPs(): number {
    return this.#host.flushing.size;
  }

  /**
   * Recounts everything and compares, between commands; for simulations and tests. Throws
   * `InvariantError`.
   */
  assertDeepInvariants(): void {
    const registry = this.#registry;
    const stags = this.#stags;
    const windows = this.#windows;
    const qps = this.#qps;
    registry.assertInvariants();
    assert(registry.count('qp') === qps.size, 'wrong count of QPs');
    assert(registry.count('mw') === windows.size, 'wrong count of windows');
    const regions = registry.count('mr');
    assert(regions + windows.size === stags.size, 'STags != regions + windows');
    for (const qp of this.#host.unsettled) {
      assert(qps.get(qp.qpn) === qp, 'unsettled QP does not exist');
    }
    assertCounts(stags, windows, qps.values());
  }

  /** Number of existing STags, windows and objects of each kind, for simulations and tests. */
  liveCounts(): Readonly<Record<string, number>> {
    const registry = this.#registry;
    return {
      stag: this.#stags.size,
      window: this.#windows.size,
      pd: registry.count('pd'),
      mr: registry.count('mr'),
      mw: registry.count('mw'),
      cq: registry.count('cq'),
      srq: registry.count('srq'),
      qp: registry.count('qp'),
    };
  }

  /** Pending work and events, for simulations and tests. */
  heldCounts(): { readonly effects: number; readonly unsettled: number; readonly waiting: number } {
    const { unsettled, waiting } = this.#host;
    return { effects: this.#effects.count, unsettled: unsettled.size, waiting: waiting.size };
  }

  #backingReady(): void {
    const { waiting } = this.#host;
    const ready = [...waiting];
    waiting.clear();
    for (const qp of ready) {
      qp.memoryReady();
      this.#effects.push({ type: 'transmit', qp });
    }
  }

  /** The next effect; drain after every call into the NIC, a QP or a stream. */
  pollEffect(): NicEffect | undefined {
    const { unsettled } = this.#host;
    // A work request fails while its stream asks for the next message, when the stream must not be
    // called. Here the stream is not on the stack.
    if (unsettled.size > 0) {
      for (const qp of unsettled) qp.settle(this.#host.now);
    }
    for (;;) {
      const effect = this.#effects.shift();
      if (effect?.type === 'completion' && effect.cq.closed) continue;
      return effect;
    }
  }
}

function completionWriter({ cqe, kind, ring }: CQInit, infiniband: boolean): CompletionWriter {
  if (kind === 'indices') return new IndexedCompletionWriter(cqe, ring);
  const count = ringCount(cqe);
  return new SlotCompletionWriter(requestRing(ring, cqBytes(count)), count, infiniband);
}
