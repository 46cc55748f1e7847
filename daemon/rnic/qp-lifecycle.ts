/**
 * The lifecycle of a queue pair: its states, the stream that it is attached to, and its failures.
 *
 * The wire calls the queue pair, which therefore must not call back: commands for the wire wait
 * until `settle`.
 */
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { CQEStatus, SQOpcode } from '#contract/protocol/queue-layout';
import { AsyncEventType, QPState, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { QPAttribute } from '#contract/verbs/qp-attributes';
import { isFlushing, isIdle, type QPAction, qpAction, qpStateName } from '#contract/verbs/qp-state';
import type { AsyncEffect, EffectSink } from './effect-sink.ts';
import type { Cause, CauseHolder, FailureEffect } from './failure-cause.ts';
import {
  errorEvent,
  failedMessageStatus,
  failureText,
  lossText,
  refusedRequestStatus,
} from './failure-event.ts';
import { FailureRecord } from './failure-record.ts';
import { causeText, foundText } from './failure-sentence.ts';
import type { IBPort, PathAttributes, ProgramWire } from './ib-port.ts';
import { checkTransition } from './ib-transitions.ts';
import type { WindowUser } from './memory/memory-window.ts';
import {
  changedPath,
  type QPModification,
  type QPPath,
  RESET_PATH,
  roundedDepth,
} from './qp-attributes.ts';
import type { CompletionGate } from './queues/completion-gate.ts';
import type { CQ } from './queues/completion-queue.ts';
import type { Receiver } from './queues/receiver.ts';
import type { SendQueue } from './queues/send-queue.ts';
import type { SRQ } from './queues/shared-receive-queue.ts';
import type { CompletionRecord } from './rings/completion-writer.ts';
import { AccessRefusal, MessageFailure, type Wire, type WireFailure } from './wire-port.ts';

export type LifecycleEffect<Q> =
  | AsyncEffect<Q>
  | FailureEffect<Q>
  /**
   * The QP closes its stream (modify to SQD or SQE, a failed work request). The stream was notified
   * and may have bytes to transmit; the connection manager must notify its id.
   */
  | { readonly type: 'disconnect'; readonly qp: Q }
  /**
   * The QP reset its stream (modify to ERR or RESET, close), which was notified; or its program's wire failed,
   * and `why` says how.
   */
  | { readonly type: 'abort'; readonly qp: Q; readonly why?: string }
  /**
   * The QP used up its share of a turn and has work left: call `qp.doorbell(now)` in a later turn,
   * once for all such effects until then.
   */
  | { readonly type: 'resume'; readonly qp: Q };

export interface LifecycleHost<Q> {
  readonly effects: EffectSink<LifecycleEffect<Q>>;
  /** QPs that must call their wire once it has returned. */
  readonly unsettled: Set<Q>;
  /** QPs whose work completes in error. */
  readonly flushing: Set<Q>;
  /** The latest time passed to the device. */
  now: Micros;
  /** Set for a device whose programs connect queue pairs; undefined for iWARP. */
  readonly ib: IBPort<Q> | undefined;
  /** The queue pair has closed: frees its slot. */
  closed(qp: Q): void;
}

interface LifecycleUser extends CauseHolder, WindowUser {
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly type: QPType;
}

/** The parts that a lifecycle opens, drains, flushes and notifies. */
interface LifecycleParts {
  readonly sendQueue: SendQueue;
  readonly receiver: Receiver;
  readonly gate: CompletionGate;
  readonly onState: ((state: QPState) => void) | undefined;
}

const MOVED: Cause = { kind: 'ended', text: 'its program moved it to ERR' };
const TERMINATED: Cause = { kind: 'ended', text: 'its program terminated the connection' };
const DESTROYED: Cause = { kind: 'ended', text: 'its program destroyed it' };
const CLOSED: Cause = { kind: 'ended', text: 'the connection was closed' };

/** Kinds of connection failures that may have had no way to reach the peer. */
const OWN_FAILURES: readonly string[] = ['local', 'protocol'];

/** An entry of the port's GID table. */
export interface SourceGid {
  readonly index: number;
  /** 16 bytes. */
  readonly gid: Uint8Array;
}

/** Every bit of `Access`. */
const ALL_RIGHTS = -1;

/** The pending command for the wire. */
type Unsettled = 'nothing' | 'fail' | 'disconnect';

export class QPLifecycle<Q extends LifecycleUser> {
  /** True while data may be placed: a stream is attached and work is not being flushed. */
  receiving = false;
  /** Remote access that the QP permits, bits of `Access`. On iWARP only the memory decides. */
  granted: number;
  /** Why its work fails, from the failure to RESET: the first cause. */
  cause: Cause | undefined = undefined;
  /** In RTR: the peer's first message has not arrived; it raises COMM_EST. Never true for iWARP. */
  awaitsFirst = false;
  /** The last of RESET, INIT, RTR and RTS that it has reached. */
  furthest: QPState = QPState.RESET;
  /** Our GID, as the program chose it in the transition to RTR. */
  source: SourceGid | undefined = undefined;
  #state: QPState = QPState.RESET;
  #wire: Wire | undefined = undefined;
  /** `#wire` of a QP that its program connects. */
  #programWire: ProgramWire | undefined = undefined;
  #path: QPPath = RESET_PATH;
  #ird = 0;
  #ord = 0;
  #unsettled: Unsettled = 'nothing';
  /** Undefined until there is something to report: most queue pairs never fail. */
  #failure: FailureRecord | undefined = undefined;
  /** The consumer is closing the QP: raise no more events. */
  #closing = false;
  #drainTold = false;
  #closed = false;
  readonly #qp: Q;
  readonly #host: LifecycleHost<Q>;
  readonly #gate: CompletionGate;
  readonly #sendQueue: SendQueue;
  readonly #receiver: Receiver;
  readonly #onState: ((state: QPState) => void) | undefined;

  constructor(qp: Q, host: LifecycleHost<Q>, parts: LifecycleParts) {
    this.#qp = qp;
    this.#host = host;
    this.#gate = parts.gate;
    this.#sendQueue = parts.sendQueue;
    this.#receiver = parts.receiver;
    this.#onState = parts.onState;
    this.granted = host.ib === undefined ? ALL_RIGHTS : RESET_PATH.accessFlags;
    qp.pd.members += 1;
    qp.sendCQ.users += 1;
    qp.recvCQ.users += 1;
    if (qp.srq !== undefined) qp.srq.users += 1;
  }

  // Getters

  get state(): QPState {
    return this.#state;
  }

  /** The stream, until it ends. */
  get wire(): Wire | undefined {
    return this.#wire;
  }

  /** True if the stream is in Full Operation and work is sent. */
  get connected(): boolean {
    return this.#state === QPState.RTS || this.#state === QPState.SQD;
  }

  get ird(): number {
    return this.#ird;
  }
  get ord(): number {
    return this.#ord;
  }

  // Commands of the consumer

  /** The send queue has new elements. Spurious calls do no harm. */
  doorbell(now: Micros): void {
    // A turn that it requested may come after it is destroyed.
    if (this.#closed) return;
    this.#host.now = now;
    if (isFlushing(this.#state)) {
      this.flush();
    } else if (this.connected) {
      this.#wire?.pump(now);
      this.checkDrained();
      this.settle(now);
    }
  }

  /**
   * Requests a state (qp-state.ts lists the legal ones). EINVAL for others, and for RTS without an
   * established stream.
   */
  modify(state: QPState, now: Micros): void {
    if (this.#host.ib !== undefined) {
      this.modifyPath({ mask: QPAttribute.state, state }, now);
      return;
    }
    this.#host.now = now;
    const action = qpAction(this.#state, state);
    if (this.#closed || action === undefined) {
      const from = qpStateName(this.#state);
      throw invalid(`a QP cannot go from ${from} to ${qpStateName(state)}`);
    }
    this.#carryOut(action, state, now);
    if (!this.receiving) this.#gate.conclude();
    this.assertInvariants();
  }

  /**
   * Modifies a QP that its program connects: see ib-transitions.ts and `changedPath`. EINVAL for an
   * iWARP QP. Changes nothing if it throws.
   */
  modifyPath(change: QPModification, now: Micros): void {
    const { ib } = this.#host;
    this.#host.now = now;
    if (this.#closed || ib === undefined) {
      throw invalid(
        'an iWARP queue pair has no path attributes: connect it with a connection manager',
      );
    }
    const { type } = this.#qp;
    const next = checkTransition({ type, state: this.#state, draining: this.#draining }, change);
    const path = changedPath(this.#path, change, ib.addresses);
    const enters = next === QPState.RTR && this.#state === QPState.INIT;
    if (enters) {
      this.#attachProgramWire(ib.makeWire(this.#qp));
      const { sgidIndex: index } = path.ahAttr;
      const gid = type === QPType.ud ? undefined : ib.addresses.gid(index);
      this.source = gid === undefined ? undefined : { index, gid };
    }
    const withdrawn = this.granted & ~path.accessFlags;
    this.#path = path;
    this.granted = path.accessFlags;
    this.#move(next, now);
    if (withdrawn !== 0 || !this.receiving) this.#gate.conclude();
    this.#programWire?.modified(path, next, now);
    if (this.#state === QPState.RTS) this.#wire?.pump(now);
    this.settle(now);
    this.assertInvariants();
  }

  /** The attributes of a QP that its program connects, with the PSNs of its wire. */
  queryPath(): PathAttributes {
    const wire = this.#programWire;
    const path = this.#path;
    const started = this.#state === QPState.RTS || this.#state === QPState.SQD;
    return {
      ...path,
      maxRdAtomic: roundedDepth(path.maxRdAtomic),
      rqPsn: wire?.rqPsn ?? path.rqPsn,
      sqPsn: started && wire !== undefined ? wire.sqPsn : path.sqPsn,
      type: this.#qp.type,
      state: this.#state,
      draining: this.#draining,
    };
  }

  get #draining(): boolean {
    return this.#state === QPState.SQD && !this.#drainTold;
  }

  #attachProgramWire(wire: ProgramWire): void {
    this.#wire = wire;
    this.#programWire = wire;
    this.#qp.pd.streams += 1;
  }

  #move(next: QPState, now: Micros): void {
    const state = this.#state;
    switch (next) {
      case QPState.RESET:
        this.#reset(now);
        this.#path = RESET_PATH;
        this.granted = RESET_PATH.accessFlags;
        return;
      case QPState.ERR:
        this.cause ??= MOVED;
        this.#dropWire(now);
        this.#enterError();
        return;
      case QPState.RTR:
        this.awaitsFirst = true;
        this.#transition(next);
        return;
      case QPState.RTS:
        // The send queue is idle: it never ran, or it has drained.
        if (state !== next) this.#sendQueue.open(this.#path.maxRdAtomic);
        this.#drainTold = false;
        this.#transition(next);
        return;
      case QPState.SQD:
        if (state === next) return;
        this.#sendQueue.pause();
        this.#transition(next);
        this.checkDrained();
        return;
      default:
        this.#transition(next);
    }
  }

  /** The peer's first message arrived in RTR: the program may proceed to RTS. */
  received(): void {
    this.awaitsFirst = false;
    if (this.#state !== QPState.RTR) return;
    this.#announce(AsyncEventType.commEst, "the peer's first message arrived");
  }

  #carryOut(action: QPAction, state: QPState, now: Micros): void {
    switch (action) {
      case 'none':
        return;
      case 'set':
        this.#transition(state);
        return;
      case 'reset':
        this.#reset(now);
        return;
      case 'drain':
        this.#drain(now);
        return;
      case 'terminate':
        this.#terminate(now);
        return;
      case 'flush':
        this.cause ??= MOVED;
        this.#dropWire(now);
        this.#enterError();
        return;
      default:
        action satisfies never;
    }
  }

  /**
   * Destroys the QP: flushes as much as one turn permits and resets the stream. A second call does
   * nothing.
   */
  close(now: Micros): void {
    if (this.#closed) return;
    this.#host.now = now;
    this.#closing = true;
    this.cause ??= DESTROYED;
    this.#dropWire(now);
    if (this.#host.ib !== undefined) {
      // Programs do not expect completions of a QP that is gone.
      this.#discard();
      this.#transition(QPState.ERR);
    } else if (this.#state === QPState.ERR) {
      // Includes work posted since the last check of a queue pair in error.
      this.flush();
    } else {
      this.#enterError();
    }
    // No completion may follow the destruction, whenever slow memory answers.
    this.#gate.end(true);
    this.#closed = true;
    this.#reportWaiting();
    this.#forgetUnsettled();
    this.#qp.pd.members -= 1;
    this.#qp.sendCQ.users -= 1;
    this.#qp.recvCQ.users -= 1;
    if (this.#qp.srq !== undefined) this.#qp.srq.users -= 1;
    this.#host.closed(this.#qp);
    this.assertInvariants();
  }

  #discard(): void {
    this.#gate.end(false);
    this.#sendQueue.reset();
    this.#receiver.reset();
  }

  #reset(now: Micros): void {
    this.#dropWire(now);
    this.#discard();
    // The reply to the program's own command waits for copies.
    this.#reportWaiting();
    this.#ird = 0;
    this.#ord = 0;
    this.#forgetUnsettled();
    this.#drainTold = false;
    this.cause = undefined;
    this.#failure = undefined;
    this.#qp.found = undefined;
    this.#transition(QPState.RESET);
  }

  // DDP-6.2.1-02: work posted from now on is flushed, not sent.
  #closeSendQueue(): void {
    this.#sendQueue.drain();
    this.#transition(QPState.SQD);
    this.checkDrained();
  }

  #drain(now: Micros): void {
    this.#closeSendQueue();
    if (this.#unsettled === 'nothing') this.#wire?.pump(now);
    this.settle(now);
  }

  #terminate(now: Micros): void {
    const failure = this.#failing();
    failure.reported = true;
    this.cause ??= TERMINATED;
    this.#enterFlushing(QPState.SQE);
    failure.reason = 'the consumer terminated the stream';
    this.#unsettled = 'fail';
    this.settle(now);
  }

  // Commands of the connection manager

  /** Attaches the stream being set up. EISCONN if there is one; EINVAL unless idle. */
  attach(wire: Wire): void {
    if (this.#wire !== undefined) {
      throw new VerbsError('EISCONN', 'the QP has a stream already');
    }
    if (this.#closed || !isIdle(this.#state)) {
      const state = this.#closed ? 'closed' : `in state ${qpStateName(this.#state)}`;
      throw invalid(`a QP that is ${state} cannot connect`);
    }
    this.#wire = wire;
    this.#qp.pd.streams += 1;
    this.#updateReceiving();
    this.assertInvariants();
  }

  /** The stream failed before Full Operation; the QP stays as it is and may try again. */
  detach(wire: Wire): void {
    if (this.#wire === wire) this.#letGo();
    this.assertInvariants();
  }

  /** Either side disconnects: SQD without its event, since the consumer did not request SQD. */
  disconnecting(now: Micros): void {
    this.#host.now = now;
    if (this.#state !== QPState.RTS) return;
    this.#drainTold = true;
    this.#closeSendQueue();
    this.assertInvariants();
  }

  /** Full Operation: moves to RTS and starts the work posted so far. */
  established(depths: { readonly ird: number; readonly ord: number }, now: Micros): void {
    this.#host.now = now;
    if (this.#wire === undefined || !isIdle(this.#state)) return;
    this.#ird = depths.ird;
    this.#ord = depths.ord;
    this.#sendQueue.open(depths.ord);
    this.#transition(QPState.RTS);
    this.#wire.pump(now);
    this.settle(now);
    this.assertInvariants();
  }

  /** A Terminate was sent or received: all work completes in error, and the stream closes. */
  terminated(by: 'us' | 'peer', failure: WireFailure, now: Micros): void {
    this.#host.now = now;
    if (this.#wire === undefined || isFlushing(this.#state)) return;
    this.#noteFailure(by, failure);
    if (this.#host.ib !== undefined) {
      this.wireEnded(failure, now);
      return;
    }
    if (by === 'peer') this.#sendQueue.blameOldestRequest(refusedRequestStatus(failure));
    this.#enterFlushing(QPState.SQE);
    // RDMAP-7.1-01, DDP-8.3-03: raise the event whatever went over the wire.
    const event = by === 'us' ? errorEvent(failure) : AsyncEventType.qpFatal;
    this.#report(event, failureText(by, failure) + foundText(this.cause));
    this.assertInvariants();
  }

  /** The stream ended, by FIN or for the given reason. Flushes posted work. */
  wireEnded(failure: WireFailure | undefined, now: Micros): void {
    this.#host.now = now;
    if (this.#wire === undefined) return;
    const connected = !isIdle(this.#state);
    if (failure === undefined) this.cause ??= CLOSED;
    else this.#noteFailure(OWN_FAILURES.includes(failure.kind) ? 'us' : 'peer', failure);
    this.#letGo();
    this.#enterError();
    if (this.#host.ib !== undefined) {
      this.#reportRefusal(failure);
      const { text: why = '' } = failure ?? {};
      this.#host.effects.push({ type: 'abort', qp: this.#qp, why });
    } else if (connected && failure !== undefined) {
      this.#report(AsyncEventType.qpFatal, lossText(failure));
    }
    this.assertInvariants();
  }

  /** Reports a refused request of the peer. Other failures of a program's wire have completions. */
  #reportRefusal(failure: WireFailure | undefined): void {
    if (failure === undefined) return;
    const event = errorEvent(failure);
    if (event !== AsyncEventType.qpFatal) this.#report(event, failure.text + foundText(this.cause));
  }

  // Calls of the device

  /** Runs the commands that had to wait until the wire returned. */
  settle(now: Micros): void {
    const unsettled = this.#unsettled;
    const wire = this.#wire;
    if (unsettled === 'nothing') return;
    this.#forgetUnsettled();
    if (wire === undefined) return;
    if (this.#host.ib !== undefined) {
      // A QP in error does not answer; the peer times out.
      this.#dropWire(now);
      return;
    }
    const { reason: text = '' } = this.#failure ?? {};
    if (unsettled === 'fail') wire.fail({ kind: 'local', text }, now);
    else wire.disconnect(now);
    this.#host.effects.push({ type: 'disconnect', qp: this.#qp });
  }

  #forgetUnsettled(): void {
    this.#unsettled = 'nothing';
    this.#host.unsettled.delete(this.#qp);
  }

  /** Flushes work posted to a QP in error, now or in a later turn. */
  flushPosted(now: Micros, later: boolean): void {
    this.#host.now = now;
    if (later) this.#host.effects.push({ type: 'resume', qp: this.#qp });
    else this.flush();
  }

  // Failures, drain and flush

  /** The refusal of data, unless the failure is our own. */
  refusal(given: AccessRefusal): AccessRefusal {
    return this.#unsettled === 'fail' ? AccessRefusal.memoryLost : given;
  }

  /** Reports a drained send queue once, and flushes work posted after it. */
  checkDrained(): void {
    if (this.#state !== QPState.SQD || !this.#sendQueue.drained) return;
    if (this.#host.ib !== undefined) {
      this.#reportDrained();
      return;
    }
    if (this.#sendQueue.flushLate()) this.#host.effects.push({ type: 'resume', qp: this.#qp });
    if (!this.#reportDrained()) return;
    this.#unsettled = 'disconnect';
    this.#host.unsettled.add(this.#qp);
  }

  /** Returns false if it was reported before. */
  #reportDrained(): boolean {
    if (this.#drainTold) return false;
    this.#drainTold = true;
    this.#announce(AsyncEventType.sqDrained, 'all posted work has been sent');
    return true;
  }

  /** Fails the QP because of a work request; the recorded cause says why. */
  failSend(): void {
    this.cause ??= this.#qp.found;
    if (this.#host.ib !== undefined) {
      // The completion has the details.
      this.#failWire('a work request could not be carried out');
      return;
    }
    this.failLocally(AsyncEventType.qpFatal, causeText(this.cause));
  }

  /** An error of our own consumer: all work completes in error, and the peer gets a Terminate. */
  failLocally(event: AsyncEventType, text: string): void {
    this.cause ??= { kind: 'local', text };
    this.#report(event, text);
    this.#failWire(text);
  }

  /** A completion was lost; the event of its queue reports it. */
  failQuietly(): void {
    const text = 'a receive could not be completed: its completion queue is full';
    this.cause ??= { kind: 'local', text };
    this.#failWire(text);
  }

  #failWire(text: string): void {
    this.#enterError();
    this.#failing().reason = text;
    this.#unsettled = 'fail';
    this.#host.unsettled.add(this.#qp);
  }

  #enterError(): void {
    if (this.#state !== QPState.ERR) this.#enterFlushing(QPState.ERR);
  }

  #enterFlushing(state: QPState): void {
    const first = !isFlushing(this.#state);
    this.#transition(state);
    // A queue pair that is destroyed gives its copies up instead.
    if (!this.#closing) this.#gate.conclude();
    this.#gate.endReceiving();
    this.flush();
    // With a shared queue, flushes do not show the consumer that the last receive was returned.
    if (first && this.#qp.srq !== undefined) {
      const text = `the QP takes no more shared receives, because ${causeText(this.cause)}`;
      this.afterCopies(() => this.#announce(AsyncEventType.qpLastWqeReached, text));
    }
    // If payload could not be read, nothing waits for it any more.
    this.memoryReady();
  }

  /**
   * Completes all work in error: sends, then receives, each oldest first. Beyond one turn's share, it
   * continues in later turns with a share of both each time.
   */
  flush(): void {
    const more = this.#sendQueue.flush(this.#programWire === undefined && this.#midSend);
    const moreReceives = this.#receiver.flush();
    if (more || moreReceives) this.#host.effects.push({ type: 'resume', qp: this.#qp });
    else this.#reportFlush();
  }

  /** Called before a completion in error is written. */
  handleFailed({ opcode, status, wrIdHi, wrIdLo }: CompletionRecord): void {
    const queue = opcode === SQOpcode.receive ? 'receive' : 'send';
    if (status === CQEStatus.wrFlushErr) {
      const failure = this.#failing();
      if (queue === 'send') failure.flushedSends += 1;
      else failure.flushedReceives += 1;
      return;
    }
    const wrId = (BigInt(wrIdHi) << 32n) | BigInt(wrIdLo);
    // A receive fails before the wire reports it.
    const cause = isFlushing(this.#state) ? this.cause : this.#qp.found;
    const work = { queue, wrId, opcode, status, cause } as const;
    this.#host.effects.push({ type: 'failed', qp: this.#qp, work });
  }

  /** The wire gave up the oldest open message. */
  handleMessageFailed(failure: MessageFailure): void {
    if (failure === MessageFailure.remoteAccess)
      this.#failing().asked = this.#sendQueue.askedByOldest();
    this.#sendQueue.blameOldestMessage(failedMessageStatus(failure));
  }

  #reportFlush(): void {
    const failure = this.#failure;
    if (failure === undefined || failure.flushReported) return;
    const { flushedSends: sends, flushedReceives: receives } = failure;
    if (sends + receives === 0 || this.cause?.kind === 'ended' || this.#closing) return;
    failure.flushReported = true;
    const work = { sends, receives, cause: this.cause };
    this.#host.effects.push({ type: 'flushed', qp: this.#qp, work });
  }

  #noteFailure(by: 'us' | 'peer', failure: WireFailure): void {
    if (this.cause !== undefined) return;
    const found = by === 'us' && failure.found !== false ? this.#qp.found : undefined;
    const named = this.#failure?.asked;
    const known =
      named === undefined || failure.named !== undefined ? failure : { ...failure, named };
    this.cause = { kind: 'wire', by, failure: known, found };
  }

  get #midSend(): boolean {
    return this.#wire?.midSend ?? false;
  }

  #dropWire(now: Micros): void {
    const wire = this.#wire;
    if (wire === undefined) return;
    this.#letGo();
    wire.abort(now);
    this.#host.effects.push({ type: 'abort', qp: this.#qp });
  }

  #letGo(): void {
    this.#wire = undefined;
    this.#programWire = undefined;
    this.#qp.pd.streams -= 1;
    this.#updateReceiving();
  }

  #report(event: AsyncEventType, text: string): void {
    const failure = this.#failing();
    if (failure.reported) return;
    failure.reported = true;
    this.afterCopies(() => this.#announce(event, text));
  }

  /** See `ConnectableQP`. */
  afterCopies(report: () => void): void {
    if (this.#gate.placing) this.#failing().waiting.push(report);
    else report();
  }

  #failing(): FailureRecord {
    this.#failure ??= new FailureRecord();
    return this.#failure;
  }

  #announce(event: AsyncEventType, text: string): void {
    if (this.#closing) return;
    this.#host.effects.push({ type: 'async', event, object: this.#qp, text });
  }

  /** Copies may be over. */
  memoryReady(): void {
    if (!this.#gate.placing) this.#reportWaiting();
  }

  #reportWaiting(): void {
    const failure = this.#failure;
    if (failure === undefined || failure.waiting.length === 0) return;
    const { waiting } = failure;
    failure.waiting = [];
    for (const report of waiting) report();
  }

  /**
   * Throws `InvariantError` when state, stream and windows disagree. Call between commands: within
   * one they may differ.
   */
  assertInvariants(): void {
    const state = this.#state;
    const wire = this.#wire;
    const closed = this.#closed;
    const receiving = this.receiving;
    const { ownWindows } = this.#qp;
    const streaming = wire !== undefined;
    const { connected } = this;
    assert(!connected || streaming, 'connected QP without a stream');
    assert(
      receiving === (streaming && !isFlushing(state)),
      'receiving disagrees with stream and state',
    );
    assert(receiving || ownWindows.size === 0, 'type 2 windows outlive the stream of their QP');
    assert(!closed || !streaming, 'closed QP has a stream');
    const flushing = isFlushing(state) && !closed;
    assert(
      flushing === this.#host.flushing.has(this.#qp),
      'QP in error is not in the flushing set, or vice versa',
    );
    const unsettled = this.#unsettled !== 'nothing';
    assert(
      unsettled === this.#host.unsettled.has(this.#qp),
      'unsettled QP is not in the unsettled set, or vice versa',
    );
    this.#sendQueue.assertInvariants();
    this.#gate.assertInvariants();
    this.#qp.pd.assertInvariants();
    this.#qp.sendCQ.assertInvariants();
    this.#qp.recvCQ.assertInvariants();
    this.#qp.srq?.assertInvariants();
  }

  /** The only place that writes the state. */
  #transition(state: QPState): void {
    this.#state = state;
    if (isFlushing(state)) this.#host.flushing.add(this.#qp);
    else this.#host.flushing.delete(this.#qp);
    if (state > this.furthest && state <= QPState.RTS) this.furthest = state;
    this.#updateReceiving();
    this.#onState?.(state);
  }

  #updateReceiving(): void {
    this.receiving = this.#wire !== undefined && !isFlushing(this.#state);
    // SEC-6.1.1-03, DDP-8.2-03: windows bound to a stream end with it; the QP's next stream is another
    // one.
    if (!this.receiving) for (const mw of this.#qp.ownWindows) mw.invalidate();
  }
}
