/**
 * One LLP stream from the open connection to its end: startup, Full Operation, and the three
 * endings of RFC 5040 §6.2 (graceful, Terminate, lost). This folder's README has the state diagram.
 * The lower layer handles startup and carries ULPDUs: MPA over TCP, unless another one is given.
 *
 * Methods come in four groups: commands, `handle*` inputs, `poll*` outputs, getters. The caller
 * drains `pollTransmit` and `pollEvent` after every command and input.
 *
 * A Terminate must arrive: a kernel socket that is closed with unread input sends RST, which can
 * destroy bytes the peer has not read. So FIN goes after the Terminate is flushed, and the stream
 * reads and drops further input until the peer's FIN or the close timeout (RDMAP-6.2.1-04).
 *
 * Read before changing: RFC 5040 §5.4, §6, §7; RFC 5041 §6.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { type Delivery, PLAIN, type Transmit } from '#base/transmit';
import type { Loans, WireFailure, WireUser } from '#daemon/rnic/wire-port';
import { ProtocolError } from '../wire/protocol-error.ts';
import { FullOperation } from './full-operation.ts';
import type { LowerEffect, LowerLayer } from './lower-layer.ts';
import { Step } from './rdmap-sender.ts';
import type { Agreement, StreamEvent, StreamOptions, StreamPort } from './stream-api.ts';
import { type StreamFailure, streamFailure, terminatedMemory } from './stream-failure.ts';

const NO_BYTES = new Uint8Array(0);
/** Never filled. */
const NO_EVENTS: StreamEvent[] = [];

/**
 * Payload of the send queue that must leave within each close timeout for a drain to continue. Posted
 * work is bounded, so a drain is, too; a peer that takes less counts as one that takes nothing.
 */
const DRAIN_PROGRESS_BYTES = 16_384;

/**
 * - startup: MPA Request and Reply.
 * - rejected: over, but TCP stays open until `disconnect`.
 * - open: Full Operation.
 * - draining: `disconnect` was called; queued work is still sent.
 * - terminating: after the first error; a Terminate follows the message in progress.
 * - flushing: only a Terminate may still be framed; FIN once the socket has taken everything.
 * - finished: FIN was requested; waits for the peer's.
 * - closed.
 */
type StateName =
  | 'startup'
  | 'rejected'
  | 'open'
  | 'draining'
  | 'terminating'
  | 'flushing'
  | 'finished'
  | 'closed';

const LEGAL: Readonly<Record<StateName, readonly StateName[]>> = {
  startup: ['open', 'rejected', 'terminating', 'closed'],
  rejected: ['flushing', 'closed'],
  open: ['draining', 'terminating', 'flushing', 'closed'],
  draining: ['terminating', 'flushing', 'closed'],
  terminating: ['flushing', 'closed'],
  flushing: ['terminating', 'finished', 'closed'],
  finished: ['closed'],
  closed: [],
};

/** siw's responder sends its Reply before it listens for FPDUs. */
const SIW_DEAF_AFTER_REPLY = 'siw-deaf-after-reply';

export class Stream implements StreamPort {
  readonly #options: StreamOptions;
  readonly #lower: LowerLayer;
  /** A stream has few events in its life: between them, all streams share one empty list. */
  #events = NO_EVENTS;
  #state: StateName = 'startup';
  /** For a step of closing, in the states from `draining` to `finished`. */
  #closeDeadline: Micros = NEVER;
  /** When to nudge an initiator's peer that is silent since its Reply. */
  #nudgeDeadline: Micros = NEVER;
  /** While draining: payload framed when the deadline was set. */
  #progressBytes = 0;
  #operation: FullOperation | undefined = undefined;
  #user: WireUser | undefined = undefined;
  #peerClosed = false;
  /** Why the stream ends, if not gracefully. The first reason stays. */
  #failure: StreamFailure | undefined = undefined;
  #errorNoted = false;
  /** The user was asked to finish the connection. */
  #finishAsked = false;
  /** Framed bytes are no longer sent: the connection is reset, or gone. */
  #muted = false;

  constructor(options: StreamOptions, lower: LowerLayer) {
    this.#options = options;
    this.#lower = lower;
  }

  // Commands

  connect(privateData: Uint8Array, user: WireUser, now: Micros): void {
    this.#lower.connect(privateData, now);
    this.#user = user;
    this.#runLower(now);
  }

  listen(now: Micros): void {
    this.#lower.listen(now);
    this.#runLower(now);
  }

  accept(
    privateData: Uint8Array,
    user: WireUser,
    consumerDepths: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void {
    if (this.#state !== 'startup') return;
    this.#user = user;
    this.#lower.accept(privateData, consumerDepths, now);
    this.#runLower(now);
    if (this.#lower.inputWaits) this.#receive(NO_BYTES, 0, PLAIN);
    this.#advance(now);
  }

  reject(privateData: Uint8Array, now: Micros): void {
    if (this.#state !== 'startup') return;
    this.#lower.reject(privateData);
    this.#transition('rejected');
    this.#runLower(now);
  }

  refuse(now: Micros): void {
    if (this.#state !== 'startup') return;
    this.#lower.refuse();
    this.#transition('rejected');
    this.#runLower(now);
  }

  pump(now: Micros): void {
    this.#advance(now);
  }

  // DDP-6.2.1-01 queued work is still sent.
  disconnect(now: Micros): void {
    switch (this.#state) {
      case 'startup':
        // Before Full Operation a FIN cannot be distinguished from a failure, so do not wait for
        // one.
        this.#failure ??= { kind: 'local', text: 'closed by its user during startup' };
        this.#abortNow();
        return;
      case 'rejected':
        this.#close('flushing', now);
        break;
      case 'open':
        this.#close('draining', now);
        break;
      default:
        return;
    }
    this.#advance(now);
  }

  abort(): void {
    if (this.#state === 'closed') return;
    this.#failure ??= { kind: 'local', text: 'aborted by its user' };
    if (this.#operation === undefined) {
      this.#abortNow();
      return;
    }
    // RDMAP-6.2.1-01
    if (this.#state === 'terminating') this.#operation.frameLastTerminate();
    // RDMAP-5.5-10: framed messages have completed, so they are still sent.
    this.#end();
  }

  // RDMAP-4.8-14 RDMAP-7.1-02
  fail(failure: WireFailure, now: Micros): void {
    if (this.#state === 'startup') {
      this.#lower.failLocally(failure.text);
      this.#runLower(now);
      return;
    }
    if (this.#operation === undefined || this.#failure !== undefined) return;
    this.#failure = failure;
    this.#operation.policy.latchLocal(new ProtocolError('rdmapLocalCatastrophic', failure.text));
    this.#advance(now);
  }

  leaveUnsealed(): void {
    this.#lower.leaveUnsealed();
  }

  lend(loans: Loans): void {
    this.#lower.lend?.(loans);
  }

  seal(bytes: Uint8Array): void {
    this.#lower.seal(bytes);
  }

  /** The socket's EMSS has changed: later segments follow it (MPA-4.5-05). */
  setEmss(emssBytes: number): void {
    this.#lower.setPathBytes(emssBytes);
    this.#operation?.setMulpdu(this.#lower.mulpduBytes);
  }

  // Inputs

  handleBytes(bytes: Uint8Array, now: Micros, delivery: Delivery = PLAIN): void {
    let start = 0;
    if (this.#operation === undefined) {
      if (this.#state !== 'startup') return;
      start = this.#lower.handleStartup(bytes, delivery);
      this.#runLower(now);
    }
    this.#receive(bytes, start, delivery);
    this.#advance(now);
    this.#runLower(now);
  }

  handleFlushed(bytes: number, now: Micros): void {
    if (this.#muted) return;
    this.#lower.flushed(bytes);
    if (this.#state === 'closed') return;
    this.#advance(now);
    this.#noteProgress(now);
  }

  handleAcknowledged(now: Micros): void {
    this.#lower.handleAcknowledged();
    if (this.#state !== 'closed') this.#advance(now);
  }

  handlePeerClosed(now: Micros): void {
    if (this.#peerClosed || this.#state === 'closed') return;
    this.#peerClosed = true;
    if (this.#state === 'startup') {
      this.#lower.handlePeerClosed();
      this.#runLower(now);
      return;
    }
    const reading = this.#state !== 'rejected' && this.#failure === undefined;
    // MPA-8-02 a FIN within an FPDU or a message is a loss, and forbids a Terminate.
    if (reading && (this.#lower.midUlpdu || this.#operation?.midMessage === true)) {
      this.#lose('the peer closed the connection within a message', undefined);
      this.#abortNow();
      return;
    }
    if (this.#state === 'open' && this.#lower.lossQuirk !== undefined) {
      // Graceful for TCP, but no program asked for it: the peer never sent an FPDU.
      this.#lose('the peer closed the connection before its first FPDU', undefined);
      this.#close('flushing', now);
      this.#advance(now);
      return;
    }
    // DDP-6.2.1-04 MPA-7.2-02 half-closed: our half continues.
    if (this.#failure === undefined) this.#emit({ type: 'peer-closed' });
    this.#advance(now);
  }

  handleClosed(errorCode: string | undefined, now: Micros): void {
    if (this.#state === 'startup') {
      this.#lower.handlePeerClosed();
      this.#runLower(now);
    }
    const graceful =
      errorCode === undefined && (this.#state === 'finished' || this.#state === 'rejected');
    // RDMAP-6.2-01 DDP-6.2.2-01 lost: reported once, and nothing can be sent.
    if (this.#state !== 'closed' && !graceful) this.#lose('the connection is gone', errorCode);
    this.#end();
    this.#muted = true;
    this.#lower.releaseOutput();
  }

  handleDeadline(now: Micros): void {
    // The startup timeout of a stream that has ended keeps running.
    if (this.#state === 'closed') return;
    if (this.#closeDeadline === NEVER && now >= this.#lower.nextDeadline()) {
      this.#lower.handleDeadline(now);
      this.#runLower(now);
    }
    if (now >= this.#nudgeDeadline) this.#nudge(now);
    if (now < this.#closeDeadline) return;
    // SCTP-6.2-01
    if (this.#state === 'finished' && this.#lower.peerMayStaySilent) {
      this.#end();
      return;
    }
    this.#failure ??= { kind: 'timeout', text: 'the peer did not close within the close timeout' };
    this.#abortNow();
  }

  // Outputs

  nextDeadline(): Micros {
    if (this.#state === 'closed' || this.#state === 'rejected') return NEVER;
    const closing = this.#closeDeadline !== NEVER;
    const due = closing ? this.#closeDeadline : this.#lower.nextDeadline();
    return Math.min(due, this.#nudgeDeadline);
  }

  pollTransmit(unsegmented?: boolean): Transmit | undefined {
    return this.#muted ? undefined : this.#lower.pollTransmit(unsegmented);
  }

  pollEvent(): StreamEvent | undefined {
    const event = this.#events.shift();
    if (event !== undefined && this.#events.length === 0) this.#events = NO_EVENTS;
    return event;
  }

  // Getters

  /** Bytes of a partial FPDU; borrowed until the next input. */
  get heldInput(): Uint8Array {
    return this.#lower.heldInput;
  }

  /** FPDUs found valid. */
  get receivedFpdus(): number {
    return this.#lower.receivedCount;
  }

  get sendable(): boolean {
    return this.#lower.sendable && (this.#state === 'open' || this.#state === 'draining');
  }

  get midSend(): boolean {
    return this.#sending() && this.#operation?.midSend === true;
  }

  /** True while messages are framed, or the one in progress is. */
  #sending(): boolean {
    return this.#state === 'open' || this.#state === 'draining' || this.#state === 'terminating';
  }

  // Startup

  #runLower(now: Micros): void {
    for (;;) {
      const effect = this.#lower.pollEffect();
      if (effect === undefined) return;
      this.#carryOut(effect, now);
    }
  }

  #carryOut(effect: LowerEffect, now: Micros): void {
    switch (effect.type) {
      case 'request':
        this.#emit(effect);
        break;
      case 'rejected':
        this.#transition('rejected');
        this.#emit(effect);
        break;
      case 'full-operation':
        this.#enterFullOperation(effect.agreement);
        if (effect.error !== undefined) this.#operation?.policy.latchLocal(effect.error);
        else this.#emit({ type: 'established', ...effect.agreement });
        if (effect.rtr !== undefined) this.#operation?.queueRtr(effect.rtr);
        // Only an initiator may send at once.
        if (this.#lower.sendable) {
          this.#nudgeDeadline = now + (this.#options.nudgeDelayMicros ?? NEVER);
        }
        this.#advance(now);
        break;
      case 'failed':
        this.#failure ??= effect.failure;
        // No event: the caller closes once the queued output is sent.
        if (effect.close !== 'flush') {
          this.#emit({ type: effect.close === 'finish' ? 'finish' : 'abort' });
        }
        this.#end();
        break;
      case 'peer-finished':
        this.handlePeerClosed(now);
        break;
      default:
        effect satisfies never;
    }
  }

  #enterFullOperation(agreement: Agreement): void {
    const user = this.#user;
    // MPA-7.1-04
    assert(user !== undefined, 'Full Operation without a queue pair');
    const lower = this.#lower;
    lower.enterFullOperation(agreement);
    this.#operation = new FullOperation({
      user,
      writer: lower.writer,
      mulpduBytes: lower.mulpduBytes,
      ird: agreement.ird,
      ord: agreement.ord,
      extensionsEnabled: this.#options.extensionsEnabled ?? true,
    });
    this.#transition('open');
  }

  // Full Operation

  #receive(bytes: Uint8Array, start: number, delivery: Delivery): void {
    const operation = this.#operation;
    if (operation === undefined || this.#state === 'closed') return;
    // RDMAP-6.2.1-04 DDP-3-04 DDP-7.1-19 input after the first error is read and dropped.
    if (this.#failure !== undefined) {
      this.#lower.drop(bytes, delivery);
      return;
    }
    if (this.#peerClosed && start < bytes.length) {
      // DDP-6.2.1-03
      this.#lose('received bytes after the FIN of the peer', undefined);
      this.#abortNow();
      return;
    }
    const { lent } = delivery;
    if (lent !== undefined) this.#user?.takeLent?.(lent);
    const error = this.#lower.receive(bytes, start, bytes.length, delivery, operation);
    if (lent !== undefined) this.#user?.takeLent?.(undefined);
    // DDP-7-01 errors of the lower layer are passed up here; those of DDP and RDMAP are latched with
    // their segment.
    if (error !== undefined) operation.policy.latchLocal(error);
    if (this.#lower.peerHasSpoken) this.#nudgeDeadline = NEVER;
  }

  /**
   * The peer may not have seen the bytes sent right after its Reply; more bytes make it read them.
   */
  #nudge(now: Micros): void {
    this.#nudgeDeadline = NEVER;
    if (!this.sendable || !this.#lower.hasSpoken) return;
    this.#operation?.queueNudge();
    const text = 'the peer is silent since its Reply: an empty Write makes it look for FPDUs';
    this.#emit({ type: 'nudged', quirk: SIW_DEAF_AFTER_REPLY, text });
    this.#advance(now);
  }

  /** Continues after any input: errors, output, and the steps of closing. */
  #advance(now: Micros): void {
    const operation = this.#operation;
    if (operation === undefined) {
      this.#finishWhenFlushed(now);
      return;
    }
    this.#noteReceivedTerminate(operation, now);
    this.#noteError(operation, now);
    const step = this.#pumpOperation(operation);
    // An error while sending: local memory, or the source of a Response.
    this.#noteError(operation, now);
    if (this.#state === 'terminating' && operation.terminateFramed) this.#transition('flushing');
    const drained = this.#state === 'draining' && this.#isDrained(operation, step);
    if (drained) this.#close('flushing', now);
    this.#finishWhenFlushed(now);
  }

  #pumpOperation(operation: FullOperation): Step {
    // MPA-7.1.2-11 a responder sends nothing before the initiator's first valid FPDU.
    return this.#sending() && this.#lower.sendable ? operation.pump() : Step.idle;
  }

  // DDP-6.2.1-01 waits for outstanding Reads, and for those beyond ORD, unless the peer has closed its
  // half.
  #isDrained(operation: FullOperation, step: Step): boolean {
    if (step === Step.waiting) return this.#peerClosed && operation.waitsForAnswers;
    if (step !== Step.idle) return false;
    return operation.outstandingCount === 0 || this.#peerClosed || !this.#lower.sendable;
  }

  // RDMAP-5.4-03 RDMAP-5.4-07 RDMAP-6.2.1-03 reported upward; nothing new begins; a graceful close.
  #noteReceivedTerminate(operation: FullOperation, now: Micros): void {
    const terminate = operation.receivedTerminate;
    if (terminate === undefined || this.#failure !== undefined) return;
    // RDMAP-5.4-04 no Terminate answers it.
    this.#errorNoted = true;
    const text = `the peer sent a Terminate: ${terminate.text}`;
    const failure = streamFailure('terminated', text, terminate);
    const named = terminatedMemory(terminate);
    this.#failure = named === undefined ? failure : { ...failure, named };
    this.#emit({ type: 'terminated', by: 'peer', failure: this.#failure });
    if (this.#state === 'open' || this.#state === 'draining') this.#close('flushing', now);
  }

  /** Acts on the first error, once. */
  #noteError(operation: FullOperation, now: Micros): void {
    const { policy } = operation;
    if (policy.error === undefined || this.#errorNoted) return;
    if (!this.#sending() && this.#state !== 'flushing' && this.#state !== 'finished') return;
    this.#errorNoted = true;
    this.#failure ??= failureOf(policy.error);
    // No Terminate can be sent after our FIN, before a responder may send, or to a lost peer.
    const canNotify = policy.pending || operation.terminateFramed;
    if (this.#state === 'finished' || !this.#lower.sendable || !canNotify) {
      this.#abortNow();
      return;
    }
    // RDMAP-7.1-01 not when the Terminate is framed: it may have to wait for the peer to read.
    this.#announceTerminate(operation);
    this.#close('terminating', now);
  }

  // RDMAP-3.2-03 RDMAP-7.1-01 the local consumer is notified as well.
  #announceTerminate(operation: FullOperation): void {
    const { error } = operation.policy;
    assert(error !== undefined, 'terminate announced without an error');
    const failure = { ...failureOf(error), ...this.#failure, sent: 'a Terminate' };
    this.#emit({ type: 'terminated', by: 'us', failure });
  }

  // Endings

  #close(state: 'draining' | 'terminating' | 'flushing', now: Micros): void {
    this.#transition(state);
    this.#renewDeadline(now);
  }

  #renewDeadline(now: Micros): void {
    this.#closeDeadline = now + this.#options.closeTimeoutMicros;
    this.#progressBytes = this.#operation?.sentBytes ?? 0;
  }

  // DDP-6.2.1-01 posted work may take its time while it makes progress.
  #noteProgress(now: Micros): void {
    if (this.#state !== 'draining') return;
    const sentBytes = this.#operation?.sentBytes ?? 0;
    if (sentBytes - this.#progressBytes >= DRAIN_PROGRESS_BYTES) this.#renewDeadline(now);
  }

  // RDMAP-6.2.1-03 DDP-6.2.1-05 FIN, not RST, once the socket has taken everything.
  #finishWhenFlushed(now: Micros): void {
    if (this.#state === 'flushing' && this.#lower.queuedBytes === 0) {
      this.#transition('finished');
      this.#renewDeadline(now);
      this.#lower.finish();
    }
    if (this.#state !== 'finished') return;
    if (!this.#finishAsked && this.#lower.finished) {
      this.#finishAsked = true;
      this.#emit({ type: 'finish' });
    }
    const unopened = this.#operation === undefined;
    if (this.#peerClosed || (unopened && this.#lower.peerEnded)) this.#end();
  }

  #lose(text: string, errorCode: string | undefined): void {
    const quirk = this.#lower.lossQuirk;
    const lost = failureOf(
      new ProtocolError(
        'mpaConnectionLost',
        errorCode === undefined ? text : `${text} (${errorCode})`,
        quirk,
      ),
    );
    this.#failure ??= lost;
  }

  #abortNow(): void {
    if (this.#state === 'closed') return;
    this.#muted = true;
    this.#emit({ type: 'abort' });
    this.#end();
  }

  /** Ends the stream, once. */
  #end(): void {
    if (this.#state === 'closed') return;
    this.#transition('closed');
    this.#closeDeadline = NEVER;
    this.#nudgeDeadline = NEVER;
    this.#lower.releaseInput();
    this.#emit({ type: 'closed', failure: this.#failure });
  }

  #emit(event: StreamEvent): void {
    if (this.#events === NO_EVENTS) this.#events = [event];
    else this.#events.push(event);
  }

  #transition(next: StateName): void {
    assert(
      LEGAL[this.#state].includes(next),
      `a stream does not go from ${this.#state} to ${next}`,
    );
    this.#state = next;
  }
}

function failureOf(error: ProtocolError): StreamFailure {
  const lost = error.name === 'mpaConnectionLost';
  const local = error.name === 'rdmapLocalCatastrophic';
  const kind = lost ? 'lost' : local ? 'local' : 'protocol';
  return streamFailure(kind, error.text, error);
}
