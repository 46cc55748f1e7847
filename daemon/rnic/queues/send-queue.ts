/**
 * The send queue: takes elements out of the shared ring, starts them in order, and completes them
 * in order.
 *
 * An element is copied and returned to the client when it is taken. It may then wait here: for its
 * fence, or for a read slot (ORD). Started work completes when its message is done (iWARP: framed, and its
 * lent payload copied; a wire that retransmits: acknowledged) or its response has arrived; completions are
 * written in posting order.
 *
 * Order and fences: RFC 5040 §5.5. Depth: RFC 5040 §6.1 and RFC 7306 §5.2.
 */
import { assert } from '#base/assert';
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPType } from '#contract/verbs/enums';
import type { AddressHandles } from '../address-handle.ts';
import { type CauseHolder, MEMORY_GONE, namedRange } from '../failure-cause.ts';
import { AtomicOpcode } from '../memory/atomic-operation.ts';
import type { DeferredReads } from '../memory/deferred-reads.ts';
import { GatheredPayload } from '../memory/gathered-payload.ts';
import type { LentPayload } from '../memory/lent-payload.ts';
import type { LentStream } from '../memory/lent-stream.ts';
import type { WindowUser } from '../memory/memory-window.ts';
import { ReadAhead } from '../memory/read-ahead.ts';
import { advanceHi, advanceLo } from '../memory/region-address.ts';
import { bindWindow, invalidateLocally, type StagHost } from '../memory/stag-operations.ts';
import type { NicCounters } from '../nic-counters.ts';
import { type SendFormat, sendFormat } from '../rings/queue-format.ts';
import { type RingKind, TURN_ELEMENTS_MAX, type WorkRing } from '../rings/ring.ts';
import { type SendWqe, WorkKind } from '../rings/send-wqe.ts';
import {
  AccessRefusal,
  type NamedRange,
  OutboundKind,
  type OutboundMessage,
} from '../wire-port.ts';
import type { CompletionGate } from './completion-gate.ts';
import type { CQ } from './completion-queue.ts';
import { Lending } from './lending.ts';
import { COMPLETED, OpenMessages } from './open-messages.ts';
import { OutstandingQueue, type OutstandingRequest, StartedQueue } from './outstanding.ts';
import { workRefusal } from './work-refusal.ts';
import type { WorkWatch } from './work-watch.ts';

/** Both kinds of rings start with the id. */
const WR_ID = 0;

const QPN_MASK = 0xff_ffff;
/** Of a send queue that is not connected; never filled. */
const NO_REQUESTS = new OutstandingQueue(0);

/** A send queue's interface to its queue pair and device. */
export interface SendQueueHost extends StagHost {
  readonly counters: NicCounters;
  readonly watch: WorkWatch;
  readonly addressHandles: AddressHandles;
  readonly lentPayload: LentPayload;
}

interface SendQueueOptions {
  readonly elements: WorkRing;
  readonly kind: RingKind;
  readonly type: QPType;
  readonly cq: CQ;
  readonly gate: CompletionGate;
  readonly sqSigAll: boolean;
  /** Where the queue publishes its progress: see `QPInit`. */
  readonly progress: Int32Array | undefined;
  /** Fetches deferred reads of payload. */
  readonly deferred: DeferredReads;
}

export class SendQueue {
  /** Its lent payload; undefined before the first message that is long enough. */
  lending: Lending | undefined = undefined;
  /** Set once a work request fails: the status it completes with when the queue is flushed. */
  failedStatus: CQEStatus = CQEStatus.success;
  /** Set if local operations used up their budget and more are waiting. */
  overBudget = false;
  /** Work requests with inline payload. */
  inlined = 0;
  /** The most consecutive work requests without a completion request. */
  longestUnsignalled = 0;
  #unsignalled = 0;
  readonly #elements: WorkRing;
  readonly #format: SendFormat;
  readonly #type: QPType;
  readonly #messages: OpenMessages;
  readonly #started: StartedQueue;
  readonly #deferred: DeferredReads;
  /** Allocated with the first payload. */
  #gathered: GatheredPayload | undefined = undefined;
  #ahead: ReadAhead | undefined = undefined;
  #outstanding = NO_REQUESTS;
  #ord = 0;
  /** A WQE was taken and has not started. */
  #held = false;
  /** A Write is framed and its Immediate Data must follow at once. */
  #immediateDue = false;
  #immediateSent = true;
  /** Index at which a draining queue stops. */
  #limit: number | undefined = undefined;
  /** Work stays in the ring (SQD of a queue pair that its program connects). */
  #paused = false;
  readonly #host: SendQueueHost;
  readonly #user: WindowUser & CauseHolder;
  readonly #cq: CQ;
  readonly #gate: CompletionGate;
  readonly #sqSigAll: boolean;
  readonly #progress: Int32Array | undefined;

  constructor(host: SendQueueHost, user: WindowUser & CauseHolder, options: SendQueueOptions) {
    const { elements, kind } = options;
    this.#elements = elements;
    this.#format = sendFormat(kind, host.ib !== undefined);
    this.#type = options.type;
    this.#started = new StartedQueue(elements.count);
    this.#messages = new OpenMessages(host.stags, this.#format);
    this.#host = host;
    this.#user = user;
    this.#cq = options.cq;
    this.#gate = options.gate;
    this.#sqSigAll = options.sqSigAll;
    this.#progress = options.progress;
    this.#deferred = options.deferred;
  }

  /** Elements taken from the ring, modulo 2^32. */
  get taken(): number {
    return this.#elements.index;
  }

  // Commands

  /** True if posted work has not been taken. */
  get posted(): boolean {
    return this.#elements.ready();
  }

  /** The QP is gone, and with it the ring. */
  end(): void {
    this.#elements.end?.();
  }

  /** Sets the limit of outstanding reads and atomics (ORD). The queue must be idle. */
  open(ord: number): void {
    this.#paused = false;
    this.#ord = ord;
    this.#outstanding = new OutstandingQueue(ord);
  }

  /** Starts no work until `open`. */
  pause(): void {
    this.#paused = true;
  }

  /** Starts no work beyond that posted so far. */
  drain(): void {
    this.#limit = (this.#elements.index + this.#elements.readyCount()) >>> 0;
  }

  /** True once all work to drain is complete. */
  get drained(): boolean {
    if (this.#paused) return this.#started.empty;
    return this.#limit === this.#elements.index && !this.#held && this.#started.empty;
  }

  /**
   * Takes and starts the next work request that has a message, and describes the message. Performs
   * local operations on the way. Returns false if nothing may start now; `failedStatus` and
   * `overBudget` report special reasons.
   */
  next(message: OutboundMessage): boolean {
    if (this.#immediateDue) return this.#startImmediate(message);
    if (this.#paused) return false;
    for (let budget = this.#turnShare(); budget > 0; budget -= 1) {
      if (!this.#held && !this.#take()) return false;
      const wqe = this.#messages.latest;
      // The fence waits for responses: RDMAP alone would let this overtake them (RFC 5040 §5.5).
      if ((wqe.flags & QueueFlag.readFence) !== 0) {
        if (this.#outstanding.count > 0) return false;
        this.#ahead?.forget();
      }
      switch (wqe.kind) {
        case WorkKind.message:
          if (this.#type === QPType.ud && !this.#address(message)) return false;
          return this.#startMessage(message);
        case WorkKind.read:
        case WorkKind.atomic:
          return this.#startRequest(message);
        case WorkKind.bind:
          if (!this.#finishLocal(bindWindow(this.#host, this.#user, wqe), CQEStatus.mwBindErr)) {
            return false;
          }
          this.#host.counters.binds += 1;
          break;
        case WorkKind.invalidate:
          if (!this.#invalidate(wqe)) return false;
          this.#host.counters.invalidations += 1;
          break;
        default:
          wqe.kind satisfies never;
      }
    }
    // A client that keeps posting local operations must not delay other clients.
    this.overBudget = this.#held || this.#elements.ready();
    return false;
  }

  /** Elements of the ring for one turn. */
  #turnShare(): number {
    return Math.min(this.#elements.count, TURN_ELEMENTS_MAX);
  }

  /** Takes the ring's next element into the WQE. */
  #take(): boolean {
    const elements = this.#elements;
    if (this.#started.full || elements.index === this.#limit || !elements.ready()) return false;
    const wqe = this.#messages.vacant();
    const status = this.#format.read(wqe, elements, this.#user.pd);
    wqe.order = elements.index;
    if (this.#host.watch.observer !== undefined) this.#reportTaken();
    this.#held = true;
    this.#releaseHeld();
    this.#host.counters.sendsTaken += 1;
    if (status !== CQEStatus.success) {
      this.#fail(status);
      return false;
    }
    if (this.#type === QPType.rc || permits(this.#type, wqe)) return true;
    wqe.refusal = 'opcode not supported on queue pairs of this type';
    this.#fail(CQEStatus.locQpOpErr);
    return false;
  }

  /**
   * Returns the element of held work to the client. The element counts as unfinished before it is
   * free: if the daemon ends in between, the preload library completes counted work, and would miss
   * an element neither posted nor counted.
   */
  #releaseHeld(): void {
    this.#publish((this.#elements.index + 1) >>> 0);
    this.#elements.release();
  }

  #reportTaken(): void {
    this.#format.report(this.#host.watch, this.#user.qpn, this.#elements, this.#sqSigAll);
  }

  /** Adds the WQE to the started ones. */
  #start(): number {
    const wqe = this.#messages.latest;
    this.#held = false;
    const signalled = this.#sqSigAll || (wqe.flags & QueueFlag.signalled) !== 0;
    this.#unsignalled = signalled ? 0 : this.#unsignalled + 1;
    if (this.#unsignalled > this.longestUnsignalled) this.longestUnsignalled = this.#unsignalled;
    if ((wqe.flags & QueueFlag.inline) !== 0) this.inlined += 1;
    return this.#started.push(wqe.wrIdLo, wqe.wrIdHi, wqe.opcode, signalled, wqe.lengthBytes);
  }

  #fail(status: CQEStatus): void {
    this.#user.found = workRefusal(this.#host, this.#user, this.#messages.latest, status);
    this.failedStatus = status;
    this.#started.blame(this.#start(), status);
  }

  /** Sets the destination of a datagram. Returns false if the address handle does not exist. */
  #address(message: OutboundMessage): boolean {
    const wqe = this.#messages.latest;
    const handle = this.#host.addressHandles.find(wqe.addressHandle, this.#user.pd);
    message.address = handle;
    message.remoteQpn = wqe.remoteQpn & QPN_MASK;
    message.qkey = wqe.qkey;
    if (handle !== undefined) return true;
    wqe.refusal = `no address handle ${wqe.addressHandle}`;
    this.#fail(CQEStatus.locQpOpErr);
    return false;
  }

  #invalidate(wqe: SendWqe): boolean {
    const { ib } = this.#host;
    // InfiniBand: local operations wait for all earlier work.
    if (ib !== undefined && !this.#started.empty) return false;
    const failure = ib === undefined ? CQEStatus.mwBindErr : CQEStatus.locQpOpErr;
    return this.#finishLocal(invalidateLocally(this.#host, this.#user, wqe.rkey), failure);
  }

  #finishLocal(done: boolean, failure: CQEStatus): boolean {
    if (!done) {
      this.#fail(failure);
      return false;
    }
    this.#messages.latest.lengthBytes = 0;
    this.#started.finish(this.#start(), CQEStatus.success);
    this.retire();
    return true;
  }

  // RDMAP-5.1-05, RDMAP-5.2.1-06: one remote buffer per message.
  #startMessage(message: OutboundMessage): true {
    const wqe = this.#messages.latest;
    this.#messages.open(this.#start());
    this.#immediateSent =
      wqe.outbound !== OutboundKind.write || wqe.opcode !== SQOpcode.writeWithImm;
    message.kind = wqe.outbound;
    message.slot = wqe.slot;
    message.lengthBytes = wqe.lengthBytes;
    message.lendable = wqe.lengthBytes >= this.#host.lentPayload.bytesMin;
    message.solicited = (wqe.flags & QueueFlag.solicited) !== 0;
    message.remoteStag = wqe.rkey;
    message.remoteToHi = wqe.remoteHi;
    message.remoteToLo = wqe.remoteLo;
    message.invalidateStag = wqe.rkey;
    message.immediateHi = wqe.immediateHi;
    message.immediateLo = wqe.immediateLo;
    return true;
  }

  // RDMAPX-6-01: a Write with immediate is a Write directly followed by an Immediate Data message.
  #startImmediate(message: OutboundMessage): true {
    const wqe = this.#messages.latest;
    this.#immediateDue = false;
    this.#immediateSent = true;
    message.kind = OutboundKind.immediate;
    message.slot = wqe.slot;
    message.lengthBytes = 8;
    message.solicited = (wqe.flags & QueueFlag.solicited) !== 0;
    message.immediateHi = wqe.immediateHi;
    message.immediateLo = wqe.immediateLo;
    return true;
  }

  #startRequest(message: OutboundMessage): boolean {
    const wqe = this.#messages.latest;
    const outstanding = this.#outstanding;
    if (this.#ord === 0) {
      // Fail it, or it could wait forever: the peer serves no reads on this stream.
      wqe.refusal = 'the connection was made without Reads and atomics: its ORD is 0';
      this.#fail(CQEStatus.locQpOpErr);
      return false;
    }
    // RDMAP-6.1-03, RDMAPX-5.2-01: reads and atomics beyond ORD wait, and all later work with them.
    if (outstanding.full) return false;
    this.#messages.open(this.#start());
    this.#immediateSent = true;
    const request = outstanding.push();
    const sink = wqe.sges.firstEntry;
    request.index = wqe.started;
    request.atomic = wqe.kind === WorkKind.atomic;
    request.lengthBytes = wqe.lengthBytes;
    request.sink = sink;
    request.pieces = wqe.sges.scattered ? wqe.sges : undefined;
    request.sinkOffset = wqe.sges.firstOffset;
    // RDMAP-5.2.1-08: the sink of an empty read is ignored; zeros reveal the least to the peer.
    request.sinkStag = wqe.lengthBytes === 0 ? 0 : sink.stag;
    const distance = request.sinkOffset - sink.backingOffset;
    request.sinkToHi = wqe.lengthBytes === 0 ? 0 : advanceHi(sink.toHi, sink.toLo, distance);
    request.sinkToLo = wqe.lengthBytes === 0 ? 0 : advanceLo(sink.toLo, distance);
    message.kind = wqe.outbound;
    message.slot = wqe.slot;
    message.lengthBytes = wqe.lengthBytes;
    message.solicited = false;
    message.remoteStag = wqe.rkey;
    message.remoteToHi = wqe.remoteHi;
    message.remoteToLo = wqe.remoteLo;
    message.sinkStag = request.sinkStag;
    message.sinkToHi = request.sinkToHi;
    message.sinkToLo = request.sinkToLo;
    if (request.atomic) this.#describeAtomic(message);
    return true;
  }

  // RDMAPX-5.2.1-06, RDMAPX-5.1.2-02: the masks of the plain operations of the verbs.
  #describeAtomic(message: OutboundMessage): void {
    const wqe = this.#messages.latest;
    const add = wqe.opcode === SQOpcode.fetchAndAdd;
    const swapMask = add ? 0 : 0xffffffff;
    message.atomicOperation = add ? AtomicOpcode.fetchAdd : AtomicOpcode.compareSwap;
    message.atomicOperandHi = wqe.operandHi;
    message.atomicOperandLo = wqe.operandLo;
    message.atomicOperandMaskHi = swapMask;
    message.atomicOperandMaskLo = swapMask;
    message.atomicCompareHi = add ? 0 : wqe.compareHi;
    message.atomicCompareLo = add ? 0 : wqe.compareLo;
    message.atomicCompareMaskHi = 0xffffffff;
    message.atomicCompareMaskLo = 0xffffffff;
  }

  // Open messages

  /** True if payload of the message can be gathered now. */
  prepareGather(slot: number, offset: number, length: number): boolean {
    return this.#messages.at(slot).prepare(offset, length);
  }

  /** Copies payload of the message; the flush reports a refusal. */
  gather(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    const wqe = this.#messages.at(slot);
    this.#ahead ??= new ReadAhead(this.#elements);
    const reader = this.#ahead.aim(wqe.order);
    const refusal = wqe.gather(offset, length, target, targetStart, reader);
    if (refusal !== 0) this.blameMemory(wqe);
    return refusal;
  }

  /** Like `gather`; the bytes may be missing until `gatheringEnded`. */
  gatherLater(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    const wqe = this.#messages.at(slot);
    this.#gathered ??= new GatheredPayload(this.#deferred);
    const refusal = this.#gathered.gather(wqe, offset, length, target, targetStart);
    if (refusal !== 0) this.blameMemory(wqe);
    return refusal;
  }

  /** See `WireUser`. */
  mayLend(slot: number, offset: number, length: number, loans?: LentStream): boolean {
    if (this.lending === undefined) {
      const payload = this.#host.lentPayload;
      if (length < payload.bytesMin) return false;
      const parts = { messages: this.#messages, gate: this.#gate, payload };
      this.lending = new Lending(this, parts);
    }
    return this.lending.mayLend(this.#messages.at(slot), offset, length, loans);
  }

  /** See `WireUser`. The payload must be such that it may be lent. */
  lend(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
    loans?: LentStream,
  ): AccessRefusal {
    const { lending } = this;
    assert(lending !== undefined, 'lent without asking');
    const wqe = this.#messages.at(slot);
    const refusal = lending.lend(wqe, offset, length, target, targetStart, loans);
    if (refusal !== 0) this.blameMemory(wqe);
    return refusal;
  }

  /** See `DeferringUser`. A later flush reports the failed work request. */
  gatheringEnded(): AccessRefusal {
    this.#gathered ??= new GatheredPayload(this.#deferred);
    if (this.#gathered.finish()) return this.lending?.failUnread() ?? AccessRefusal.none;
    const { failed } = this.#gathered;
    if (failed === undefined) return AccessRefusal.stagInvalid;
    this.blameMemory(failed);
    return AccessRefusal.memoryLost;
  }

  /** See `LendingUser`. */
  blameMemory(wqe: SendWqe): void {
    this.#user.found = MEMORY_GONE;
    this.#blame(wqe, CQEStatus.locProtErr);
  }

  #blame(wqe: SendWqe, status: CQEStatus): void {
    if (!wqe.open || wqe.started === COMPLETED) return;
    this.#started.blame(wqe.started, status);
    wqe.started = COMPLETED;
  }

  // RDMAP-5.5-10: only from now on the wire no longer reads the client's buffers.
  /** The wire no longer needs the oldest open message. */
  messageDone(): void {
    const wqe = this.#messages.oldest;
    // Undefined if a flush in between has completed it.
    if (wqe === undefined) return;
    if (!this.#immediateSent) {
      this.#immediateDue = true;
      return;
    }
    if (this.lending?.keeps(wqe) !== true) this.endMessage(wqe);
  }

  /** See `LendingUser`. */
  endMessage(wqe: SendWqe): void {
    if (wqe.awaited) wqe.abandon();
    this.#messages.shift();
    if (wqe.kind === WorkKind.message && wqe.started !== COMPLETED) {
      this.#started.finish(wqe.started, CQEStatus.success);
      this.retire();
    }
  }

  /** The peer's memory that the oldest open message names. */
  askedByOldest(): NamedRange | undefined {
    const wqe = this.#messages.oldest;
    if (wqe === undefined) return undefined;
    return namedRange(wqe.rkey, wqe.remoteHi, wqe.remoteLo, wqe.lengthBytes);
  }

  /** The oldest open message failed: it completes with `status` when flushed. */
  blameOldestMessage(status: CQEStatus): void {
    const wqe = this.#messages.oldest;
    if (wqe !== undefined) this.#blame(wqe, status);
  }

  // Responses

  /** The oldest outstanding read or atomic. */
  get oldestRequest(): OutstandingRequest | undefined {
    return this.#outstanding.head;
  }

  /** The response of the oldest outstanding request is complete. */
  requestCompleted(): void {
    const request = this.#outstanding.head;
    if (request === undefined) return;
    this.#started.finish(request.index, CQEStatus.success);
    this.#outstanding.shift();
    this.retire();
  }

  /** The oldest outstanding request failed: it completes with `status` when flushed. */
  blameOldestRequest(status: CQEStatus): void {
    const request = this.#outstanding.head;
    if (request !== undefined) this.#started.blame(request.index, status);
  }

  /** Like `blameOldestRequest`, for the oldest Read not yet completed, whether its data arrived or not. */
  blameOldestRead(status: CQEStatus): void {
    const index = this.#started.oldestOf(SQOpcode.read);
    if (index !== undefined) this.#started.blame(index, status);
  }

  // Completion

  // RDMAP-5.5-11: a Send or Write after a Read completes after that Read.
  /**
   * Writes the completions of finished work, oldest first, up to the first unfinished one. Writes
   * none while response data has not reached its memory: the queue pair calls again when it has.
   */
  retire(): void {
    if (this.#gate.keeps) return;
    const started = this.#started;
    while (started.oldestDone) {
      this.#elements.giveBack();
      if (started.signalled) this.#report(CQEStatus.success, started.bytes);
      else if (this.#gate.waits) this.#reportLoss();
      else started.shift();
    }
    this.#publish();
  }

  #publish(index = this.#elements.index): void {
    if (this.#progress === undefined) return;
    const unfinished = this.#started.count + (this.#held ? 1 : 0);
    this.#progress[0] = (index & 0xffff) | (unfinished << 16);
  }

  /** Completes the oldest one. To report it may find lost memory, which flushes the others. */
  #report(status: CQEStatus, bytes: number): void {
    const started = this.#started;
    this.#fillIn(started.wrIdLo, started.wrIdHi, started.opcode, status, bytes);
    started.shift();
    this.#gate.report(this.#cq);
  }

  /** The oldest one is unsignalled: it completes only if its data is lost. */
  #reportLoss(): void {
    const started = this.#started;
    const { wrIdLo, wrIdHi, opcode, bytes } = started;
    this.#fillIn(wrIdLo, wrIdHi, opcode, CQEStatus.success, bytes);
    started.shift();
    this.#gate.reportLoss(this.#cq);
  }

  /** Returns false if the completion queue is full. */
  #complete(
    wrIdLo: number,
    wrIdHi: number,
    opcode: number,
    status: CQEStatus,
    bytes: number,
  ): boolean {
    this.#fillIn(wrIdLo, wrIdHi, opcode, status, bytes);
    return this.#gate.report(this.#cq);
  }

  #fillIn(wrIdLo: number, wrIdHi: number, opcode: number, status: CQEStatus, bytes: number): void {
    const { completion } = this.#gate;
    completion.wrIdLo = wrIdLo;
    completion.wrIdHi = wrIdHi;
    completion.opcode = opcode;
    completion.status = status;
    completion.lengthBytes = bytes;
    completion.flags = 0;
    completion.immediateHi = 0;
    completion.immediateLo = 0;
    completion.solicited = false;
    completion.written = false;
    completion.sourceQpn = 0;
    completion.sl = 0;
  }

  /**
   * Completes all work in error: started work (a failed request with its own status), held work, and
   * the ring. Returns true if more remains after a turn's share. `midMessage`: the current message is
   * partly on the wire and still read, so it and all later work wait: a completion would return the
   * buffer.
   */
  flush(midMessage = false): boolean {
    const started = this.#started;
    this.lending?.end();
    const { oldest } = this.#messages;
    const kept = midMessage && oldest !== undefined && oldest.started !== COMPLETED ? 1 : 0;
    // Started work completes in this turn or a later one: nothing may refer to it.
    if (kept > 0) this.#outstanding = NO_REQUESTS;
    else this.#forget();
    const budget = TURN_ELEMENTS_MAX - this.#flushStarted(kept);
    this.#publish();
    if (started.count > kept) return !this.#gate.full;
    return kept === 0 && this.#flushPosted(Math.min(budget, this.#turnShare()));
  }

  // RDMAP-6.2.1-02: the peer's state is unknown, so framed work counts as failed, too.
  /** Flushes started work except the latest `kept`, up to a turn's share. Returns the number. */
  #flushStarted(kept: number): number {
    const started = this.#started;
    let flushed = 0;
    for (; flushed < TURN_ELEMENTS_MAX && started.count > kept; flushed += 1) {
      if (this.#gate.full) break;
      const { status } = started;
      this.#elements.giveBack();
      this.#report(status === CQEStatus.success ? CQEStatus.wrFlushErr : status, 0);
    }
    return flushed;
  }

  /** Flushes held work and up to `share` elements of the ring. Returns true if more remain. */
  #flushPosted(share: number): boolean {
    const elements = this.#elements;
    const { observer } = this.#host.watch;
    if (this.#held) {
      const wqe = this.#messages.latest;
      this.#held = false;
      elements.giveBack();
      this.#complete(wqe.wrIdLo, wqe.wrIdHi, wqe.opcode, CQEStatus.wrFlushErr, 0);
    }
    this.#publish();
    for (let budget = share; budget > 0; budget -= 1) {
      if (this.#gate.full || !elements.ready()) return false;
      const { view, position } = elements;
      const wrIdLo = view.getUint32(position + WR_ID, true);
      const wrIdHi = view.getUint32(position + WR_ID + 4, true);
      const opcode = this.#format.opcodeAt(elements);
      if (observer !== undefined) this.#reportTaken();
      this.#held = true;
      this.#releaseHeld();
      this.#held = false;
      elements.giveBack();
      const told = this.#complete(wrIdLo, wrIdHi, opcode, CQEStatus.wrFlushErr, 0);
      if (!told && observer === undefined) {
        this.#gate.lose(this.#cq, elements.skip?.() ?? 0);
        budget = 1;
      }
      this.#publish();
    }
    return elements.ready();
  }

  /** Flushes work posted after a drained queue; returns true as `flush` does. */
  flushLate(): boolean {
    const more = this.flush();
    this.#limit = this.#elements.index;
    return more;
  }

  /** Drops all work without completions (RESET). */
  reset(): void {
    this.#started.clear();
    this.#held = false;
    this.failedStatus = CQEStatus.success;
    this.#forget();
    this.#elements.clear();
    this.#publish();
  }

  /** Throws `InvariantError` when the work in progress is impossible. */
  assertInvariants(): void {
    const started = this.#started;
    const outstanding = this.#outstanding;
    started.assertInvariants();
    outstanding.assertInvariants();
    assert(outstanding.count <= started.count, 'outstanding requests > started work');
    const { oldest, size } = this.#messages;
    assert(
      oldest === undefined || oldest.started === COMPLETED || !started.empty,
      'open message is not started',
    );
    // One more may be held, and a response completes its request before its message is done.
    assert(size <= this.#elements.count + 2, 'open messages exceed the queue depth');
  }

  #forget(): void {
    this.lending?.forget();
    this.#ahead?.forget();
    this.#outstanding = NO_REQUESTS;
    this.#ord = 0;
    this.#messages.clear();
    this.#immediateDue = false;
    this.#limit = undefined;
    this.#paused = false;
  }
}

/** True for the operations of unreliable queue pairs. */
function permits(type: QPType, { kind, outbound }: SendWqe): boolean {
  if (kind !== WorkKind.message)
    return type === QPType.uc && kind !== WorkKind.read && kind !== WorkKind.atomic;
  const sends = outbound === OutboundKind.send || outbound === OutboundKind.sendWithImmediate;
  return type === QPType.ud ? sends : outbound !== OutboundKind.sendWithInvalidate;
}
