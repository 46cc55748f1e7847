/** Queue pairs: posting through the context's pointers, and states. */
import type { QPCapabilities } from '#contract/verbs/attributes';
import type { QPState } from '#contract/verbs/enums';
import { sendRefusal } from '#contract/verbs/post-refusal';
import type { QPAttributes } from '#contract/verbs/qp-attributes';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import type { NativeCQ } from './completion-queue.ts';
import { invalid, type NativeError } from './errors.ts';
import { CONSTANTS } from './layouts.ts';
import type { NativeObject } from './native-object.ts';
import { create, NativeDeviceObject } from './open-device.ts';
import { postError, receivePostError } from './post-error.ts';
import type { NativeSRQ } from './shared-receive-queue.ts';
import { peek, StructBlock } from './struct-block.ts';
import {
  checkReceives,
  checkSends,
  INLINE_LIMIT,
  type PostLimits,
  type PostOutcome,
  postReceives,
  postSends,
  SGE_LIMIT,
} from './work-request-list.ts';

export interface NativeQPInit {
  readonly sendCQ: NativeCQ;
  readonly recvCQ: NativeCQ;
  readonly srq?: NativeSRQ | undefined;
  readonly maxSendWr: number;
  readonly maxRecvWr: number;
  readonly maxSendSge: number;
  readonly maxRecvSge: number;
  /** Bytes. */
  readonly maxInlineData: number;
  readonly sqSigAll: boolean;
}

const QUERY_MASK =
  CONSTANTS.IBV_QP_STATE |
  CONSTANTS.IBV_QP_ACCESS_FLAGS |
  CONSTANTS.IBV_QP_MAX_QP_RD_ATOMIC |
  CONSTANTS.IBV_QP_MAX_DEST_RD_ATOMIC |
  CONSTANTS.IBV_QP_CAP;

/** A reliable-connected queue pair. */
export class NativeQP extends NativeDeviceObject {
  readonly sendCQ: NativeCQ;
  readonly recvCQ: NativeCQ;
  readonly srq: NativeSRQ | undefined;
  /** The kernel's handle: unique among the queue pairs of a context. */
  readonly handle: number;
  readonly qpNum: number;
  readonly capabilities: QPCapabilities;
  readonly sqSigAll: boolean;
  readonly #limits: PostLimits;

  constructor(pd: NativeDeviceObject, init: NativeQPInit) {
    const { device } = pd;
    assertFits(pd, init);
    const raw = new StructBlock('ibv_qp_init_attr')
      .set('send_cq', init.sendCQ.pointer)
      .set('recv_cq', init.recvCQ.pointer)
      .set('srq', init.srq?.pointer ?? 0)
      .set('cap.max_send_wr', init.maxSendWr)
      .set('cap.max_recv_wr', init.maxRecvWr)
      .set('cap.max_send_sge', init.maxSendSge)
      .set('cap.max_recv_sge', init.maxRecvSge)
      .set('cap.max_inline_data', init.maxInlineData)
      .set('qp_type', CONSTANTS.IBV_QPT_RC)
      .set('sq_sig_all', init.sqSigAll ? 1 : 0);
    const pointer = create(device, 'ibv_create_qp', pd.pointer, raw.address);
    const parents: NativeObject[] = [pd, init.sendCQ, init.recvCQ];
    if (init.srq !== undefined) parents.push(init.srq);
    super(device, 'queue pair', pointer, parents);
    this.sendCQ = init.sendCQ;
    this.recvCQ = init.recvCQ;
    this.srq = init.srq;
    this.sqSigAll = init.sqSigAll;
    this.handle = peek('ibv_qp', 'handle', pointer);
    this.qpNum = peek('ibv_qp', 'qp_num', pointer);
    this.capabilities = {
      maxSendWr: raw.get('cap.max_send_wr'),
      maxRecvWr: raw.get('cap.max_recv_wr'),
      maxSendSge: raw.get('cap.max_send_sge'),
      maxRecvSge: raw.get('cap.max_recv_sge'),
      maxInlineData: raw.get('cap.max_inline_data'),
    };
    this.#limits = {
      device: device.info.name,
      traits: device.traits,
      atomics: device.attributes.atomics,
      maxSendSge: init.maxSendSge,
      maxRecvSge: init.maxRecvSge,
      maxSgeRead: Math.min(init.maxSendSge, device.attributes.maxSgeRd),
      maxInline: Math.min(this.capabilities.maxInlineData, INLINE_LIMIT),
    };
  }

  /**
   * Posts send requests, one call per 64. Throws `NativeError` with the index of the first that
   * failed: EINVAL, EOPNOTSUPP, or ENOMEM if the queue is full; earlier ones are posted.
   */
  postSend(requests: readonly SendFields[]): void {
    const queue = this.pointer;
    const outcome = postSends(requests, this.#limits, this.device.hot.postSend, queue);
    if (outcome.posted < requests.length || outcome.errno !== 0)
      throw this.#sendRefusal(outcome, requests);
  }

  /** Returns the error that `postSend` would throw, except for a full queue. Posts nothing. */
  checkSend(requests: readonly SendFields[]): NativeError | undefined {
    const outcome = checkSends(requests, this.#limits);
    return outcome.posted < requests.length ? this.#sendRefusal(outcome, requests) : undefined;
  }

  /** Like `checkSend`, for receives. */
  checkRecv(requests: readonly RecvWR[]): NativeError | undefined {
    if (this.srq !== undefined) return this.#hasSRQ();
    const outcome = checkReceives(requests, this.#limits);
    return outcome.posted < requests.length ? this.#receiveRefusal(outcome, requests) : undefined;
  }

  /** Posts receives. Fails like `postSend`. */
  postRecv(requests: readonly RecvWR[]): void {
    const queue = this.pointer;
    if (this.srq !== undefined) throw this.#hasSRQ();
    const outcome = postReceives(requests, this.#limits, this.device.hot.postRecv, queue);
    if (outcome.posted < requests.length || outcome.errno !== 0)
      throw this.#receiveRefusal(outcome, requests);
  }

  /** Requests a state only. Throws the device's error. */
  modify(state: QPState): void {
    const raw = new StructBlock('ibv_qp_attr').set('qp_state', state);
    this.applyAttributes(raw, CONSTANTS.IBV_QP_STATE);
  }

  /** `ibv_modify_qp`, with the connection manager's attributes. */
  applyAttributes(attributes: StructBlock<'ibv_qp_attr'>, mask: number): void {
    this.call('ibv_modify_qp', this.pointer, attributes.address, mask);
  }

  /** Returns state, sizes and read depths. */
  query(): QPAttributes {
    const raw = new StructBlock('ibv_qp_attr');
    const init = new StructBlock('ibv_qp_init_attr');
    this.call('ibv_query_qp', this.pointer, raw.address, QUERY_MASK, init.address);
    const { swapsDepths } = this.device.traits;
    return {
      state: raw.get('qp_state') as QPState,
      capabilities: this.capabilities,
      accessFlags: raw.get('qp_access_flags'),
      maxRdAtomic: raw.get(swapsDepths ? 'max_dest_rd_atomic' : 'max_rd_atomic'),
      maxDestRdAtomic: raw.get(swapsDepths ? 'max_rd_atomic' : 'max_dest_rd_atomic'),
      sqSigAll: this.sqSigAll,
    };
  }

  protected override destroy(pointer: number): void {
    this.call('ibv_destroy_qp', pointer);
  }

  #sendRefusal(outcome: PostOutcome, requests: readonly SendFields[]): NativeError {
    const { info } = this.device;
    const { maxSendSge, maxSgeRead, maxInline } = this.#limits;
    const limits = { maxSge: maxSendSge, maxReadSge: maxSgeRead, maxInline };
    return postError(outcome, requests, info.name, (wr, code) => sendRefusal(wr, code, limits));
  }

  #receiveRefusal(outcome: PostOutcome, requests: readonly RecvWR[]): NativeError {
    return receivePostError(outcome, requests, this.device.info.name, this.#limits.maxRecvSge);
  }

  #hasSRQ(): NativeError {
    return invalid(`${this.subject} receives from its SRQ: post there`, 0);
  }
}

function assertFits(pd: NativeDeviceObject, init: NativeQPInit): void {
  const { attributes: device, traits } = pd.device;
  const sameDevice = [init.sendCQ, init.recvCQ, init.srq].every(
    (part) => part === undefined || part.device === pd.device,
  );
  const fits =
    sameDevice &&
    isCount(init.maxSendWr, device.maxQpWr) &&
    isCount(init.maxRecvWr, device.maxQpWr) &&
    isCount(init.maxSendSge, Math.min(device.maxSge, SGE_LIMIT)) &&
    isCount(init.maxRecvSge, Math.min(device.maxSge, SGE_LIMIT)) &&
    isCount(init.maxInlineData, Math.min(traits.maxInline, INLINE_LIMIT));
  if (!fits) {
    const text = `${pd.device.subject} cannot create this queue pair, or one of its objects belongs to another context`;
    throw invalid(text);
  }
}

function isCount(value: number, max: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= max;
}
