/** Shared receive queues. */
import type { SRQAttributes } from '#contract/verbs/attributes';
import type { RecvWR } from '#contract/verbs/work-request';
import { codeOf, invalid } from './errors.ts';
import { CONSTANTS } from './layouts.ts';
import { checkResult } from './libraries.ts';
import { create, NativeDeviceObject } from './open-device.ts';
import { receivePostError } from './post-error.ts';
import { peek, StructBlock } from './struct-block.ts';
import { type PostLimits, postReceives, SGE_LIMIT } from './work-request-list.ts';

export interface NativeSRQInit {
  readonly maxWr: number;
  readonly maxSge: number;
  readonly srqLimit: number;
}

export class NativeSRQ extends NativeDeviceObject {
  /** The kernel's handle: unique among the SRQs of a context. */
  readonly handle: number;
  readonly maxWr: number;
  readonly #limits: PostLimits;
  readonly #maxSge: number;
  #limit: number;

  constructor(pd: NativeDeviceObject, init: NativeSRQInit) {
    const { device } = pd;
    const { maxSrqWr, maxSrqSge } = device.attributes;
    const fits =
      isWithin(init.maxWr, 1, maxSrqWr) &&
      isWithin(init.maxSge, 0, Math.min(maxSrqSge, SGE_LIMIT)) &&
      isWithin(init.srqLimit, 0, init.maxWr);
    if (!fits) throw invalid(`${device.subject} cannot create this receive queue`);
    const raw = new StructBlock('ibv_srq_init_attr')
      .set('attr.max_wr', init.maxWr)
      .set('attr.max_sge', init.maxSge)
      .set('attr.srq_limit', init.srqLimit);
    const pointer = create(device, 'ibv_create_srq', pd.pointer, raw.address);
    super(device, 'shared receive queue', pointer, [pd]);
    this.handle = peek('ibv_srq', 'handle', pointer);
    this.maxWr = Math.max(raw.get('attr.max_wr'), init.maxWr);
    this.#limits = {
      device: device.info.name,
      traits: device.traits,
      atomics: false,
      maxSendSge: 0,
      maxRecvSge: init.maxSge,
      maxSgeRead: 0,
      maxInline: 0,
    };
    this.#maxSge = Math.max(raw.get('attr.max_sge'), init.maxSge);
    this.#limit = init.srqLimit;
  }

  /** Posts receives; fails like `NativeQP.postRecv`. */
  postRecv(requests: readonly RecvWR[]): void {
    const { device } = this;
    const outcome = postReceives(requests, this.#limits, device.hot.postSrqRecv, this.pointer);
    if (outcome.posted < requests.length || outcome.errno !== 0) {
      throw receivePostError(outcome, requests, device.info.name, this.#maxSge);
    }
  }

  /** Arms the limit event; 0 disarms it. EINVAL beyond the capacity. */
  setLimit(srqLimit: number): void {
    if (!isWithin(srqLimit, 0, this.maxWr)) {
      throw invalid(`${this.subject} holds ${this.maxWr} receives`);
    }
    const raw = new StructBlock('ibv_srq_attr').set('srq_limit', srqLimit);
    this.call('ibv_modify_srq', this.pointer, raw.address, CONSTANTS.IBV_SRQ_LIMIT);
    this.#limit = srqLimit;
  }

  /** The limit event fired, so the limit is disarmed. */
  noteLimitReached(): void {
    this.#limit = 0;
  }

  /**
   * Returns size and limit: from the device or, if its driver cannot report them, as recorded here.
   */
  query(): SRQAttributes {
    const raw = new StructBlock('ibv_srq_attr');
    const { verbs } = this.device.libraries;
    const result = verbs.ibv_query_srq(this.pointer, raw.address);
    if (codeOf(result) === 'EOPNOTSUPP') {
      return { maxWr: this.maxWr, maxSge: this.#maxSge, srqLimit: this.#limit };
    }
    checkResult('ibv_query_srq', this.subject, result);
    return {
      maxWr: raw.get('max_wr'),
      maxSge: raw.get('max_sge'),
      srqLimit: raw.get('srq_limit'),
    };
  }

  protected override destroy(pointer: number): void {
    this.call('ibv_destroy_srq', pointer);
  }
}

function isWithin(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}
