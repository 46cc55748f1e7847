/**
 * A queue pair of a native device, driven by its client's rings.
 *
 * Sends are taken from the ring while the connection is up (send-poster.ts). Receives are taken from
 * the start, since a native device needs them in advance (receive-poster.ts). Successes that the
 * client did not request are dropped here.
 *
 * The client sees a state that follows the transitions of emulated queue pairs (rnic/qp-state.ts). The
 * native queue pair is in INIT from the start, so that it accepts receives. It follows when the device
 * must act; RESET replaces it, since not every device can reset one.
 */
import { assert } from '#base/assert';
import {
  CQEStatus,
  QueueFlag,
  RQE,
  RQE_BYTES,
  SQE,
  SQE_BYTES,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import type { QPCapabilities } from '#contract/verbs/attributes';
import type { WC } from '#contract/verbs/completion';
import { AsyncEventType, QPState, QPType, WCFlag, WCStatus } from '#contract/verbs/enums';
import { invalid, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { QPAttributes } from '#contract/verbs/qp-attributes';
import { isFlushing, isIdle, qpAction, qpStateName } from '#contract/verbs/qp-state';
import type { DeviceQP } from '../host/served-device.ts';
import { countCompletion } from '../rnic/nic-counters.ts';
import { CompletionRecord } from '../rnic/rings/completion-writer.ts';
import { ElementRing } from '../rnic/rings/ring.ts';
import type { BridgedCQ } from './bridged-completion-queue.ts';
import type { BridgedPD } from './bridged-memory.ts';
import type { BridgedSRQ } from './bridged-shared-receive-queue.ts';
import { CQE_STATUSES } from './completion-status.ts';
import type { LowerQP } from './lower.ts';
import { ReceivePoster } from './receive-poster.ts';
import { BATCH, requestNumber } from './request-number.ts';
import { SendPoster } from './send-poster.ts';

/** Elements that one doorbell moves in one turn of the event loop. */
const TURN_BUDGET = 1024;

/** Counters of a native device, with the same meaning as those of emulated devices. */
export class BridgedCounters {
  sendsTaken = 0;
  receivesTaken = 0;
  completions = 0;
  flushes = 0;
  failures = 0;
  asyncEvents = 0;
}

export interface BridgedQPHost {
  readonly deviceName: string;
  /** True if the device flushes work posted to a native queue pair in ERR. */
  readonly flushesLatePosts: boolean;
  readonly counters: BridgedCounters;
  /** Creates the native queue pair, in INIT, and routes its completions to `qp`. */
  make(qp: BridgedQP): LowerQP;
  /** Releases the native queue pair, after moving its last completions. */
  unmake(qp: BridgedQP): void;
  /** Requests a call of `qp.pump` in a later turn. */
  later(qp: BridgedQP): void;
  raise(qp: BridgedQP, event: AsyncEventType, text: string): void;
  /** The device failed with an error that no queue pair can cause. */
  failed(qp: BridgedQP, error: VerbsError): void;
  forget(qp: BridgedQP): void;
}

interface BridgedQPParts {
  readonly host: BridgedQPHost;
  readonly pd: BridgedPD;
  readonly sendCQ: BridgedCQ;
  readonly recvCQ: BridgedCQ;
  readonly srq: BridgedSRQ | undefined;
  readonly capabilities: QPCapabilities;
  readonly sqSigAll: boolean;
  readonly tag: unknown;
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly rqOffset: number;
  readonly rqCount: number;
}

export class BridgedQP implements DeviceQP {
  readonly type = QPType.rc;
  tag: unknown;
  readonly pd: BridgedPD;
  readonly sendCQ: BridgedCQ;
  readonly recvCQ: BridgedCQ;
  readonly srq: BridgedSRQ | undefined;
  readonly capabilities: QPCapabilities;
  readonly sqSigAll: boolean;
  readonly sqCount: number;
  readonly rqOffset: number;
  readonly rqCount: number;
  /** Number of the first native queue pair, and the number that the client sees. */
  readonly qpn: number;
  /** Reused for all completions. */
  readonly #completion = new CompletionRecord();
  readonly #host: BridgedQPHost;
  readonly #sends: SendPoster;
  readonly #receives: ReceivePoster | undefined;
  #lower: LowerQP;
  #state: QPState = QPState.RESET;
  #connecting = false;
  #depths = { ird: 0, ord: 0 };
  #closed = false;

  constructor(parts: BridgedQPParts) {
    this.tag = parts.tag;
    this.pd = parts.pd;
    this.sendCQ = parts.sendCQ;
    this.recvCQ = parts.recvCQ;
    this.srq = parts.srq;
    this.capabilities = parts.capabilities;
    this.sqSigAll = parts.sqSigAll;
    this.sqCount = parts.sqCount;
    this.rqOffset = parts.rqOffset;
    this.rqCount = parts.rqCount;
    this.#host = parts.host;
    const { ring, sqCount, rqOffset, rqCount } = parts;
    this.#sends = new SendPoster({
      ring: new ElementRing(ring, 0, sqCount, SQE_BYTES, SQE.flags),
      maxSge: parts.capabilities.maxSendSge,
      maxInline: parts.capabilities.maxInlineData,
      reportAll: parts.sqSigAll,
      cq: parts.sendCQ,
      post: (requests) => this.#lower.postSend(requests),
      onRefused: (low, high, opcode, status) => {
        this.#complete(this.sendCQ, low, high, opcode, status, 0);
        this.#fail();
      },
    });
    this.#receives =
      parts.srq === undefined
        ? new ReceivePoster({
            ring: new ElementRing(ring, rqOffset, rqCount, RQE_BYTES, RQE.flags),
            maxSge: parts.capabilities.maxRecvSge,
            capacity: rqCount,
            post: (requests) => this.#lower.postRecv(requests),
            onRefused: (low, high) => this.#receiveRefused(low, high),
          })
        : undefined;
    this.#lower = parts.host.make(this);
    this.qpn = this.#lower.qpNum;
    this.#completion.qpn = this.qpn;
    this.pd.members += 1;
    this.sendCQ.writer.users += 1;
    this.recvCQ.writer.users += 1;
    if (this.srq !== undefined) this.srq.users += 1;
  }

  /** Name of the device, as clients know it. */
  get deviceName(): string {
    return this.#host.deviceName;
  }

  get sendsTaken(): number {
    return this.#sends.taken;
  }

  /** See `DeviceQP`; for a shared receive queue, only the device knows. */
  get receivesTaken(): number {
    return this.#receives?.taken ?? 0;
  }

  get state(): QPState {
    return this.#state;
  }

  /** The native queue pair; RESET replaces it. */
  get lower(): LowerQP {
    return this.#lower;
  }

  /** True from connect or accept until the connection has ended. */
  get connecting(): boolean {
    return this.#connecting;
  }

  query(): QPAttributes {
    return {
      state: this.#state,
      capabilities: this.capabilities,
      accessFlags: this.#lower.query().accessFlags,
      maxRdAtomic: this.#depths.ord,
      maxDestRdAtomic: this.#depths.ird,
      sqSigAll: this.sqSigAll,
    };
  }

  // Commands of the client

  /** Moves the rings' elements to the device, within the budget of a turn. */
  pump(): void {
    if (this.#closed) return;
    let more = true;
    try {
      for (let budget = TURN_BUDGET; more && budget > 0; budget -= BATCH) {
        more = isFlushing(this.#state) ? this.#flush() : this.#post();
      }
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      this.#state = QPState.ERR;
      this.#host.failed(this, error);
      return;
    }
    if (more) this.#host.later(this);
  }

  /** Posts a batch of the ring's receives; the doorbell posts the rest. */
  takeReceives(): void {
    const receives = this.#receives;
    if (receives?.waiting !== true || this.#closed || isFlushing(this.#state)) return;
    try {
      this.#postReceives();
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      this.#host.failed(this, error);
    }
  }

  /** See `DeviceQP`. EINVAL for transitions that qp-state.ts does not list. */
  modify(state: QPState): void {
    const action = qpAction(this.#state, state);
    if (this.#closed || action === undefined) {
      const from = qpStateName(this.#state);
      throw invalid(`a QP cannot go from ${from} to ${qpStateName(state)}`);
    }
    switch (action) {
      case 'none':
        return;
      case 'set':
        this.#state = state;
        this.pump();
        return;
      case 'reset':
        this.#reset();
        return;
      case 'drain':
        this.pump();
        this.#lower.modify(QPState.SQD);
        this.#state = state;
        return;
      case 'terminate':
        this.#lower.modify(QPState.SQE);
        this.#state = state;
        return;
      case 'flush':
        this.enterError();
        return;
      default:
        action satisfies never;
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#host.unmake(this);
    this.#closed = true;
    this.pd.members -= 1;
    this.#sends.forgetInFlight();
    this.sendCQ.writer.users -= 1;
    this.recvCQ.writer.users -= 1;
    if (this.srq !== undefined) this.srq.users -= 1;
    assert(this.pd.members >= 0, 'PD: members < 0');
    assert(this.sendCQ.writer.users >= 0, 'send CQ: users < 0');
    assert(this.recvCQ.writer.users >= 0, 'receive CQ: users < 0');
    assert((this.srq?.users ?? 0) >= 0, 'SRQ: users < 0');
    this.#host.forget(this);
  }

  // Commands of the connection manager

  /** A connection is being set up. EISCONN if there is one; EINVAL unless idle. */
  assertConnectable(): void {
    if (this.#connecting) throw new VerbsError('EISCONN', 'the QP has a connection already');
    if (this.#closed || !isIdle(this.#state)) {
      const state = this.#closed ? 'closed' : `in state ${qpStateName(this.#state)}`;
      throw invalid(`a QP that is ${state} cannot connect`);
    }
  }

  /** The connection manager was asked to connect. */
  connectionStarts(): void {
    this.#connecting = true;
    this.pump();
  }

  /** The connection attempt failed; the queue pair stays unchanged and may try again. */
  connectionFailed(): void {
    this.#connecting = false;
  }

  /** Connected: starts the work posted so far. */
  established(depths: { readonly ird: number; readonly ord: number }): void {
    if (!this.#connecting || !isIdle(this.#state)) return;
    this.#depths = depths;
    this.#state = QPState.RTS;
    this.pump();
  }

  /** The connection has ended: flushes posted work. */
  connectionEnded(): void {
    if (!this.#connecting) return;
    this.#connecting = false;
    this.enterError();
  }

  /** Moves to ERR, with the native queue pair, which flushes its work. */
  enterError(): void {
    if (this.#closed) return;
    this.#state = QPState.ERR;
    try {
      this.#lower.modify(QPState.ERR);
    } catch (error) {
      // Some devices are already in ERR and report that as an error.
      if (!isVerbsError(error)) throw error;
    }
    this.sendCQ.move();
    if (this.recvCQ !== this.sendCQ) this.recvCQ.move();
    // Such a device will never flush work that it has not flushed by now.
    if (!this.#host.flushesLatePosts) this.#flushInFlight();
    this.pump();
  }

  /** The device is gone: flushes its work here. */
  deviceLost(): void {
    if (this.#closed) return;
    this.#state = QPState.ERR;
    this.#connecting = false;
    this.#flushInFlight();
    this.pump();
  }

  #flushInFlight(): void {
    this.#sends.takeAll(this.#flushSend);
    this.#receives?.takeAll(this.#flushReceive);
  }

  // From the completion queues

  handleCompletion(wc: WC): void {
    const { receive, number } = requestNumber(wc.wrId);
    if (receive) this.#received(wc, number);
    else this.#sent(wc, number);
  }

  #sent(wc: WC, number: number): void {
    const request = this.#sends.complete(number);
    if (request === undefined) return;
    const { wrIdLo, wrIdHi, opcode, reported } = request;
    const failed = wc.status !== WCStatus.success;
    if (failed) this.#noteFailure();
    if (reported || failed) {
      this.#complete(this.sendCQ, wrIdLo, wrIdHi, opcode, CQE_STATUSES.get(wc.status), wc.byteLen);
    }
    // There is room for more, or this was the last one before a rejected or flushed one.
    if (this.#sends.waiting) this.#host.later(this);
  }

  #received(wc: WC, number: number): void {
    const poster = this.srq?.receives ?? this.#receives;
    const requests = poster?.inFlight;
    if (requests === undefined || !requests.take(number)) return;
    const { wrIdLo, wrIdHi } = requests;
    if (wc.status !== WCStatus.success) this.#noteFailure();
    const invalidated = (wc.wcFlags & WCFlag.withInv) !== 0;
    const completion = this.#completion;
    completion.wrIdLo = wrIdLo;
    completion.wrIdHi = wrIdHi;
    completion.opcode = SQOpcode.receive;
    completion.status = CQE_STATUSES.get(wc.status) ?? CQEStatus.generalErr;
    completion.lengthBytes = wc.byteLen;
    completion.flags = invalidated ? QueueFlag.remoteInvalidate : 0;
    completion.immediateLo = wc.invalidatedRkey;
    // A completion does not say whether the peer solicited an event; an extra one is harmless.
    completion.solicited = true;
    this.#push(this.recvCQ);
    if (poster?.waiting === true) this.#host.later(this);
  }

  #complete(
    cq: BridgedCQ,
    wrIdLo: number,
    wrIdHi: number,
    opcode: number,
    status: CQEStatus | undefined,
    bytes: number,
  ): void {
    const completion = this.#completion;
    completion.wrIdLo = wrIdLo;
    completion.wrIdHi = wrIdHi;
    completion.opcode = opcode;
    completion.status = status ?? CQEStatus.generalErr;
    completion.lengthBytes = bytes;
    completion.flags = 0;
    completion.immediateLo = 0;
    completion.solicited = false;
    this.#push(cq);
  }

  /** Writes the completion into the client's ring. */
  #push(cq: BridgedCQ): void {
    countCompletion(this.#host.counters, this.#completion.status);
    cq.writer.push(this.#completion);
  }

  /** A request failed: the device flushes, and the connection will end. */
  #noteFailure(): void {
    if (!isFlushing(this.#state)) this.#state = this.#connecting ? QPState.SQE : QPState.ERR;
  }

  // Posting

  /** Moves a batch of each kind. Returns true if there may be more. */
  #post(): boolean {
    const receives = this.#postReceives();
    const connected = this.#state === QPState.RTS || this.#state === QPState.SQD;
    return (connected && this.#postSends()) || receives;
  }

  #postReceives(): boolean {
    const poster = this.#receives;
    if (poster === undefined) return this.srq?.pump() ?? false;
    const posted = poster.pump();
    this.#host.counters.receivesTaken += posted;
    return posted === BATCH;
  }

  #postSends(): boolean {
    const posted = this.#sends.pump();
    this.#host.counters.sendsTaken += posted;
    return posted === BATCH;
  }

  #receiveRefused(wrIdLo: number, wrIdHi: number): void {
    this.#complete(this.recvCQ, wrIdLo, wrIdHi, SQOpcode.receive, CQEStatus.locQpOpErr, 0);
    this.#fail();
  }

  /** The device cannot execute a request: the queue pair fails with it. */
  #fail(): void {
    const text = `${this.#host.deviceName} cannot carry out a work request`;
    this.#host.raise(this, AsyncEventType.qpFatal, text);
    this.enterError();
  }

  // Flushing

  /** Flushes a batch of work that never reached the device. Returns true if there may be more. */
  #flush(): boolean {
    const sends = this.#sends.flush(this.#flushSend);
    return this.#flushReceives() || sends;
  }

  #flushReceives(): boolean {
    // While the connection is ending, its last message may still consume a posted receive.
    if (this.#receives === undefined || this.#state !== QPState.ERR) return false;
    return this.#receives.flush(this.#flushReceive);
  }

  readonly #flushSend = (wrIdLo: number, wrIdHi: number, opcode: number): void => {
    this.#flushed(this.sendCQ, wrIdLo, wrIdHi, opcode);
  };

  readonly #flushReceive = (wrIdLo: number, wrIdHi: number): void => {
    this.#flushed(this.recvCQ, wrIdLo, wrIdHi, SQOpcode.receive);
  };

  #flushed(cq: BridgedCQ, wrIdLo: number, wrIdHi: number, opcode: number): void {
    this.#complete(cq, wrIdLo, wrIdHi, opcode, CQEStatus.wrFlushErr, 0);
  }

  /** Drops all work and creates another native queue pair. */
  #reset(): void {
    this.#host.unmake(this);
    this.#sends.clear();
    this.#receives?.clear();
    this.#connecting = false;
    this.#depths = { ird: 0, ord: 0 };
    this.#state = QPState.RESET;
    this.#lower = this.#host.make(this);
  }
}
