/** Shared receive queues. */
import type { SRQAttributes } from '#contract/verbs/attributes';
import type { RecvWR } from '#contract/verbs/work-request';
import { codeOf, NativeError } from './errors.ts';
import { CONSTANTS } from './layouts.ts';
import { checkPointer, checkResult } from './libraries.ts';
import { NativeObject } from './native-object.ts';
import type { OpenPD } from './open-device.ts';
import { receivePostError } from './post-error.ts';
import { peek, StructBlock } from './struct-block.ts';
import { type PostLimits, postReceives, SGE_LIMIT } from './work-request-list.ts';

export interface NativeSRQInit {
  readonly maxWr: number;
  readonly maxSge: number;
  readonly srqLimit: number;
}

export class NativeSRQ extends NativeObject {
  readonly pd: OpenPD;
  /** The kernel's handle: unique among the SRQs of a context. */
  readonly handle: number;
  readonly maxWr: number;
  readonly #limits: PostLimits;
  readonly #address: number;
  readonly #maxSge: number;
  #limit: number;

  constructor(pd: OpenPD, init: NativeSRQInit) {
    const { device } = pd;
    const { maxSrqWr, maxSrqSge } = device.attributes;
    const fits =
      isWithin(init.maxWr, 1, maxSrqWr) &&
      isWithin(init.maxSge, 0, Math.min(maxSrqSge, SGE_LIMIT)) &&
      isWithin(init.srqLimit, 0, init.maxWr);
    if (!fits) {
      throw new NativeError(
        'refused',
        'EINVAL',
        `${device.subject} cannot create this receive queue`,
      );
    }
    const raw = new StructBlock('ibv_srq_init_attr')
      .set('attr.max_wr', init.maxWr)
      .set('attr.max_sge', init.maxSge)
      .set('attr.srq_limit', init.srqLimit);
    const pointer = device.libraries.verbs.ibv_create_srq(pd.pointer, raw.address);
    checkPointer('ibv_create_srq', device.subject, pointer);
    super(`the shared receive queue of ${device.info.name}`, pointer, [pd]);
    this.pd = pd;
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
    this.#address = pointer;
    this.#maxSge = Math.max(raw.get('attr.max_sge'), init.maxSge);
    this.#limit = init.srqLimit;
    device.objects.set(pointer, this);
  }

  /** Posts receives; fails like `NativeQP.postRecv`. */
  postRecv(requests: readonly RecvWR[]): void {
    const { device } = this.pd;
    const outcome = postReceives(requests, this.#limits, device.hot.postSrqRecv, this.pointer);
    if (outcome.posted < requests.length || outcome.errno !== 0) {
      throw receivePostError(outcome, requests, device.info.name, this.#maxSge);
    }
  }

  /** Arms the limit event; 0 disarms it. EINVAL beyond the capacity. */
  setLimit(srqLimit: number): void {
    if (!isWithin(srqLimit, 0, this.maxWr)) {
      throw new NativeError('refused', 'EINVAL', `${this.subject} holds ${this.maxWr} receives`);
    }
    const raw = new StructBlock('ibv_srq_attr').set('srq_limit', srqLimit);
    const { verbs } = this.pd.device.libraries;
    checkResult(
      'ibv_modify_srq',
      this.subject,
      verbs.ibv_modify_srq(this.pointer, raw.address, CONSTANTS.IBV_SRQ_LIMIT),
    );
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
    const { verbs } = this.pd.device.libraries;
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
    checkResult(
      'ibv_destroy_srq',
      this.subject,
      this.pd.device.libraries.verbs.ibv_destroy_srq(pointer),
    );
  }

  protected override released(): void {
    this.pd.device.objects.delete(this.#address);
  }
}

function isWithin(value: number, min: number, max: number): boolean {
  return Number.isInteger(value) && value >= min && value <= max;
}
