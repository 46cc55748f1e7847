/**
 * The queue pair: the verbs' object on top of one stream. Upwards it has queues and completions;
 * downwards it is the `WireUser` that the protocol engine places into and sends from.
 *
 * States, stream and failures are in qp-lifecycle.ts; the README has the diagram. Two rules hold
 * throughout: methods of `WireUser` never call the stream (the engine is inside it), and nothing
 * that a peer or a client wrote can make one of them throw.
 *
 * Specifications: RFC 5040 §5–7, RFC 5041 §5–7, RFC 7306 §5–8.
 */
import type { Micros } from '#base/time';
import type { LentBytes } from '#base/transmit';
import { CQEStatus } from '#contract/protocol/queue-layout';
import type { QPCapabilities } from '#contract/verbs/attributes';
import { Access, AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import type { QPAttributes } from '#contract/verbs/qp-attributes';
import { isFlushing } from '#contract/verbs/qp-state';
import type { EffectSink } from './effect-sink.ts';
import type { Cause, CauseHolder, FailureEffect } from './failure-cause.ts';
import type { IBPort, PathAttributes } from './ib-port.ts';
import { ATOMIC_WORD_BYTES } from './memory/atomic-operation.ts';
import { DeferredReads } from './memory/deferred-reads.ts';
import type { PieceKind } from './memory/kept-pieces.ts';
import { LentStream } from './memory/lent-stream.ts';
import { NO_WINDOWS, type WindowUser } from './memory/memory-window.ts';
import { PeerAccess, type PeerAccessHost } from './memory/peer-access.ts';
import type { PD } from './memory/protection-domain.ts';
import { countOutbound } from './nic-counters.ts';
import type { QPModification } from './qp-attributes.ts';
import {
  type LifecycleEffect,
  type LifecycleHost,
  QPLifecycle,
  type SourceGid,
} from './qp-lifecycle.ts';
import type { QPInit, QPLayout } from './queue-pair-init.ts';
import { CompletionGate, type GateUser } from './queues/completion-gate.ts';
import type { CQ } from './queues/completion-queue.ts';
import { Receiver } from './queues/receiver.ts';
import { ResponseSink } from './queues/response-sink.ts';
import { SendQueue, type SendQueueHost } from './queues/send-queue.ts';
import type { SRQ } from './queues/shared-receive-queue.ts';
import type { CompletionRecord } from './rings/completion-writer.ts';
import {
  AccessRefusal,
  type AtomicAccess,
  type DeferringUser,
  type InboundMessage,
  type MessageFailure,
  type OutboundMessage,
  type Wire,
  type WireFailure,
} from './wire-port.ts';

export interface QPHost extends SendQueueHost, PeerAccessHost, LifecycleHost<QP> {
  readonly effects: EffectSink<QPEffect>;
  /** QPs that wait for memory to be fetched or written. */
  readonly waiting: Set<QP>;
  readonly ib: IBPort<QP> | undefined;
}

/** A QP withholds no rights here: the memory decides. */
const QP_ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;

export type QPEffect =
  | LifecycleEffect<QP>
  | FailureEffect<QP>
  /** Memory that the QP waited for is ready: its stream may have bytes to transmit. */
  | { readonly type: 'transmit'; readonly qp: QP };

export class QP implements CauseHolder, DeferringUser, WindowUser, GateUser {
  readonly qpn: number;
  readonly pd: PD;
  readonly type: QPType;
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly rqOffset: number;
  readonly rqCount: number;
  readonly capabilities: QPCapabilities;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly inlineAsked: number;
  ownWindows = NO_WINDOWS;
  /** The last error that it found, whether it ended the connection or not. */
  found: Cause | undefined = undefined;
  tag: unknown;
  /** Its number among the listed queue pairs of the device; undefined while it is not listed. */
  listedNumber: number | undefined = undefined;
  readonly #sqSigAll: boolean;
  readonly #host: QPHost;
  readonly #gate: CompletionGate;
  readonly #sendQueue: SendQueue;
  readonly #receiver: Receiver;
  readonly #deferred = new DeferredReads();
  /** Both are made when a peer first needs them: most queue pairs are idle. */
  #memory: PeerAccess | undefined = undefined;
  #responses: ResponseSink | undefined = undefined;
  readonly #lifecycle: QPLifecycle<QP>;

  /** `init` has been checked. */
  constructor(qpn: number, pd: PD, init: QPInit, layout: QPLayout, host: QPHost) {
    this.qpn = qpn;
    this.pd = pd;
    this.type = init.type ?? QPType.rc;
    this.ring = layout.ring;
    this.sqCount = layout.sqCount;
    this.rqOffset = layout.rqOffset;
    this.rqCount = layout.rqCount;
    this.capabilities = init.capabilities;
    this.sendCQ = init.sendCQ;
    this.recvCQ = init.recvCQ;
    this.srq = init.srq;
    this.inlineAsked = init.inlineAsked ?? init.capabilities.maxInlineData;
    this.#sqSigAll = init.sqSigAll;
    this.tag = init.tag;
    this.#host = host;
    this.#gate = new CompletionGate(this, host.counters, host.lentPayload);
    const { sends: elements, kind } = layout;
    const { sqSigAll, sendCQ: cq } = init;
    const gate = this.#gate;
    const progress = init.progress?.();
    const { type } = this;
    const queue = { elements, kind, type, cq, gate, sqSigAll, progress, deferred: this.#deferred };
    this.#sendQueue = new SendQueue(host, this, queue);
    this.#receiver = new Receiver(host, this, init, layout, gate);
    const { onState } = init;
    const parts = { gate, sendQueue: this.#sendQueue, receiver: this.#receiver, onState };
    this.#lifecycle = new QPLifecycle<QP>(this, host, parts);
  }

  // Getters

  get state(): QPState {
    return this.#lifecycle.state;
  }

  /** The stream that the QP is attached to, until it ends. */
  get wire(): Wire | undefined {
    return this.#lifecycle.wire;
  }

  /** Work requests taken from the send queue, flushed ones included, modulo 2^32. */
  get sendsTaken(): number {
    return this.#sendQueue.taken;
  }

  /** Why its work fails, from the failure to RESET. */
  get cause(): Cause | undefined {
    return this.#lifecycle.cause;
  }

  /** Receives taken by this QP, to find a stream that takes more than its share of an SRQ. */
  get receivesTaken(): number {
    return this.#receiver.taken;
  }

  /** The last of RESET, INIT, RTR and RTS that it has reached. */
  get furthest(): QPState {
    return this.#lifecycle.furthest;
  }

  /** Our GID as its program chose it, 16 bytes, and its index. */
  get source(): SourceGid | undefined {
    return this.#lifecycle.source;
  }

  /** Work requests with inline payload. */
  get sendsInlined(): number {
    return this.#sendQueue.inlined;
  }

  /** The most consecutive sends without a completion request. */
  get longestUnsignalled(): number {
    return this.#sendQueue.longestUnsignalled;
  }

  /** Messages that found no receive posted; each retry counts. */
  get receivesMissed(): number {
    return this.#receiver.missed;
  }

  /**
   * True if the peer should pause, since memory that it writes to lags. Once that memory has caught
   * up, the NIC makes the stream's host check again ('transmit').
   */
  get congested(): boolean {
    if (!this.#lifecycle.receiving || !this.#gate.congested) return false;
    this.#host.waiting.add(this);
    return true;
  }

  /** Completions that wait for memory, for simulations and tests. */
  get heldCompletions(): number {
    return this.#gate.heldCount;
  }

  query(): QPAttributes {
    return {
      state: this.#lifecycle.state,
      capabilities: this.capabilities,
      accessFlags: QP_ACCESS,
      maxRdAtomic: this.#lifecycle.ord,
      maxDestRdAtomic: this.#lifecycle.ird,
      sqSigAll: this.#sqSigAll,
    };
  }

  // Commands of the consumer

  /** The send queue has new elements. Spurious calls do no harm. */
  doorbell(now: Micros): void {
    this.#lifecycle.doorbell(now);
  }

  modify(state: QPState, now: Micros): void {
    this.#lifecycle.modify(state, now);
  }

  modifyPath(change: QPModification, now: Micros): void {
    this.#lifecycle.modifyPath(change, now);
  }

  queryPath(): PathAttributes {
    return this.#lifecycle.queryPath();
  }

  /** Destroys the QP: flushes and resets the stream. The second call does nothing. */
  close(now: Micros): void {
    this.#lifecycle.close(now);
    this.#sendQueue.end();
    this.#receiver.end();
  }

  // Commands of the connection manager: see `QPLifecycle`

  attach(wire: Wire): void {
    this.#lifecycle.attach(wire);
  }

  detach(wire: Wire): void {
    this.#lifecycle.detach(wire);
  }

  disconnecting(now: Micros): void {
    this.#lifecycle.disconnecting(now);
  }

  established(depths: { readonly ird: number; readonly ord: number }, now: Micros): void {
    this.#lifecycle.established(depths, now);
  }

  terminated(by: 'us' | 'peer', failure: WireFailure, now: Micros): void {
    this.#lifecycle.terminated(by, failure, now);
  }

  afterCopies(report: () => void): void {
    this.#lifecycle.afterCopies(report);
  }

  wireEnded(failure: WireFailure | undefined, now: Micros): void {
    this.#lifecycle.wireEnded(failure, now);
  }

  // Calls of the device

  /** Runs the commands that had to wait until the wire returned. */
  settle(now: Micros): void {
    this.#lifecycle.settle(now);
  }

  /** True if work is posted that the QP has not taken, receives in its own ring included. */
  get posted(): boolean {
    return this.#sendQueue.posted || this.#receiver.posted;
  }

  flushPosted(now: Micros, later = false): void {
    this.#lifecycle.flushPosted(now, later);
  }

  assertInvariants(): void {
    this.#lifecycle.assertInvariants();
  }

  /** Memory that the QP waited for is ready. */
  memoryReady(): void {
    if (!this.#gate.release()) this.#host.waiting.add(this);
    this.#lifecycle.memoryReady();
    if (this.#host.ib === undefined) this.settleLent();
    // An acknowledging wire must not report lost data as placed, so fail it first.
    if (this.#host.ib === undefined || this.#lifecycle.receiving)
      this.#lifecycle.wire?.pump(this.#host.now);
    this.#lifecycle.settle(this.#host.now);
  }

  // WireUser: inbound tagged data

  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    if (!this.#lifecycle.receiving) return this.#lifecycle.refusal(AccessRefusal.stagInvalid);
    if ((this.#lifecycle.granted & Access.remoteWrite) === 0) {
      return this.#forbid(stag, toHi, toLo, length, Access.remoteWrite);
    }
    return this.#peerAccess().placeWrite(stag, toHi, toLo, bytes, start, length);
  }

  checkWriteTarget(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    if (!this.#lifecycle.receiving) return this.#lifecycle.refusal(AccessRefusal.stagInvalid);
    if ((this.#lifecycle.granted & Access.remoteWrite) === 0) {
      return this.#forbid(stag, toHi, toLo, length, Access.remoteWrite);
    }
    // IBTA 9.7.4.1.3: ignore the key of a Write without data.
    if (length === 0) return AccessRefusal.none;
    return this.#peerAccess().check(stag, toHi, toLo, length, Access.remoteWrite);
  }

  writeCompleted(): void {
    if (this.#lifecycle.awaitsFirst) this.#lifecycle.received();
    this.#host.counters.inWrites += 1;
  }

  inputEnded(): AccessRefusal {
    return this.#settleMemory() ? AccessRefusal.none : AccessRefusal.memoryLost;
  }

  placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    if (!this.#lifecycle.receiving) return this.#lifecycle.refusal(AccessRefusal.stagInvalid);
    return this.#responseSink().placeRead(stag, toHi, toLo, bytes, start, length);
  }

  placeReadPart(offset: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    if (!this.#lifecycle.receiving) return this.#lifecycle.refusal(AccessRefusal.stagInvalid);
    return this.#responseSink().placePart(offset, bytes, start, length);
  }

  readCompleted(): void {
    // RDMAP-5.2.2-04, RDMAP-5.5-05: completes once the data is in place.
    this.#sendQueue.requestCompleted();
    this.#lifecycle.checkDrained();
  }

  atomicCompleted(originalHi: number, originalLo: number): void {
    const request = this.#sendQueue.oldestRequest;
    if (request === undefined) return;
    if (!this.#responseSink().completeAtomic(request, originalHi, originalLo)) {
      this.#lifecycle.failLocally(
        AsyncEventType.qpAccessErr,
        'the memory for the result of an atomic is gone',
      );
      return;
    }
    this.#lifecycle.checkDrained();
  }

  // WireUser: inbound untagged data

  beginReceive(): AccessRefusal {
    if (this.#lifecycle.awaitsFirst) this.#lifecycle.received();
    return this.#lifecycle.receiving
      ? this.#receiver.begin()
      : this.#lifecycle.refusal(AccessRefusal.noBuffer);
  }

  placeReceive(mo: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    const receiver = this.#receiver;
    if (!this.#lifecycle.receiving || !receiver.active)
      return this.#lifecycle.refusal(AccessRefusal.noBuffer);
    return receiver.place(mo, bytes, start, length);
  }

  completeReceive(message: InboundMessage): AccessRefusal {
    const receiver = this.#receiver;
    if (!this.#lifecycle.receiving || !receiver.active)
      return this.#lifecycle.refusal(AccessRefusal.noBuffer);
    // RDMAP-5.5-04: it promises that earlier Writes are in place, so it waits at the gate.
    return receiver.complete(message);
  }

  // WireUser: requests of the peer

  checkReadSource(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    if (!this.#lifecycle.receiving) return this.#lifecycle.refusal(AccessRefusal.stagInvalid);
    if (this.#lifecycle.awaitsFirst) this.#lifecycle.received();
    if ((this.#lifecycle.granted & Access.remoteRead) === 0) {
      return this.#forbid(stag, toHi, toLo, length, Access.remoteRead);
    }
    // Likewise for a Read.
    const refusal =
      length === 0 ? AccessRefusal.none : this.#peerAccess().checkSource(stag, toHi, toLo, length);
    if (refusal === AccessRefusal.none) this.#host.counters.inReads += 1;
    return refusal;
  }

  prepareReadSource(stag: number, toHi: number, toLo: number, length: number): boolean {
    return this.#peerAccess().prepareSource(stag, toHi, toLo, length) || this.#waitForMemory();
  }

  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    // Finish a Response that is partly on the wire, even after an error.
    if (this.#lifecycle.wire === undefined) return AccessRefusal.stagInvalid;
    return this.#peerAccess().gatherSource(stag, toHi, toLo, length, target, targetStart);
  }

  gatherReadSourceLater(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    if (this.#lifecycle.wire === undefined) return AccessRefusal.stagInvalid;
    return this.#peerAccess().gatherSourceLater(stag, toHi, toLo, length, target, targetStart);
  }

  executeAtomic(access: AtomicAccess): AccessRefusal {
    if (!this.#lifecycle.receiving) return this.#lifecycle.refusal(AccessRefusal.stagInvalid);
    if (this.#lifecycle.awaitsFirst) this.#lifecycle.received();
    if ((this.#lifecycle.granted & Access.remoteAtomic) === 0) {
      const { stag, toHi, toLo } = access;
      return this.#forbid(stag, toHi, toLo, ATOMIC_WORD_BYTES, Access.remoteAtomic);
    }
    return this.#peerAccess().executeAtomic(access);
  }

  // WireUser: outbound data

  nextMessage(message: OutboundMessage): boolean {
    const sendQueue = this.#sendQueue;
    if (!this.#lifecycle.connected) return false;
    if (sendQueue.next(message)) {
      countOutbound(this.#host.counters, message.kind);
      return true;
    }
    if (sendQueue.failedStatus !== CQEStatus.success) {
      this.#lifecycle.failSend();
    } else if (sendQueue.overBudget) {
      sendQueue.overBudget = false;
      this.#host.effects.push({ type: 'resume', qp: this });
    } else {
      this.#lifecycle.checkDrained();
    }
    return false;
  }

  prepareGather(slot: number, offset: number, length: number): boolean {
    return this.#sendQueue.prepareGather(slot, offset, length) || this.#waitForMemory();
  }

  gather(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    this.#host.counters.gatheredBytes += length;
    const refusal = this.#sendQueue.gather(slot, offset, length, target, targetStart);
    if (refusal !== AccessRefusal.none && isFlushing(this.#lifecycle.state))
      this.#lifecycle.flush();
    return refusal;
  }

  gatherLater(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    this.#host.counters.gatheredBytes += length;
    const refusal = this.#sendQueue.gatherLater(slot, offset, length, target, targetStart);
    if (refusal !== AccessRefusal.none && isFlushing(this.#lifecycle.state))
      this.#lifecycle.flush();
    return refusal;
  }

  mayLend(slot: number, offset: number, length: number, loans?: LentStream): boolean {
    if (isFlushing(this.#lifecycle.state)) return false;
    if (loans?.isOpen(this.#host.lentPayload.bytesMax) === false) return false;
    return this.#sendQueue.mayLend(slot, offset, length, loans);
  }

  lend(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
    loans?: LentStream,
  ): AccessRefusal {
    this.#host.counters.gatheredBytes += length;
    // Its message may wait for its copies.
    if (loans !== undefined) this.#host.waiting.add(this);
    const refusal = this.#sendQueue.lend(slot, offset, length, target, targetStart, loans);
    if (refusal !== AccessRefusal.none && isFlushing(this.#lifecycle.state))
      this.#lifecycle.flush();
    return refusal;
  }

  get lending(): boolean {
    const { lending } = this.#sendQueue;
    return lending !== undefined && lending.lent > 0;
  }

  settleLent(): void {
    const { lending } = this.#sendQueue;
    if (lending === undefined || (lending.framed === 0 && !lending.unread)) return;
    if (!lending.settle()) this.#lifecycle.failSend();
    else this.#lifecycle.checkDrained();
    if (lending.framed > 0) this.#host.waiting.add(this);
  }

  takeLent(lent: LentBytes | undefined): void {
    const gate = this.#gate;
    if (gate.lent instanceof LentStream) gate.lent.endDelivery();
    gate.lent = lent instanceof LentStream ? lent : this.#host.lentPayload;
  }

  get unread(): boolean {
    return this.#sendQueue.lending?.unread === true;
  }

  awaitCopies(): void {
    this.#host.waiting.add(this);
  }

  get copiesOrdered(): number {
    return this.#gate.copiesOrdered;
  }

  get copiesDone(): number {
    return this.#lifecycle.receiving ? this.#gate.copiesSettled : 0;
  }

  /** True if all memory that a peer's message may reach takes copies. */
  get takesLent(): boolean {
    return this.pd.notTaking === 0 && (this.srq === undefined || this.srq.pd.notTaking === 0);
  }

  /** True in error as well: data that arrived then must not be acknowledged. */
  get placing(): boolean {
    return this.#gate.waits || !this.#lifecycle.receiving;
  }

  gatheringEnded(): AccessRefusal {
    const refusal = this.#sendQueue.gatheringEnded();
    if (refusal !== AccessRefusal.none && isFlushing(this.#lifecycle.state))
      this.#lifecycle.flush();
    return refusal;
  }

  messageDone(): void {
    // The message was partly on the wire when the QP failed.
    if (isFlushing(this.#lifecycle.state)) {
      this.#lifecycle.flush();
      return;
    }
    const sendQueue = this.#sendQueue;
    sendQueue.messageDone();
    const { lending } = sendQueue;
    if (lending !== undefined && lending.framed > 0) this.#host.waiting.add(this);
    if (this.#lifecycle.state === QPState.SQD) this.#lifecycle.checkDrained();
  }

  messageFailed(failure: MessageFailure): void {
    this.#lifecycle.handleMessageFailed(failure);
  }

  // GateUser: slow or lost memory

  get receiving(): boolean {
    return this.#lifecycle.receiving;
  }

  awaitWrites(): void {
    this.#host.waiting.add(this);
  }

  handleLoss(kind: PieceKind | undefined): void {
    if (!this.#lifecycle.receiving) return;
    if (kind === 'response') this.#sendQueue.blameOldestRead(CQEStatus.locProtErr);
    else if (kind === 'receive') this.#receiver.fail();
    this.#lifecycle.failLocally(
      AsyncEventType.qpFatal,
      'registered memory was lost while data arrived for it',
    );
  }

  handleFailed(completion: CompletionRecord): void {
    this.#lifecycle.handleFailed(completion);
  }

  handleReported(): void {
    this.#receiver.countCompleted();
  }

  handleFullQueue(): void {
    // iWARP continues without it. An InfiniBand QP fails, and its peer times out.
    if (this.#host.ib !== undefined && this.#lifecycle.receiving) this.#lifecycle.failQuietly();
  }

  // Steps

  #peerAccess(): PeerAccess {
    this.#memory ??= new PeerAccess(this.#host, this, this.#gate, this.#deferred);
    return this.#memory;
  }

  #responseSink(): ResponseSink {
    this.#responses ??= new ResponseSink(
      this.#host,
      this,
      this.#sendQueue,
      this.#peerAccess(),
      this.#gate,
    );
    return this.#responses;
  }

  /** The queue pair itself forbids an access, whatever its memory grants. */
  #forbid(stag: number, toHi: number, toLo: number, length: number, right: number): AccessRefusal {
    this.#peerAccess().refuse(stag, toHi, toLo, length, right, AccessRefusal.notPermitted);
    return AccessRefusal.notPermitted;
  }

  /** Writes buffered segments and releases waiting completions. Returns false, with the QP failed, on a loss. */
  #settleMemory(): boolean {
    const gate = this.#gate;
    if (!gate.keeps && !gate.settledEarly) return true;
    gate.settledEarly = false;
    if (!gate.settle()) return false;
    this.#sendQueue.retire();
    this.#lifecycle.checkDrained();
    return true;
  }

  #waitForMemory(): false {
    this.#host.waiting.add(this);
    return false;
  }
}
