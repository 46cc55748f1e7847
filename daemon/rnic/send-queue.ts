/**
 * The send queue: takes elements out of the shared ring, starts them in order, and completes them
 * in order.
 *
 * An element is copied and handed back to the client when it is taken. It may then wait here: for
 * its fence, or for a read slot (ORD). Started work completes when its message is framed, or when
 * its response has come; completions are told in posting order.
 *
 * Order and fences: RFC 5040 §5.5. Depth: RFC 5040 §6.1 and RFC 7306 §5.2.
 */
import {
  CQEStatus,
  QueueFlag,
  SQE,
  SQE_BYTES,
  SQOpcode,
} from '../../verbs-api/contract/queue-layout.ts';
import { type Fault, OutboundKind, type OutboundMessage } from '../engine/placement.ts';
import { AtomicOpcode } from './atomic-operation.ts';
import type { CompletionGate } from './completion-gate.ts';
import type { CQ } from './completion-queue.ts';
import { MemoryTarget } from './memory-check.ts';
import type { WindowUser } from './memory-window.ts';
import type { NicCounters } from './nic-counters.ts';
import { OutstandingQueue, type OutstandingRequest, StartedQueue } from './outstanding.ts';
import { ElementRing } from './ring.ts';
import { completionOpcode, SendWqe, WorkKind } from './send-wqe.ts';
import { bindWindow, invalidateLocally, type StagHost } from './stag-operations.ts';
import type { WorkWatch } from './work-watch.ts';

/** No message is being framed. */
const NONE = -1;

/** What a send queue needs of its queue pair and device. */
export interface SendQueueHost extends StagHost {
  readonly counters: NicCounters;
  readonly watch: WorkWatch;
}

/** The send queue of one queue pair. */
export class SendQueue {
  /** Set once a work request is refused: the status it completes with when the queue is flushed. */
  failedStatus: CQEStatus = CQEStatus.success;
  /** Set when local operations used up their budget while more were waiting. */
  overBudget = false;
  private readonly elements: ElementRing;
  private readonly wqe = new SendWqe();
  private readonly started: StartedQueue;
  private outstanding = new OutstandingQueue(0);
  private ord = 0;
  /** The WQE is taken and not yet started. */
  private held = false;
  /** Index of the work request whose message is being framed. */
  private current = NONE;
  /** A Write is framed and its Immediate Data are to follow at once. */
  private immediateDue = false;
  private immediateSent = true;
  /** Index at which a draining queue stops. */
  private limit: number | undefined = undefined;
  private readonly target = new MemoryTarget();
  private readonly host: SendQueueHost;
  private readonly user: WindowUser;
  private readonly cq: CQ;
  private readonly gate: CompletionGate;
  private readonly sqSigAll: boolean;
  private readonly progress: Int32Array | undefined;

  /**
   * The ring of `count` elements is at the start of `ring`. How far the queue is, is kept in
   * `progress`; see `QPInit`.
   */
  constructor(
    ring: Uint8Array,
    count: number,
    host: SendQueueHost,
    user: WindowUser,
    cq: CQ,
    gate: CompletionGate,
    sqSigAll: boolean,
    progress?: Int32Array,
  ) {
    this.elements = new ElementRing(ring, 0, count, SQE_BYTES, SQE.flags);
    this.started = new StartedQueue(count);
    this.host = host;
    this.user = user;
    this.cq = cq;
    this.gate = gate;
    this.sqSigAll = sqSigAll;
    this.progress = progress;
  }

  /** Elements taken from the ring, modulo 2^32. */
  get taken(): number {
    return this.elements.index;
  }

  // Commands

  /** Sets how many reads and atomics may be outstanding (ORD). The queue is idle. */
  open(ord: number): void {
    this.ord = ord;
    this.outstanding = new OutstandingQueue(ord);
  }

  /** From here on only what is posted now is started. */
  drain(): void {
    this.limit = (this.elements.index + this.elements.readyCount()) >>> 0;
  }

  /** True when all that was to be drained is complete. */
  get drained(): boolean {
    return this.limit === this.elements.index && !this.held && this.started.empty;
  }

  /**
   * Takes and starts the next work request that has a message, and describes the message. Local
   * operations on the way are carried out. False when nothing may be started now; `failedStatus`
   * and `overBudget` tell of the special reasons.
   */
  next(message: OutboundMessage): boolean {
    if (this.immediateDue) return this.startImmediate(message);
    for (let budget = this.elements.count; budget > 0; budget -= 1) {
      if (!this.held && !this.take()) return false;
      const { wqe } = this;
      // The fence waits for responses: RDMAP itself would let this overtake them (RFC 5040 §5.5).
      if ((wqe.flags & QueueFlag.readFence) !== 0 && this.outstanding.count > 0) return false;
      switch (wqe.kind) {
        case WorkKind.message:
          return this.startMessage(message);
        case WorkKind.read:
        case WorkKind.atomic:
          return this.startRequest(message);
        case WorkKind.bind:
          if (!this.finishLocal(bindWindow(this.host, this.user, wqe, this.target))) return false;
          this.host.counters.binds += 1;
          break;
        case WorkKind.invalidate:
          if (!this.finishLocal(invalidateLocally(this.host, this.user, wqe.rkey))) return false;
          this.host.counters.invalidations += 1;
          break;
        default:
          wqe.kind satisfies never;
      }
    }
    // A client that posts local operations as fast as they are done must not hold up the others.
    this.overBudget = this.held || this.elements.ready();
    return false;
  }

  /** Takes the ring's next element into the WQE. */
  private take(): boolean {
    const { elements, wqe } = this;
    if (this.started.full || elements.index === this.limit || !elements.ready()) return false;
    const status = wqe.read(elements, this.host.stags, this.user.pd);
    if (this.host.watch.observer !== undefined) this.tellTaken();
    elements.release();
    this.host.counters.sendsTaken += 1;
    this.held = true;
    this.publish();
    if (status === CQEStatus.success) return true;
    this.fail(status);
    return false;
  }

  private tellTaken(): void {
    this.host.watch.tellSend(this.gate.qpn, this.elements, this.sqSigAll);
  }

  /** Enters the WQE into the started ones. */
  private start(): number {
    const { wqe } = this;
    this.held = false;
    const signalled = this.sqSigAll || (wqe.flags & QueueFlag.signalled) !== 0;
    return this.started.push(wqe.wrIdLo, wqe.wrIdHi, wqe.opcode, signalled, wqe.lengthBytes);
  }

  private fail(status: CQEStatus): void {
    this.failedStatus = status;
    this.started.blame(this.start(), status);
  }

  private finishLocal(done: boolean): boolean {
    if (!done) {
      this.fail(CQEStatus.mwBindErr);
      return false;
    }
    this.wqe.lengthBytes = 0;
    this.started.finish(this.start(), CQEStatus.success);
    this.retire();
    return true;
  }

  // RDMAP-5.1-05, RDMAP-5.2.1-06: one remote buffer for each message.
  private startMessage(message: OutboundMessage): true {
    const { wqe } = this;
    this.current = this.start();
    this.immediateSent = wqe.opcode !== SQOpcode.writeWithImm;
    message.kind = wqe.outbound;
    message.lengthBytes = wqe.lengthBytes;
    message.solicited = (wqe.flags & QueueFlag.solicited) !== 0;
    message.remoteStag = wqe.rkey;
    message.remoteToHi = wqe.remoteHi;
    message.remoteToLo = wqe.remoteLo;
    message.invalidateStag = wqe.rkey;
    message.immediateHi = wqe.immediateHi;
    message.immediateLo = wqe.immediateLo;
    return true;
  }

  // RDMAPX-6-01: a Write with immediate is a Write and, right behind it, an Immediate Data message.
  private startImmediate(message: OutboundMessage): true {
    const { wqe } = this;
    this.immediateDue = false;
    this.immediateSent = true;
    message.kind = OutboundKind.immediate;
    message.lengthBytes = 8;
    message.solicited = (wqe.flags & QueueFlag.solicited) !== 0;
    message.immediateHi = wqe.immediateHi;
    message.immediateLo = wqe.immediateLo;
    return true;
  }

  private startRequest(message: OutboundMessage): boolean {
    const { wqe, outstanding } = this;
    if (this.ord === 0) {
      // It could wait for ever: the peer serves no reads on this stream.
      this.fail(CQEStatus.locQpOpErr);
      return false;
    }
    // RDMAP-6.1-03, RDMAPX-5.2-01: reads and atomics beyond ORD wait, and what follows with them.
    if (outstanding.full) return false;
    this.current = this.start();
    this.immediateSent = true;
    const request = outstanding.push();
    const sink = wqe.sges.firstEntry;
    request.index = this.current;
    request.atomic = wqe.kind === WorkKind.atomic;
    request.lengthBytes = wqe.lengthBytes;
    request.sink = sink;
    request.sinkOffset = wqe.sges.firstOffset;
    // RDMAP-5.2.1-08: the sink of a read of no octets means nothing; zeros tell the peer least.
    request.sinkStag = wqe.lengthBytes === 0 ? 0 : sink.stag;
    request.sinkTo =
      wqe.lengthBytes === 0 ? 0 : sink.toBase + (request.sinkOffset - sink.backingOffset);
    message.kind = wqe.outbound;
    message.lengthBytes = wqe.lengthBytes;
    message.solicited = false;
    message.remoteStag = wqe.rkey;
    message.remoteToHi = wqe.remoteHi;
    message.remoteToLo = wqe.remoteLo;
    message.sinkStag = request.sinkStag;
    message.sinkToHi = Math.floor(request.sinkTo / 2 ** 32);
    message.sinkToLo = request.sinkTo >>> 0;
    if (request.atomic) this.describeAtomic(message);
    return true;
  }

  // RDMAPX-5.2.1-06, RDMAPX-5.1.2-02: the masks of the plain operations that the verbs have.
  private describeAtomic(message: OutboundMessage): void {
    const { wqe } = this;
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

  // The current message

  /** True when payload of the current message can be gathered now. */
  prepareGather(offset: number, length: number): boolean {
    return this.wqe.prepare(offset, length);
  }

  /** Copies payload of the current message; a fault is told when the queue is flushed. */
  gather(offset: number, length: number, target: Uint8Array, targetStart: number): Fault {
    const fault = this.wqe.gather(offset, length, target, targetStart);
    if (fault !== 0 && this.current !== NONE) {
      this.started.blame(this.current, CQEStatus.locProtErr);
      this.current = NONE;
    }
    return fault;
  }

  // RDMAP-5.5-10: only now are the payload's octets out of the client's buffers.
  /** The current message is framed. */
  messageSent(): void {
    // A flush meanwhile has completed it already.
    if (this.current === NONE) return;
    if (!this.immediateSent) {
      this.immediateDue = true;
      return;
    }
    if (this.wqe.kind === WorkKind.message) {
      this.started.finish(this.current, CQEStatus.success);
      this.retire();
    }
    this.current = NONE;
  }

  // Responses

  /** The oldest outstanding read or atomic. */
  get oldestRequest(): OutstandingRequest | undefined {
    return this.outstanding.head;
  }

  /** The response of the oldest outstanding one is complete. */
  requestCompleted(): void {
    const request = this.outstanding.head;
    if (request === undefined) return;
    this.started.finish(request.index, CQEStatus.success);
    this.outstanding.shift();
    this.retire();
  }

  /** The oldest outstanding request is what went wrong: it completes with `status` when flushed. */
  blameOldestRequest(status: CQEStatus): void {
    const request = this.outstanding.head;
    if (request !== undefined) this.started.blame(request.index, status);
  }

  // Completion

  // RDMAP-5.5-11: a Send or Write behind a Read is told after that Read.
  /** Tells what is done, oldest first, up to the first that is not. */
  private retire(): void {
    const { started } = this;
    while (started.oldestDone) {
      if (started.signalled) this.tell(CQEStatus.success, started.bytes);
      started.shift();
    }
    this.publish();
  }

  private publish(): void {
    if (this.progress === undefined) return;
    const unfinished = this.started.count + (this.held ? 1 : 0);
    this.progress[0] = (this.elements.index & 0xffff) | (unfinished << 16);
  }

  private tell(status: CQEStatus, bytes: number): void {
    const { started } = this;
    this.complete(started.wrIdLo, started.wrIdHi, started.opcode, status, bytes);
  }

  private complete(
    wrIdLo: number,
    wrIdHi: number,
    opcode: number,
    status: CQEStatus,
    bytes: number,
  ): void {
    const { counters } = this.host;
    counters.completions += 1;
    if (status === CQEStatus.wrFlushErr) counters.flushes += 1;
    else if (status !== CQEStatus.success) counters.failures += 1;
    this.gate.tell(this.cq, wrIdLo, wrIdHi, opcode, status, bytes, 0, 0, 0, false);
  }

  /**
   * Completes everything in error: what was started (one that failed with its own status), what is
   * held, and the ring. True when the client has posted more than one ring's worth meanwhile.
   */
  flush(): boolean {
    const { started, elements } = this;
    // RDMAP-6.2.1-02: the peer's state is unknown, so also what was framed counts as failed.
    while (!started.empty) {
      const { status } = started;
      this.tell(status === CQEStatus.success ? CQEStatus.wrFlushErr : status, 0);
      started.shift();
    }
    this.forget();
    if (this.held) {
      const { wqe } = this;
      this.held = false;
      this.complete(wqe.wrIdLo, wqe.wrIdHi, wqe.opcode, CQEStatus.wrFlushErr, 0);
    }
    this.publish();
    for (let budget = elements.count; budget > 0; budget -= 1) {
      if (!elements.ready()) return false;
      const { view, position } = elements;
      const wrIdLo = view.getUint32(position + SQE.wrId, true);
      const wrIdHi = view.getUint32(position + SQE.wrId + 4, true);
      const opcode = completionOpcode(view.getUint8(position + SQE.opcode));
      if (this.host.watch.observer !== undefined) this.tellTaken();
      elements.release();
      this.publish();
      this.complete(wrIdLo, wrIdHi, opcode, CQEStatus.wrFlushErr, 0);
    }
    return elements.ready();
  }

  /** Forgets all work without completions (RESET). */
  reset(): void {
    this.started.clear();
    this.held = false;
    this.failedStatus = CQEStatus.success;
    this.forget();
    const { elements } = this;
    for (let budget = elements.count; budget > 0 && elements.ready(); budget -= 1) {
      elements.release();
    }
    this.publish();
  }

  private forget(): void {
    this.outstanding = new OutstandingQueue(0);
    this.ord = 0;
    this.current = NONE;
    this.immediateDue = false;
    this.limit = undefined;
  }
}
