/**
 * The queue pair: the verbs' object over one stream. Upwards it has queues and completions,
 * downwards it is the `StreamUser` that the protocol engine places into and sends from.
 *
 * States and their legal changes are in qp-state.ts; the README has the diagram. Two rules hold
 * throughout: methods of `StreamUser` never call the stream (the engine is inside it), and nothing
 * that a peer or a client wrote can make one of them throw.
 *
 * Specifications: RFC 5040 §5–7, RFC 5041 §5–7, RFC 7306 §5–8.
 */
import type { QPAttributes, QPCapabilities } from '../../verbs-api/contract/attributes.ts';
import { Access, AsyncEventType, QPState } from '../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import { CQEStatus, QueueFlag, RQE, SQOpcode } from '../../verbs-api/contract/queue-layout.ts';
import {
  type AtomicAccess,
  Fault,
  type InboundMessage,
  type OutboundMessage,
  type StreamUser,
} from '../engine/placement.ts';
import type { Micros, StreamFailure, StreamPort } from '../engine/stream-api.ts';
import { ATOMIC_WORD_BYTES } from './atomic-operation.ts';
import { CompletionGate } from './completion-gate.ts';
import type { CQ } from './completion-queue.ts';
import type { EffectQueue } from './effect.ts';
import { failureText, faultEvent, lossText, refusedRequestStatus } from './failure-event.ts';
import type { MemoryBacking } from './memory-backing.ts';
import type { MW, WindowUser } from './memory-window.ts';
import { countOutbound } from './nic-counters.ts';
import { PeerAccess, type PeerAccessHost } from './peer-access.ts';
import type { PD } from './protection-domain.ts';
import { isFlushing, isIdle, qpAction, qpStateName } from './qp-state.ts';
import { ReceiveQueue } from './receive-queue.ts';
import { SendQueue, type SendQueueHost } from './send-queue.ts';
import type { SRQ } from './shared-receive-queue.ts';
import { invalidateRemotely } from './stag-operations.ts';

/** Options of a queue pair. */
export interface QPInit {
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly capabilities: QPCapabilities;
  /** Every work request completes, flagged or not. */
  readonly sqSigAll: boolean;
  /** Supplies the memory of SQ and RQ: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  /** Supplies the memory of the RQ apart from the SQ's. Default: both are in `ring`. */
  readonly receiveRing?: (bytes: number) => Uint8Array;
  /**
   * Where the send queue keeps how far it is, for whoever has to flush it should this process end
   * all of a sudden: in the first element, the lower 16 bits are those of the index of the ring's
   * next element, the upper ones count the work requests before it that are not completed yet.
   * Asked for after the ring.
   */
  readonly progress?: () => Int32Array | undefined;
  /** Told of every state that the QP enters; it must not call the QP. */
  readonly onState?: (state: QPState) => void;
  readonly tag: unknown;
}

/** Where the queues are in the ring memory. */
export interface QPLayout {
  readonly ring: Uint8Array;
  readonly sqCount: number;
  /** Holds the RQ at `rqOffset`; it may be `ring`. */
  readonly receiveRing: Uint8Array;
  readonly rqOffset: number;
  /** 0 with a shared receive queue. */
  readonly rqCount: number;
}

/** What a queue pair needs of its device. */
export interface QPHost extends SendQueueHost, PeerAccessHost {
  readonly effects: EffectQueue;
  /** QPs that have to call their stream once nobody is inside it. */
  readonly unsettled: Set<QP>;
  /** QPs that wait for memory to be fetched or written. */
  readonly waiting: Set<QP>;
  /** The latest time that the device was told. */
  now: Micros;
}

/** What the stream has to be told once nobody is inside it. */
type Unsettled = 'nothing' | 'fail' | 'disconnect';

/** The rights of a QP are those of the memory that it touches; none are withheld here. */
const QP_ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;

/** A reliable-connected queue pair. */
export class QP implements StreamUser, WindowUser {
  readonly qpn: number;
  readonly pd: PD;
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly rqOffset: number;
  readonly rqCount: number;
  readonly capabilities: QPCapabilities;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly ownWindows = new Set<MW>();
  tag: unknown;
  /** Receives that this QP took, to find a stream that takes more than its share of an SRQ. */
  receivesTaken = 0;
  private currentState: QPState = QPState.RESET;
  private currentStream: StreamPort | undefined = undefined;
  /** Data of the peer may be placed: a stream is attached and work is not being flushed. */
  private receiving = false;
  private ird = 0;
  private ord = 0;
  private unsettled: Unsettled = 'nothing';
  private failureReason = '';
  /** The consumer was told why the stream fails; later reports of it are echoes. */
  private reported = false;
  /** The consumer closes it, so nobody is left to hear of events. */
  private closing = false;
  private drainTold = false;
  private closed = false;
  private readonly srq: SRQ | undefined;
  private readonly sqSigAll: boolean;
  private readonly onState: ((state: QPState) => void) | undefined;
  private readonly host: QPHost;
  private readonly onClose: () => void;
  private readonly gate: CompletionGate;
  private readonly sendQueue: SendQueue;
  private readonly receiveQueue: ReceiveQueue;
  private readonly memory: PeerAccess;
  private readonly wrote: (backing: MemoryBacking) => void;

  /** `init` has been checked; `onClose` gives the device's slot back. */
  constructor(
    qpn: number,
    pd: PD,
    init: QPInit,
    layout: QPLayout,
    host: QPHost,
    onClose: () => void,
  ) {
    this.qpn = qpn;
    this.pd = pd;
    this.ring = layout.ring;
    this.sqCount = layout.sqCount;
    this.rqOffset = layout.rqOffset;
    this.rqCount = layout.rqCount;
    this.capabilities = init.capabilities;
    this.sendCQ = init.sendCQ;
    this.recvCQ = init.recvCQ;
    this.srq = init.srq;
    this.sqSigAll = init.sqSigAll;
    this.tag = init.tag;
    this.onState = init.onState;
    this.host = host;
    this.onClose = onClose;
    this.gate = new CompletionGate(qpn, () => host.waiting.add(this));
    this.wrote = (backing): void => this.gate.wrote(backing);
    this.memory = new PeerAccess(host, this, this.gate);
    const { ring, sqCount, receiveRing, rqOffset, rqCount } = layout;
    const { sqSigAll, sendCQ, srq } = init;
    const progress = init.progress?.();
    const { gate } = this;
    this.sendQueue = new SendQueue(ring, sqCount, host, this, sendCQ, gate, sqSigAll, progress);
    this.receiveQueue = new ReceiveQueue(receiveRing, rqOffset, rqCount, srq, pd, host.stags);
    pd.members += 1;
    this.sendCQ.users += 1;
    this.recvCQ.users += 1;
    if (this.srq !== undefined) this.srq.users += 1;
  }

  // Getters

  get state(): QPState {
    return this.currentState;
  }

  /** The stream that the QP is attached to, until it ends. */
  get stream(): StreamPort | undefined {
    return this.currentStream;
  }

  /** Work requests that were taken from the send queue, flushed ones among them, modulo 2^32. */
  get sendsTaken(): number {
    return this.sendQueue.taken;
  }

  query(): QPAttributes {
    return {
      state: this.currentState,
      capabilities: this.capabilities,
      accessFlags: QP_ACCESS,
      maxRdAtomic: this.ord,
      maxDestRdAtomic: this.ird,
      sqSigAll: this.sqSigAll,
    };
  }

  // Commands of the consumer

  /** The send queue has new elements. Spurious calls do no harm. */
  doorbell(now: Micros): void {
    this.host.now = now;
    if (isFlushing(this.currentState)) {
      this.flush();
    } else if (this.currentState === QPState.RTS || this.currentState === QPState.SQD) {
      this.currentStream?.pump(now);
      this.settle(now);
    }
  }

  /**
   * Requests a state (qp-state.ts says which are legal). EINVAL for the others, RTS without an
   * established stream among them.
   */
  modify(state: QPState, now: Micros): void {
    this.host.now = now;
    const action = qpAction(this.currentState, state);
    if (this.closed || action === undefined) {
      const from = qpStateName(this.currentState);
      throw new VerbsError('EINVAL', `a QP cannot go from ${from} to ${qpStateName(state)}`);
    }
    switch (action) {
      case 'none':
        return;
      case 'set':
        this.transition(state);
        return;
      case 'reset':
        this.reset(now);
        return;
      case 'drain':
        this.drain(now);
        return;
      case 'terminate':
        this.terminate(now);
        return;
      case 'flush':
        this.enterError();
        this.dropStream(now);
        return;
      default:
        action satisfies never;
    }
  }

  /** Destroys the QP: flushes, resets the stream, lets go of its windows. A second call is void. */
  close(now: Micros): void {
    if (this.closed) return;
    this.host.now = now;
    this.closing = true;
    this.enterError();
    this.dropStream(now);
    for (const mw of this.ownWindows) mw.invalidate();
    this.closed = true;
    this.host.unsettled.delete(this);
    this.pd.members -= 1;
    this.sendCQ.users -= 1;
    this.recvCQ.users -= 1;
    if (this.srq !== undefined) this.srq.users -= 1;
    this.onClose();
  }

  private reset(now: Micros): void {
    this.dropStream(now);
    this.sendQueue.reset();
    this.receiveQueue.reset();
    this.ird = 0;
    this.ord = 0;
    this.unsettled = 'nothing';
    this.reported = false;
    this.drainTold = false;
    this.transition(QPState.RESET);
  }

  // DDP-6.2.1-02: what is posted from here on is not sent any more, but flushed.
  private drain(now: Micros): void {
    this.sendQueue.drain();
    this.transition(QPState.SQD);
    this.checkDrained();
    if (this.unsettled === 'nothing') this.currentStream?.pump(now);
    this.settle(now);
  }

  private terminate(now: Micros): void {
    this.reported = true;
    this.enterFlushing(QPState.SQE);
    this.failureReason = 'the consumer terminated the stream';
    this.unsettled = 'fail';
    this.settle(now);
  }

  // Commands of the connection manager

  /** Binds the stream that is being set up. EISCONN when there is one; EINVAL unless idle. */
  attach(stream: StreamPort): void {
    if (this.currentStream !== undefined) {
      throw new VerbsError('EISCONN', 'the QP has a stream already');
    }
    if (this.closed || !isIdle(this.currentState)) {
      const state = this.closed ? 'closed' : `in state ${qpStateName(this.currentState)}`;
      throw new VerbsError('EINVAL', `a QP that is ${state} cannot connect`);
    }
    this.currentStream = stream;
    this.pd.streams += 1;
    this.updateReceiving();
  }

  /** The stream came to nothing before Full Operation; the QP stays as it is and may try again. */
  detach(stream: StreamPort): void {
    if (this.currentStream === stream) this.letGo();
  }

  /** Full Operation: goes to RTS and starts what was posted before. */
  established(depths: { readonly ird: number; readonly ord: number }, now: Micros): void {
    this.host.now = now;
    if (this.currentStream === undefined || !isIdle(this.currentState)) return;
    this.ird = depths.ird;
    this.ord = depths.ord;
    this.sendQueue.open(depths.ord);
    this.transition(QPState.RTS);
    this.currentStream.pump(now);
    this.settle(now);
  }

  /** A Terminate was sent or came: all work completes in error, the stream goes on to close. */
  terminated(by: 'us' | 'peer', failure: StreamFailure, now: Micros): void {
    this.host.now = now;
    if (this.currentStream === undefined || isFlushing(this.currentState)) return;
    if (by === 'peer') this.sendQueue.blameOldestRequest(refusedRequestStatus(failure));
    this.enterFlushing(QPState.SQE);
    // RDMAP-7.1-01, DDP-8.3-03: the consumer hears of it, whatever went over the wire.
    const event = by === 'us' ? faultEvent(failure) : AsyncEventType.qpFatal;
    this.report(event, failureText(by, failure));
  }

  /** The stream is over: by FIN, or for the reason given. What is posted is flushed. */
  streamEnded(failure: StreamFailure | undefined, now: Micros): void {
    this.host.now = now;
    if (this.currentStream === undefined) return;
    const connected = !isIdle(this.currentState);
    this.letGo();
    this.enterError();
    if (connected && failure !== undefined) {
      this.report(AsyncEventType.qpFatal, lossText(failure));
    }
  }

  // Calls of the device

  /** Tells the stream what could not be told while the engine was inside it. */
  settle(now: Micros): void {
    const { unsettled, currentStream } = this;
    if (unsettled === 'nothing') return;
    this.unsettled = 'nothing';
    this.host.unsettled.delete(this);
    if (currentStream === undefined) return;
    if (unsettled === 'fail') currentStream.fail({ kind: 'local', text: this.failureReason }, now);
    else currentStream.disconnect(now);
    this.host.effects.push({ type: 'disconnect', qp: this });
  }

  /** Memory that somebody waited for is there. */
  memoryReady(): void {
    if (!this.gate.release()) this.host.waiting.add(this);
    this.currentStream?.pump(this.host.now);
    this.settle(this.host.now);
  }

  /** Flushes what was posted to a QP in error. False when the QP is not in error. */
  flushPosted(now: Micros): boolean {
    this.host.now = now;
    if (!isFlushing(this.currentState)) return false;
    this.flush();
    return true;
  }

  // StreamUser: tagged data that come in

  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
    last = false,
  ): Fault {
    if (!this.receiving) return Fault.stagInvalid;
    const fault = this.memory.placeWrite(stag, toHi, toLo, octets, start, length);
    if (last && fault === Fault.none) this.host.counters.inWrites += 1;
    return fault;
  }

  inputEnded(): Fault {
    return this.gate.settle() ? Fault.none : Fault.memoryLost;
  }

  placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    octets: Uint8Array,
    start: number,
    length: number,
  ): Fault {
    const request = this.sendQueue.oldestRequest;
    if (!this.receiving || request === undefined || request.atomic) return Fault.stagInvalid;
    // RDMAP-5.2.2-06, RDMAP-5.2.2-07: only into the sink that the oldest read named, and only as
    // long as its owner keeps it registered.
    const { sink } = request;
    if (stag !== request.sinkStag || !sink.alive) return Fault.stagInvalid;
    if (toHi === 0xffffffff && toLo + length >= 2 ** 32) return Fault.toWrap;
    const offset = toHi * 2 ** 32 + toLo - request.sinkTo;
    if (offset < 0 || offset + length > request.lengthBytes) return Fault.bounds;
    return this.memory.place(sink.backing, request.sinkOffset + offset, octets, start, length);
  }

  readCompleted(): void {
    // RDMAP-5.2.2-04, RDMAP-5.5-05: the data are placed, the consumer may see them now.
    this.sendQueue.requestCompleted();
    this.checkDrained();
  }

  atomicCompleted(originalHi: number, originalLo: number): void {
    const request = this.sendQueue.oldestRequest;
    if (request === undefined) return;
    const { word, wordView } = this.host;
    wordView.setUint32(0, originalLo, true);
    wordView.setUint32(4, originalHi, true);
    const { sink } = request;
    const placed =
      sink.alive &&
      this.memory.write(sink.backing, request.sinkOffset, word, 0, ATOMIC_WORD_BYTES) ===
        Fault.none;
    if (!placed) {
      this.sendQueue.blameOldestRequest(CQEStatus.locProtErr);
      this.failLocally(
        AsyncEventType.qpAccessErr,
        'the result of an atomic has no memory any more',
      );
      return;
    }
    this.sendQueue.requestCompleted();
    this.checkDrained();
  }

  // StreamUser: untagged data that come in

  beginReceive(): Fault {
    const { receiveQueue } = this;
    const { watch } = this.host;
    if (!this.receiving) return Fault.noBuffer;
    if (watch.observer !== undefined) receiveQueue.tellNext(watch, this.qpn);
    const fault = receiveQueue.take();
    if (fault === Fault.noBuffer) {
      this.host.counters.faults += 1;
      return fault;
    }
    this.receivesTaken += 1;
    this.host.counters.receivesTaken += 1;
    if (fault === Fault.none) return Fault.none;
    // Our own consumer posted what cannot be used; for the stream its memory is not there.
    this.endReceive(receiveQueue.takeStatus);
    return Fault.memoryLost;
  }

  placeReceive(mo: number, octets: Uint8Array, start: number, length: number): Fault {
    const { receiveQueue } = this;
    if (!this.receiving || !receiveQueue.active) return Fault.noBuffer;
    // RDMAP-5.3-04: nothing of the segment is placed.
    if (mo + length > receiveQueue.capacityBytes) {
      this.host.counters.faults += 1;
      this.endReceive(CQEStatus.locLenErr);
      return Fault.messageTooLong;
    }
    const fault = receiveQueue.place(mo, octets, start, length, this.wrote);
    if (fault === Fault.none) this.host.counters.placedBytes += length;
    else this.endReceive(CQEStatus.locProtErr);
    return fault;
  }

  completeReceive(message: InboundMessage): Fault {
    if (!this.receiving || !this.receiveQueue.active) return Fault.noBuffer;
    let flags = message.solicited ? QueueFlag.solicited : 0;
    let hi = 0;
    let lo = 0;
    if (message.invalidates) {
      // RDMAP-5.3-09, RDMAP-5.3-11: at delivery, before the consumer can see the completion.
      const fault = invalidateRemotely(this.host, this, message.invalidateStag);
      if (fault !== Fault.none) {
        this.host.counters.faults += 1;
        this.endReceive(CQEStatus.remInvReqErr);
        return fault;
      }
      this.host.counters.invalidations += 1;
      flags |= QueueFlag.remoteInvalidate;
      lo = message.invalidateStag;
    } else if (message.hasImmediate) {
      flags |= QueueFlag.immediate;
      hi = message.immediateHi;
      lo = message.immediateLo;
    }
    const { lengthBytes, solicited, hasImmediate } = message;
    if (hasImmediate) this.host.counters.inImmediates += 1;
    else this.host.counters.inSends += 1;
    this.tellReceive(CQEStatus.success, lengthBytes, flags, hi, lo, solicited);
    return Fault.none;
  }

  // StreamUser: requests of the peer

  checkReadSource(stag: number, toHi: number, toLo: number, length: number): Fault {
    if (!this.receiving) return Fault.stagInvalid;
    const fault = this.memory.check(stag, toHi, toLo, length, Access.remoteRead);
    if (fault === Fault.none) this.host.counters.inReads += 1;
    return fault;
  }

  prepareReadSource(stag: number, toHi: number, toLo: number, length: number): boolean {
    return this.memory.prepareSource(stag, toHi, toLo, length) || this.waitForMemory();
  }

  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): Fault {
    if (!this.receiving) return Fault.stagInvalid;
    return this.memory.gatherSource(stag, toHi, toLo, length, target, targetStart);
  }

  executeAtomic(access: AtomicAccess): Fault {
    return this.receiving ? this.memory.executeAtomic(access) : Fault.stagInvalid;
  }

  // StreamUser: what goes out

  nextMessage(message: OutboundMessage): boolean {
    const { currentState, sendQueue } = this;
    if (currentState !== QPState.RTS && currentState !== QPState.SQD) return false;
    if (sendQueue.next(message)) {
      countOutbound(this.host.counters, message.kind);
      return true;
    }
    if (sendQueue.failedStatus !== CQEStatus.success) {
      this.failSend(sendQueue.failedStatus);
    } else if (sendQueue.overBudget) {
      sendQueue.overBudget = false;
      this.host.effects.push({ type: 'resume', qp: this });
    } else {
      this.checkDrained();
    }
    return false;
  }

  prepareGather(offset: number, length: number): boolean {
    return this.sendQueue.prepareGather(offset, length) || this.waitForMemory();
  }

  gather(offset: number, length: number, target: Uint8Array, targetStart: number): Fault {
    this.host.counters.gatheredBytes += length;
    return this.sendQueue.gather(offset, length, target, targetStart);
  }

  messageSent(): void {
    this.sendQueue.messageSent();
    if (this.currentState === QPState.SQD) this.checkDrained();
  }

  // Steps

  private waitForMemory(): false {
    this.host.waiting.add(this);
    return false;
  }

  private endReceive(status: CQEStatus): void {
    this.tellReceive(status, 0, 0, 0, 0, false);
  }

  private tellReceive(
    status: CQEStatus,
    bytes: number,
    flags: number,
    hi: number,
    lo: number,
    solicited: boolean,
  ): void {
    const { receiveQueue } = this;
    receiveQueue.active = false;
    const { wrIdLo, wrIdHi } = receiveQueue;
    this.countCompletion(status);
    const opcode = SQOpcode.receive;
    this.gate.tell(this.recvCQ, wrIdLo, wrIdHi, opcode, status, bytes, flags, hi, lo, solicited);
  }

  private countCompletion(status: CQEStatus): void {
    const { counters } = this.host;
    counters.completions += 1;
    if (status === CQEStatus.wrFlushErr) counters.flushes += 1;
    else if (status !== CQEStatus.success) counters.failures += 1;
  }

  private checkDrained(): void {
    if (this.currentState !== QPState.SQD || !this.sendQueue.drained) return;
    if (this.drainTold) return;
    this.drainTold = true;
    this.announce(AsyncEventType.sqDrained, 'all that was posted has been sent');
    this.unsettled = 'disconnect';
    this.host.unsettled.add(this);
  }

  private failSend(status: CQEStatus): void {
    const protection = status === CQEStatus.locProtErr;
    const text = protection
      ? 'a work request named memory that its QP may not use'
      : `a work request could not be carried out (completion status ${status})`;
    this.failLocally(AsyncEventType.qpFatal, text);
  }

  /** A fault of our own consumer: everything completes in error, the peer gets a Terminate. */
  private failLocally(event: AsyncEventType, text: string): void {
    this.report(event, text);
    this.enterError();
    this.failureReason = text;
    this.unsettled = 'fail';
    this.host.unsettled.add(this);
  }

  private enterError(): void {
    if (this.currentState !== QPState.ERR) this.enterFlushing(QPState.ERR);
  }

  private enterFlushing(state: QPState): void {
    const first = !isFlushing(this.currentState);
    this.transition(state);
    this.flush();
    // With a shared queue the consumer cannot see from flushes that the last receive is back.
    if (first && this.srq !== undefined) {
      this.announce(AsyncEventType.qpLastWqeReached, 'the QP takes no more shared receives');
    }
  }

  /** Completes everything in error: sends, then receives, each oldest first. */
  private flush(): void {
    const more = this.sendQueue.flush();
    if (this.receiveQueue.active) this.endReceive(CQEStatus.wrFlushErr);
    const moreReceives = this.flushReceives();
    if (more || moreReceives) this.host.effects.push({ type: 'resume', qp: this });
  }

  private flushReceives(): boolean {
    const elements = this.receiveQueue.ownElements;
    if (elements === undefined) return false;
    const { receiveQueue } = this;
    const { watch } = this.host;
    for (let budget = elements.count; budget > 0; budget -= 1) {
      if (!elements.ready()) return false;
      receiveQueue.wrIdLo = elements.view.getUint32(elements.position + RQE.wrId, true);
      receiveQueue.wrIdHi = elements.view.getUint32(elements.position + RQE.wrId + 4, true);
      if (watch.observer !== undefined) receiveQueue.tellNext(watch, this.qpn);
      elements.release();
      this.endReceive(CQEStatus.wrFlushErr);
    }
    return elements.ready();
  }

  private dropStream(now: Micros): void {
    const stream = this.currentStream;
    if (stream === undefined) return;
    this.letGo();
    stream.abort(now);
    this.host.effects.push({ type: 'abort', qp: this });
  }

  private letGo(): void {
    this.currentStream = undefined;
    this.pd.streams -= 1;
    this.updateReceiving();
  }

  private report(event: AsyncEventType, text: string): void {
    if (this.reported) return;
    this.reported = true;
    this.announce(event, text);
  }

  private announce(event: AsyncEventType, text: string): void {
    if (this.closing) return;
    this.host.effects.push({ type: 'async', event, element: this, text });
  }

  /** The only writer of the state. */
  private transition(state: QPState): void {
    this.currentState = state;
    this.updateReceiving();
    this.onState?.(state);
  }

  private updateReceiving(): void {
    this.receiving = this.currentStream !== undefined && !isFlushing(this.currentState);
  }
}
