/**
 * One LLP stream from the open TCP connection to its end: MPA startup, Full Operation, and the
 * three endings of RFC 5040 §6.2 (graceful, Terminate, lost). The drawn state machine is in this
 * folder's README.
 *
 * Methods come in four groups: commands, `handle*` inputs, `poll*` outputs, getters. The caller
 * drains `pollTransmit` and `pollEvent` after every command and input.
 *
 * A Terminate has to arrive: closing a kernel socket with unread input makes it send RST, which can
 * destroy octets the peer has not read. So FIN goes after the Terminate is flushed, and what still
 * comes is read and dropped until the peer's FIN or the close timeout (RDMAP-6.2.1-04).
 *
 * Read before changing: RFC 5040 §5.4, §6, §7; RFC 5041 §6.
 */
import { assert } from '../wire/assert.ts';
import type { Crc32c } from '../wire/crc32c.ts';
import { ProtocolError } from '../wire/protocol-error.ts';
import type { ChunkPool } from './chunk-pool.ts';
import { FpduSender } from './fpdu-sender.ts';
import { FullOperation } from './full-operation.ts';
import { mulpduBytes } from './mulpdu.ts';
import type { StreamUser } from './placement.ts';
import { Step } from './rdmap-sender.ts';
import { type Agreement, Startup, type StartupEffect } from './startup.ts';
import {
  type Micros,
  NEVER,
  type StreamEvent,
  type StreamFailure,
  type StreamOptions,
  type StreamPort,
} from './stream-api.ts';

const NO_OCTETS = new Uint8Array(0);

/** What a stream needs from where it runs. */
export interface StreamEnvironment {
  /** Buffers, shared by the streams of a device. */
  readonly pool: ChunkPool;
  /** Computes CRCs of large FPDUs. */
  readonly crc32c: Crc32c;
  /** Octets that may wait for the socket before sending pauses; `FpduSender` has the default. */
  readonly highWaterBytes?: number;
  /** No FPDU across a segment boundary while CRCs are on; see `FpduSender`. Default false. */
  readonly alignSegments?: boolean;
}

/**
 * - startup: MPA Request and Reply.
 * - rejected: over, but TCP is open until `disconnect`.
 * - open: Full Operation.
 * - draining: `disconnect` was called; what is queued still goes.
 * - terminating: the first fault; a Terminate goes, behind the message that is under way.
 * - flushing: nothing more is framed; FIN once the socket has it all.
 * - finished: FIN was asked for; waits for the peer's.
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
  flushing: ['finished', 'closed'],
  finished: ['closed'],
  closed: [],
};

/** siw's responder sends its Reply before it listens for FPDUs. */
const SIW_DEAF_AFTER_REPLY = 'siw-deaf-after-reply';

/** One stream; see `StreamPort` for its methods. */
export class Stream implements StreamPort {
  readonly #options: StreamOptions;
  readonly #environment: StreamEnvironment;
  readonly #startup: Startup;
  readonly #fpduSender: FpduSender;
  readonly #events: StreamEvent[] = [];
  #state: StateName = 'startup';
  /** For the states from `draining` to `finished`. */
  #deadline: Micros = NEVER;
  #operation: FullOperation | undefined = undefined;
  #user: StreamUser | undefined = undefined;
  /** When an initiator's peer that is silent since its Reply is nudged. */
  #nudgeDeadline: Micros = NEVER;
  #emssBytes: number;
  #sendMarkers = false;
  #peerClosed = false;
  /** Why the stream ends, if not gracefully. The first reason stays. */
  #failure: StreamFailure | undefined = undefined;
  #faultNoted = false;

  constructor(options: StreamOptions, environment: StreamEnvironment) {
    this.#options = options;
    this.#environment = environment;
    this.#emssBytes = options.emssBytes;
    this.#startup = new Startup(options);
    const { pool, crc32c, highWaterBytes, alignSegments } = environment;
    this.#fpduSender = new FpduSender({
      pool,
      crc32c,
      ...(highWaterBytes === undefined ? {} : { highWaterBytes }),
      ...(alignSegments === undefined ? {} : { alignSegments }),
      segmentBytes: options.emssBytes,
    });
  }

  // Commands

  connect(privateData: Uint8Array, user: StreamUser, now: Micros): void {
    this.#startup.connect(privateData, now);
    this.#user = user;
    this.#runStartup(now);
  }

  listen(now: Micros): void {
    this.#startup.listen(now);
  }

  accept(
    privateData: Uint8Array,
    user: StreamUser,
    wishes: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void {
    if (this.#state !== 'startup') return;
    this.#user = user;
    this.#startup.accept(privateData, wishes, now);
    this.#runStartup(now);
    this.#advance(now);
  }

  reject(privateData: Uint8Array, now: Micros): void {
    if (this.#state !== 'startup') return;
    this.#startup.reject(privateData);
    this.#transition('rejected');
    this.#runStartup(now);
  }

  pump(now: Micros): void {
    this.#advance(now);
  }

  // DDP-6.2.1-01 what is queued still goes.
  disconnect(now: Micros): void {
    switch (this.#state) {
      case 'startup':
        // No FIN can be told from a failure before Full Operation, so none is waited for.
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

  abort(_now: Micros): void {
    if (this.#state === 'closed') return;
    this.#failure ??= { kind: 'local', text: 'aborted by its user' };
    this.#abortNow();
  }

  // RDMAP-4.8-14 RDMAP-7.1-02
  fail(failure: StreamFailure, now: Micros): void {
    if (this.#state === 'startup') {
      this.#startup.failLocally(failure.text);
      this.#runStartup(now);
      return;
    }
    if (this.#operation === undefined || this.#failure !== undefined) return;
    this.#failure = failure;
    this.#operation.policy.latchLocal(new ProtocolError('rdmapLocalCatastrophic', failure.text));
    this.#advance(now);
  }

  /** The socket's EMSS has changed: segments cut from now on follow it (MPA-4.5-05). */
  setEmss(emssBytes: number): void {
    this.#emssBytes = emssBytes;
    this.#fpduSender.setSegmentBytes(emssBytes);
    this.#operation?.setMulpdu(this.#mulpduBytes());
  }

  // Inputs

  handleOctets(octets: Uint8Array, now: Micros): void {
    let start = 0;
    if (this.#operation === undefined) {
      if (this.#state !== 'startup') return;
      start = this.#startup.handleOctets(octets, 0, octets.length);
      this.#runStartup(now);
    }
    this.#receive(octets, start);
    // A peer that answers our Reads is not gone.
    if (this.#state === 'draining') this.#renewDeadline(now);
    this.#advance(now);
  }

  handleFlushed(bytes: number, now: Micros): void {
    if (this.#state === 'closed') return;
    this.#fpduSender.flushed(bytes);
    // Nor is one that takes our octets; the close timeout is for one that does not.
    if (this.#deadline !== NEVER && this.#state !== 'finished') this.#renewDeadline(now);
    this.#advance(now);
  }

  handlePeerClosed(now: Micros): void {
    if (this.#peerClosed || this.#state === 'closed') return;
    this.#peerClosed = true;
    if (this.#state === 'startup') {
      this.#startup.handlePeerClosed();
      this.#runStartup(now);
      return;
    }
    const reading = this.#state !== 'rejected' && this.#failure === undefined;
    // MPA-8-02 a FIN within an FPDU or a message is a loss, and forbids a Terminate.
    if (reading && this.#operation?.midMessage === true) {
      this.#lose('the peer closed the connection within a message', undefined);
      this.#abortNow();
      return;
    }
    if (this.#state === 'open' && this.#startup.lossQuirk !== undefined) {
      // Graceful for TCP, but no program's wish: it never got as far as an FPDU.
      this.#lose('the peer closed the connection before its first FPDU', undefined);
      this.#close('flushing', now);
      this.#advance(now);
      return;
    }
    // DDP-6.2.1-04 MPA-7.2-02 half-closed: our own half goes on.
    if (this.#failure === undefined) this.#events.push({ type: 'peer-closed' });
    this.#advance(now);
  }

  handleClosed(errorCode: string | undefined, now: Micros): void {
    if (this.#state === 'startup') {
      this.#startup.handlePeerClosed();
      this.#runStartup(now);
    }
    const graceful =
      errorCode === undefined && (this.#state === 'finished' || this.#state === 'rejected');
    // RDMAP-6.2-01 DDP-6.2.2-01 lost: told once, and nothing can be sent.
    if (this.#state !== 'closed' && !graceful) this.#lose('the connection is gone', errorCode);
    this.#end();
    this.#fpduSender.release();
  }

  handleDeadline(now: Micros): void {
    if (now >= this.#startup.nextDeadline() && this.#deadline === NEVER) {
      this.#startup.handleDeadline(now);
      this.#runStartup(now);
    }
    if (now >= this.#nudgeDeadline) this.#nudge(now);
    if (now < this.#deadline) return;
    this.#failure ??= { kind: 'timeout', text: 'the peer did not close within the close timeout' };
    this.#abortNow();
  }

  // Outputs

  nextDeadline(): Micros {
    if (this.#state === 'closed' || this.#state === 'rejected') return NEVER;
    const due = this.#deadline === NEVER ? this.#startup.nextDeadline() : this.#deadline;
    return Math.min(due, this.#nudgeDeadline);
  }

  pollTransmit(): Uint8Array | undefined {
    return this.#state === 'closed' ? undefined : this.#fpduSender.pollTransmit();
  }

  pollEvent(): StreamEvent | undefined {
    return this.#events.shift();
  }

  // Getters

  /** Octets of an FPDU that has come in part; borrowed until the next input. */
  get heldInput(): Uint8Array {
    return this.#operation?.heldInput ?? NO_OCTETS;
  }

  get sendable(): boolean {
    return this.#startup.sendable && (this.#state === 'open' || this.#state === 'draining');
  }

  // Startup

  #runStartup(now: Micros): void {
    for (;;) {
      const effect = this.#startup.pollEffect();
      if (effect === undefined) return;
      this.#carryOut(effect, now);
    }
  }

  #carryOut(effect: StartupEffect, now: Micros): void {
    switch (effect.type) {
      case 'transmit':
        this.#fpduSender.sendStartupFrame(effect.frame);
        break;
      case 'request':
        this.#events.push(effect);
        break;
      case 'rejected': {
        const { privateData, peerIrd, peerOrd, quirk } = effect;
        this.#transition('rejected');
        this.#events.push({ type: 'rejected', privateData, peerIrd, peerOrd, quirk });
        break;
      }
      case 'full-operation':
        this.#enterFullOperation(effect.agreement);
        if (effect.error !== undefined) this.#operation?.policy.latchLocal(effect.error);
        else this.#announce(effect.agreement);
        if (effect.rtr !== undefined) this.#operation?.queueRtr(effect.rtr);
        // Only an initiator may send at once.
        if (this.#startup.sendable) {
          this.#nudgeDeadline = now + (this.#options.nudgeDelayMicros ?? NEVER);
        }
        this.#advance(now);
        break;
      case 'failed':
        this.#failure ??= effect.failure;
        if (effect.close === 'finish') this.#events.push({ type: 'finish' });
        else this.#events.push({ type: 'abort' });
        this.#end();
        break;
      default:
        effect satisfies never;
    }
  }

  #enterFullOperation(agreement: Agreement): void {
    const user = this.#user;
    // MPA-7.1-04
    assert(user !== undefined, 'a queue pair is bound before Full Operation');
    const { pool, crc32c } = this.#environment;
    this.#sendMarkers = agreement.sendMarkers;
    this.#fpduSender.enterFullOperation(agreement.crcEnabled, agreement.sendMarkers);
    this.#operation = new FullOperation({
      user,
      fpduSender: this.#fpduSender,
      receiver: {
        pool,
        crc32c,
        crcEnabled: agreement.crcEnabled,
        markers: agreement.receiveMarkers,
      },
      mulpduBytes: this.#mulpduBytes(),
      ird: agreement.ird,
      ord: agreement.ord,
      extensionsEnabled: this.#options.extensionsEnabled ?? true,
    });
    this.#transition('open');
  }

  #announce(agreement: Agreement): void {
    this.#events.push({ type: 'established', ...agreement });
  }

  #mulpduBytes(): number {
    return mulpduBytes(this.#options.fpduSize, this.#emssBytes, this.#sendMarkers);
  }

  // Full Operation

  #receive(octets: Uint8Array, start: number): void {
    const operation = this.#operation;
    // RDMAP-6.2.1-04 DDP-3-04 DDP-7.1-19 after the first fault what comes is read and dropped.
    if (operation === undefined || this.#failure !== undefined || this.#state === 'closed') return;
    if (this.#peerClosed && start < octets.length) {
      // DDP-6.2.1-03
      this.#lose('octets came behind the FIN of the peer', undefined);
      this.#abortNow();
      return;
    }
    operation.receive(octets, start, octets.length);
    if (!operation.peerHasSpoken) return;
    this.#startup.handleFirstFpdu();
    this.#nudgeDeadline = NEVER;
  }

  /** The peer may not have seen what it was sent right behind its Reply: more octets make it look. */
  #nudge(now: Micros): void {
    this.#nudgeDeadline = NEVER;
    if (!this.sendable || !this.#fpduSender.hasSpoken) return;
    this.#operation?.queueNudge();
    const text = 'the peer is silent since its Reply: an empty Write makes it look for FPDUs';
    this.#events.push({ type: 'nudged', quirk: SIW_DEAF_AFTER_REPLY, text });
    this.#advance(now);
  }

  /** Moves on after any input: faults, output, and the steps of closing. */
  #advance(now: Micros): void {
    const operation = this.#operation;
    if (operation === undefined) {
      this.#finishWhenFlushed(now);
      return;
    }
    this.#noteReceivedTerminate(operation, now);
    this.#noteFault(operation, now);
    const step = this.#pumpOperation(operation);
    // A fault of sending: local memory, or the source of a Response.
    this.#noteFault(operation, now);
    if (this.#state === 'terminating' && operation.terminateFramed) {
      this.#announceTerminate(operation);
      this.#transition('flushing');
    }
    const drained = this.#state === 'draining' && this.#isDrained(operation, step);
    if (drained) this.#transition('flushing');
    this.#finishWhenFlushed(now);
  }

  #pumpOperation(operation: FullOperation): Step {
    const sending =
      this.#state === 'open' || this.#state === 'draining' || this.#state === 'terminating';
    // MPA-7.1.2-11 a responder sends nothing before the initiator's first valid FPDU.
    return sending && this.#startup.sendable ? operation.pump() : Step.idle;
  }

  // DDP-6.2.1-01 Reads still awaited are waited for, unless the peer has closed its half.
  #isDrained(operation: FullOperation, step: Step): boolean {
    if (step !== Step.idle) return false;
    return operation.outstandingCount === 0 || this.#peerClosed || !this.#startup.sendable;
  }

  // RDMAP-5.4-03 RDMAP-5.4-07 RDMAP-6.2.1-03 told upward; nothing is begun; a graceful close.
  #noteReceivedTerminate(operation: FullOperation, now: Micros): void {
    const terminate = operation.receivedTerminate;
    if (terminate === undefined || this.#failure !== undefined) return;
    const { layer, etype, code, text, quirk } = terminate;
    const said = { kind: 'terminated', text: `the peer ended the stream: ${text}` };
    const failure = { ...said, layer, etype, code };
    this.#failure = quirk === undefined ? failure : { ...failure, quirk };
    this.#events.push({ type: 'terminated', by: 'peer', failure: this.#failure });
    if (this.#state === 'open' || this.#state === 'draining') this.#close('flushing', now);
  }

  /** Acts on the first fault, once. */
  #noteFault(operation: FullOperation, now: Micros): void {
    const { policy } = operation;
    if (policy.error === undefined || this.#faultNoted) return;
    if (this.#state !== 'open' && this.#state !== 'draining' && this.#state !== 'finished') return;
    this.#faultNoted = true;
    this.#failure ??= failureOf(policy.error);
    // Nothing can be said behind our FIN, before a responder may speak, or to a lost peer.
    const tellable = policy.pending || operation.terminateFramed;
    if (this.#state === 'finished' || !this.#startup.sendable || !tellable) this.#abortNow();
    else this.#close('terminating', now);
  }

  // RDMAP-3.2-03 RDMAP-7.1-01 the local consumer learns of it too.
  #announceTerminate(operation: FullOperation): void {
    const { error } = operation.policy;
    assert(error !== undefined, 'a Terminate has its fault');
    const failure = this.#failure ?? failureOf(error);
    const { layer, etype, code } = error;
    this.#events.push({
      type: 'terminated',
      by: 'us',
      failure: { layer, etype, code, ...failure },
    });
  }

  // Endings

  #close(state: 'draining' | 'terminating' | 'flushing', now: Micros): void {
    this.#transition(state);
    this.#renewDeadline(now);
  }

  #renewDeadline(now: Micros): void {
    this.#deadline = now + this.#options.closeTimeoutMicros;
  }

  // RDMAP-6.2.1-03 DDP-6.2.1-05 FIN, not RST, once the socket has taken everything.
  #finishWhenFlushed(now: Micros): void {
    if (this.#state === 'flushing' && this.#fpduSender.queuedBytes === 0) {
      this.#transition('finished');
      this.#renewDeadline(now);
      this.#events.push({ type: 'finish' });
    }
    if (this.#state === 'finished' && this.#peerClosed) this.#end();
  }

  #lose(text: string, errorCode: string | undefined): void {
    const quirk = this.#startup.lossQuirk;
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
    this.#events.push({ type: 'abort' });
    this.#end();
  }

  /** The stream is over, once. */
  #end(): void {
    if (this.#state === 'closed') return;
    this.#transition('closed');
    this.#deadline = NEVER;
    this.#nudgeDeadline = NEVER;
    this.#operation?.release();
    this.#events.push({ type: 'closed', failure: this.#failure });
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
  const { layer, etype, code, text, quirk } = error;
  const kind = lost ? 'lost' : local ? 'local' : 'protocol';
  const failure = { kind, text, layer, etype, code };
  return quirk === undefined ? failure : { ...failure, quirk };
}
