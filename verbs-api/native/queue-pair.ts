/** Queue pairs. */
import type { QPCapabilities } from '#contract/verbs/attributes';
import { Completion, type WC } from '#contract/verbs/completion';
import { QPState, QPType, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type { CQ, PD, QP, QPInit, SRQ } from '#contract/verbs/provider';
import type { QPAttributes, QPModification } from '#contract/verbs/qp-attributes';
import { isIdle, qpAction, qpStateName } from '#contract/verbs/qp-state';
import { checkCall } from '#contract/verbs/signatures';
import type { RecvWR, SendFields, SendWR } from '#contract/verbs/work-request';
import { NativeError, unsupported } from '#native-bridge/rdma/errors';
import type { NativeQP } from '#native-bridge/rdma/queue-pair';
import { TeardownRank } from '../client/lifetime.ts';
import { RdmaCQ } from './completion-queue.ts';
import {
  DeviceObject,
  type DeviceScope,
  type FlushingQueuePair,
  type NativeDomain,
} from './device-scope.ts';
import { HeldSends } from './held-sends.ts';
import { listOf } from './posting.ts';
import { RdmaSRQ } from './shared-receive-queue.ts';

export class RdmaQP extends DeviceObject implements QP, FlushingQueuePair {
  readonly pd: PD;
  readonly type = QPType.rc;
  readonly native: NativeQP;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly #sendQueue: RdmaCQ;
  readonly #recvQueue: RdmaCQ;
  /** Derived from requests and connection events: drivers do not distinguish RESET from INIT. */
  #state: QPState = QPState.RESET;
  #connected = false;
  readonly #held = new HeldSends();

  constructor(pd: NativeDomain, init: QPInit) {
    const { scope } = pd;
    super(scope, 'queue pair');
    const { sendCQ, recvCQ, srq, type = QPType.rc } = init;
    if (type !== QPType.rc) throw lacking(scope, 'queue pairs of a type other than RC');
    this.pd = pd;
    this.sendCQ = sendCQ;
    this.recvCQ = recvCQ;
    this.#sendQueue = ownCQ(sendCQ);
    this.#recvQueue = ownCQ(recvCQ);
    this.native = pd.native.createQP({
      sendCQ: this.#sendQueue.native,
      recvCQ: this.#recvQueue.native,
      srq: srq === undefined ? undefined : nativeSRQ(srq),
      maxSendWr: init.maxSendWr,
      maxRecvWr: init.maxRecvWr,
      maxSendSge: init.maxSendSge ?? 1,
      maxRecvSge: init.maxRecvSge ?? 1,
      maxInlineData: init.maxInlineData ?? 0,
      sqSigAll: init.sqSigAll ?? false,
    });
    scope.queuePairs.set(this.native.qpNum, this);
    scope.add(this, TeardownRank.queuePair);
  }

  get handle(): number {
    return this.native.handle;
  }

  get qpNum(): number {
    return this.native.qpNum;
  }

  get capabilities(): QPCapabilities {
    return this.native.capabilities;
  }

  /** True from the start of a connection until the next RESET. */
  get connected(): boolean {
    return this.#connected;
  }

  get state(): QPState {
    return this.#state;
  }

  postSend(wr: SendWR | readonly SendWR[]): void {
    this.assertUsable();
    const requests = listOf<SendFields>(wr);
    if (this.#idle) this.#held.add(this.native, requests);
    else if (this.#flushesHere) this.#flushSends(requests);
    else this.#postSends(requests);
  }

  postRecv(wr: RecvWR | readonly RecvWR[]): void {
    this.assertUsable();
    const requests = listOf(wr);
    if (this.#flushesHere) this.#flushReceives(requests);
    else this.native.postRecv(requests);
  }

  async modify(attributes: QPModification): Promise<void> {
    checkCall.modifyQP(attributes);
    this.assertUsable();
    const { state, ...rest } = attributes;
    if (state === undefined || Object.values(rest).some((value) => value !== undefined)) {
      throw lacking(this.scope, 'attributes of a queue pair beside its state');
    }
    const current = this.#currentState();
    // Checked here, since drivers accept more transitions (siw: any), into states that no
    // connection leads to.
    if (qpAction(current, state) === undefined) {
      throw invalid(`a QP cannot go from ${qpStateName(current)} to ${qpStateName(state)}`);
    }
    const { info, traits } = this.native.device;
    if (state === QPState.RESET && !isIdle(current) && !traits.resets) {
      throw unsupported(
        info.name,
        'transition to RESET for a queue pair that was connected or failed',
      );
    }
    this.native.modify(state);
    this.#moveTo(state);
    if (state !== QPState.RESET) return;
    this.#connected = false;
    this.#held.take();
  }

  async query(): Promise<QPAttributes> {
    this.assertUsable();
    const { type, qpNum } = this;
    return { ...this.native.query(), type, qpNum, state: this.#currentState() };
  }

  async attachMcast(gid: string): Promise<void> {
    checkCall.attachMcast(gid);
    this.assertUsable();
    throw lacking(this.scope, 'multicast groups');
  }

  async detachMcast(gid: string): Promise<void> {
    checkCall.detachMcast(gid);
    this.assertUsable();
    throw lacking(this.scope, 'multicast groups');
  }

  noteFlushing(): void {
    this.#moveTo(QPState.ERR);
  }

  /** The connection manager moved it to INIT. */
  noteInitialised(): void {
    this.#state = QPState.INIT;
  }

  /** A connect or accept with it has started. */
  noteConnecting(): void {
    this.#connected = true;
  }

  /** The attempt failed: it may be connected again. */
  noteNotConnected(): void {
    this.#connected = false;
  }

  noteEstablished(): void {
    if (this.#state !== QPState.ERR) this.#moveTo(QPState.RTS);
  }

  noteDisconnected(): void {
    this.#moveTo(QPState.ERR);
    if (this.native.disposed || this.presence.lost) return;
    try {
      // A connection that ended gracefully leaves siw's queue pair idle; in ERR it flushes.
      this.native.modify(QPState.ERR);
    } catch {
      // It is in ERR already, or its device is gone.
    }
  }

  protected override released(): void {
    const { queuePairs } = this.scope;
    if (queuePairs.get(this.qpNum) === this) queuePairs.delete(this.qpNum);
    super.released();
  }

  /** Not connected yet: sends wait for the connection. */
  get #idle(): boolean {
    return isIdle(this.#state);
  }

  #moveTo(state: QPState): void {
    const waited = this.#idle && !isIdle(state);
    this.#state = state;
    if (!waited || this.native.disposed) return;
    const requests = this.#held.take();
    if (requests.length === 0) return;
    if (this.#flushesHere) this.#flushSends(requests);
    else this.#postSends(requests);
  }

  /** The device may detect the end of the connection before this side does. */
  #postSends(requests: readonly SendFields[]): void {
    try {
      this.native.postSend(requests);
    } catch (error) {
      const ended = error instanceof NativeError && error.code === 'ENOTCONN';
      if (!ended || this.native.device.traits.flushesLatePosts) throw error;
      this.#state = QPState.ERR;
      this.#flushSends(requests.slice(error.badIndex ?? 0));
    }
  }

  /** Posts are flushed here, since the device does not flush them. */
  get #flushesHere(): boolean {
    return this.#state === QPState.ERR && !this.native.device.traits.flushesLatePosts;
  }

  #flushSends(requests: readonly SendFields[]): void {
    const refusal = this.native.checkSend(requests);
    const sound = requests.slice(0, refusal?.badIndex ?? requests.length);
    this.#sendQueue.pushFlushed(sound.map((wr) => flushedSend(wr, this.qpNum)));
    if (refusal !== undefined) throw refusal;
  }

  #flushReceives(requests: readonly RecvWR[]): void {
    const refusal = this.native.checkRecv(requests);
    const sound = requests.slice(0, refusal?.badIndex ?? requests.length);
    this.#recvQueue.pushFlushed(sound.map((wr) => flushedReceive(wr, this.qpNum)));
    if (refusal !== undefined) throw refusal;
  }

  /** The device knows of errors before they are reported; everything else is known here. */
  #currentState(): QPState {
    const { state } = this.native.query();
    return state === QPState.ERR || state === QPState.SQE ? state : this.#state;
  }
}

function ownCQ(cq: CQ): RdmaCQ {
  if (!(cq instanceof RdmaCQ)) throw invalid('the completion queue belongs to another provider');
  cq.assertUsable();
  return cq;
}

function nativeSRQ(srq: SRQ): RdmaSRQ['native'] {
  if (!(srq instanceof RdmaSRQ))
    throw invalid('the shared receive queue belongs to another provider');
  srq.assertUsable();
  return srq.native;
}

/** Native devices are iWARP's. */
function lacking({ native }: DeviceScope, what: string): NativeError {
  return unsupported(native.info.name, `${what}: it speaks iWARP`);
}

const SEND_OPCODES: Readonly<Record<WROpcode, WCOpcode>> = {
  [WROpcode.send]: WCOpcode.send,
  [WROpcode.sendWithImm]: WCOpcode.send,
  [WROpcode.sendWithInv]: WCOpcode.send,
  [WROpcode.immediate]: WCOpcode.send,
  [WROpcode.rdmaWrite]: WCOpcode.rdmaWrite,
  [WROpcode.rdmaWriteWithImm]: WCOpcode.rdmaWrite,
  [WROpcode.rdmaRead]: WCOpcode.rdmaRead,
  [WROpcode.atomicCmpAndSwap]: WCOpcode.compSwap,
  [WROpcode.atomicFetchAndAdd]: WCOpcode.fetchAdd,
  [WROpcode.localInv]: WCOpcode.localInv,
  [WROpcode.bindMW]: WCOpcode.bindMW,
};

/** Completions of requests posted in ERR, for devices that do not flush them. */
export function flushedSend(wr: SendFields, qpNum: number): WC {
  return flushed(wr.wrId, SEND_OPCODES[wr.opcode], qpNum);
}

export function flushedReceive(wr: RecvWR, qpNum: number): WC {
  return flushed(wr.wrId, WCOpcode.recv, qpNum);
}

function flushed(wrId: number | bigint | undefined, opcode: WCOpcode, qpNum: number): WC {
  const wc = new Completion();
  wc.wrId = BigInt.asUintN(64, BigInt(wrId ?? 0));
  wc.status = WCStatus.wrFlushErr;
  wc.opcode = opcode;
  wc.qpNum = qpNum;
  return wc;
}
