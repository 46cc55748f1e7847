/**
 * MPA startup of one stream, as initiator or responder: from the open TCP connection to Full
 * Operation, a rejection or a failure.
 *
 * The stream drives it: commands and inputs first, then `pollEffect` until it is empty. It does no
 * I/O; frames to send are effects. This folder's README has the state diagram.
 *
 * Where the RFCs leave a choice: a responder that fails before the initiator's first FPDU closes
 * without a Terminate (RFC 5044 §7.1.2 rule 4 contradicts RFC 6581 §9.3; EMPA-9.3-03). An
 * unenhanced Reply to an enhanced Request is taken literally: depths stay as configured, no RTR is
 * due, and the consumer sees no peer depths (EMPA-10-07). Bytes after a Reply are the responder's
 * first FPDUs, since the kernel's siw sends before it may (MPA-7.1.1-23).
 *
 * Read before changing: RFC 5044 §7.1; RFC 6581 §5 to §10.
 */
import { assert } from '#base/assert';
import { copyBytes } from '#base/checked-bytes';
import { type Micros, NEVER } from '#base/time';
import type { EnhancedParameters } from '../wire/enhanced-word.ts';
import { MPA_ERRORS, type ProtocolError } from '../wire/protocol-error.ts';
import {
  emitStartupFrame,
  parseStartupFrame,
  STARTUP_FRAME_MAX_BYTES,
  type StartupFrame,
  type StartupFrameError,
  type StartupFrameKind,
  startupFrameBytesNeeded,
  startupFrameSizeBytes,
} from '../wire/startup-frame.ts';
import type { SetupEffect } from './lower-layer.ts';
import {
  answerRequest,
  concludeReply,
  crcInUse,
  type Depths,
  rejectParameters,
  requestParameters,
} from './negotiation.ts';
import type { Agreement, StreamOptions } from './stream-api.ts';
import { type StreamFailure, streamFailure } from './stream-failure.ts';

/** Effects for the stream, in order. */
export type StartupEffect =
  /** Queue our startup frame. */
  | { readonly type: 'transmit'; readonly frame: Uint8Array }
  /**
   * After a rejection TCP stays open for the consumer (MPA-7.1.2-09). In Full Operation, bytes that
   * `handleBytes` did not consume, and all later ones, are FPDUs.
   */
  | SetupEffect;

type State =
  | { readonly name: 'idle' }
  | { readonly name: 'awaiting-reply'; readonly request: StartupFrame; readonly deadline: Micros }
  /** Initiator with a local error, which it reports once the Reply allows it to send. */
  | { readonly name: 'giving-up'; readonly request: StartupFrame; readonly deadline: Micros }
  | { readonly name: 'awaiting-request'; readonly deadline: Micros }
  | { readonly name: 'awaiting-consumer'; readonly request: StartupFrame }
  /** Responder in Full Operation that must not send yet. `deadline` is set when an RTR is due. */
  | { readonly name: 'awaiting-first-fpdu'; readonly deadline: Micros }
  | { readonly name: 'full-operation' }
  | { readonly name: 'rejected' }
  | { readonly name: 'failed' };

type StartupStateName = State['name'];

/** The state that nearly all streams reach. */
const FULL_OPERATION: State = { name: 'full-operation' };

const LEGAL: Readonly<Record<StartupStateName, readonly StartupStateName[]>> = {
  idle: ['awaiting-reply', 'awaiting-request', 'failed'],
  'awaiting-reply': ['giving-up', 'full-operation', 'rejected', 'failed'],
  'giving-up': ['full-operation', 'rejected', 'failed'],
  'awaiting-request': ['awaiting-consumer', 'failed'],
  'awaiting-consumer': ['awaiting-first-fpdu', 'rejected', 'failed'],
  'awaiting-first-fpdu': ['full-operation', 'failed'],
  'full-operation': [],
  rejected: [],
  failed: [],
};

const ERROR_TEXT: Readonly<Record<StartupFrameError, string>> = {
  'wrong-key': 'the bytes are no MPA startup frame',
  'other-key': 'the peer took the same MPA role as this end',
  revision: 'the MPA revision is neither 1 nor 2',
  'private-data-length': 'PD_Length is above 512',
  'enhanced-length': 'PD_Length leaves no room for the enhanced connection data',
};

/** siw's revision 2 Request with 252 or more bytes of Private Data has a PD_Length of 0 to 3. */
const SIW_LENGTH_OVERFLOW = 'siw-private-data-length-overflow';
/** siw rejects a Request with M, and drops a connection whose Reply has M. */
const SIW_REFUSES_MARKERS = 'siw-refuses-markers';

export class Startup {
  readonly #options: StreamOptions;
  #effects: StartupEffect[] = [];
  #state: State = { name: 'idle' };
  /** The part of the peer's frame received so far; undefined unless one has begun. */
  #inbound: Uint8Array | undefined = undefined;
  #inboundBytes = 0;

  constructor(options: StreamOptions) {
    this.#options = options;
  }

  // Commands

  /**
   * Initiator: sends the Request. Throws `RangeError`, with nothing sent, when the Private Data is
   * longer than 512 bytes, or 508 in an enhanced Request.
   */
  connect(privateData: Uint8Array, now: Micros): void {
    const options = this.#options;
    // EMPA-6-06, EMPA-10-03: revision 1 requests no enhanced function.
    const enhanced = options.mpaRevision === 2 && options.enhancedSupported;
    const request: StartupFrame = {
      kind: 'request',
      markers: options.markersRequested,
      // MPA-1.2-01, MPA-4.4-02
      crc: options.crcRequested,
      rejected: false,
      revision: enhanced ? 2 : 1,
      enhanced: enhanced ? requestParameters(options) : undefined,
      privateData,
    };
    const frame = emitted(request);
    const deadline = now + options.startupTimeoutMicros;
    this.#transition({ name: 'awaiting-reply', request, deadline });
    // MPA-7.1.2-01
    this.#effects.push({ type: 'transmit', frame });
  }

  // MPA-7.1.2-02: nothing is sent and no FPDU accepted before a valid Request has arrived.
  /** Responder: waits for the Request, at most for the startup timeout (MPA-7.1.2-16). */
  listen(now: Micros): void {
    const deadline = now + this.#options.startupTimeoutMicros;
    this.#transition({ name: 'awaiting-request', deadline });
  }

  /**
   * Responder: accepts with the consumer's depths. Does nothing if the connection has failed since.
   * Throws `RangeError` for too long Private Data; the Request then stays unanswered.
   */
  accept(
    privateData: Uint8Array,
    consumerDepths: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void {
    if (this.#state.name === 'failed') return;
    assert(this.#state.name === 'awaiting-consumer', 'no Request to accept');
    const { request } = this.#state;
    const options = this.#options;
    // EMPA-10-01, EMPA-10-02, EMPA-10-04
    const { reply, depths } = answerRequest(request.enhanced, consumerDepths, options);
    const frame = emitted(this.#reply(request, reply, privateData, false));
    // MPA-7.1.2-18: an RTR follows the Reply at once, so the startup timeout applies to it. In the
    // client-server model the consumer may send its first message later.
    const rtrDue = reply?.peerToPeer === true;
    const deadline = rtrDue ? now + options.startupTimeoutMicros : NEVER;
    this.#transition({ name: 'awaiting-first-fpdu', deadline });
    // MPA-7.1.2-06
    this.#effects.push({ type: 'transmit', frame });
    const agreement = this.#agreement(request, depths);
    this.#effects.push({ type: 'full-operation', agreement, rtr: undefined, error: undefined });
  }

  /** Responder: rejects. MPA leaves TCP open (MPA-7.1.2-05). Errors as for `accept`. */
  reject(privateData: Uint8Array): void {
    if (this.#state.name === 'failed') return;
    assert(this.#state.name === 'awaiting-consumer', 'no Request to reject');
    const { request } = this.#state;
    const parameters = rejectParameters(request.enhanced, this.#options);
    // MPA-7.1.2-04, MPA-7.1.1-12
    const frame = emitted(this.#reply(request, parameters, privateData, true));
    this.#transition({ name: 'rejected' });
    this.#effects.push({ type: 'transmit', frame });
  }

  /**
   * A local error ends the connection. An initiator that awaits the Reply must not send before it arrives, so
   * it sends a Terminate afterwards. A responder closes without one, even after its Reply. Does nothing once
   * startup is over.
   */
  failLocally(text: string): void {
    const state = this.#state;
    if (LEGAL[state.name].length === 0 || state.name === 'giving-up') return;
    if (state.name === 'awaiting-reply' && state.request.enhanced !== undefined) {
      this.#transition({ ...state, name: 'giving-up' });
      return;
    }
    // EMPA-9.3-03: rule 4 of RFC 5044 §7.1.2 forbids the FPDU that would report it.
    this.#fail({ kind: 'local', text }, 'abort');
  }

  // Inputs

  /**
   * Takes `bytes[start, end)`, borrowed for the call. On entering Full Operation, returns where the
   * peer's startup frame ended: the bytes from there on are FPDUs. Returns `end` otherwise.
   */
  handleBytes(bytes: Uint8Array, start: number, end: number): number {
    const kind = this.#awaitedKind();
    if (kind === undefined) return this.#handleUnawaited(start, end);
    const at = this.#takeFrame(kind, bytes, start, end);
    if (at === undefined) return end;
    const frame = this.#parseInbound(kind);
    if (frame === undefined) return end;
    if (frame.kind === 'request') {
      this.#handleRequest(frame, end - at);
      return end;
    }
    this.#handleReply(frame);
    // Read through a getter, since the compiler does not see that the state has changed.
    return this.stateName === 'full-operation' ? at : end;
  }

  /** The initiator's first valid FPDU has arrived: the responder may send (MPA-7.1.2-11). */
  handleFirstFpdu(): void {
    if (this.#state.name === 'awaiting-first-fpdu') this.#transition(FULL_OPERATION);
  }

  /** The peer's FIN, or the end of the socket. In Full Operation the stream handles it. */
  handlePeerClosed(): void {
    if (this.#awaitedKind() !== undefined) {
      if (this.#inboundBytes > 0) {
        // MPA-7.1.1-21, MPA-7.1.1-22
        this.#failFrame('the connection ended within the startup frame', undefined, 'abort');
        return;
      }
      this.#failLost('lost', 'the peer closed the connection before its startup frame');
    } else if (this.#state.name === 'awaiting-consumer') {
      this.#failLost('lost', 'the initiator closed the connection before it was answered');
    }
  }

  handleDeadline(now: Micros): void {
    if (now < this.nextDeadline()) return;
    const kind = this.#awaitedKind();
    const awaited = kind === undefined ? 'RTR indication' : `MPA ${kind}`;
    // MPA-7.1.2-16, MPA-7.1.2-18
    this.#failLost('timeout', `no ${awaited} from the peer within the startup timeout`);
  }

  // Outputs

  /** The next effect to carry out, oldest first. */
  pollEffect(): StartupEffect | undefined {
    const effect = this.#effects.shift();
    if (effect !== undefined && this.#effects.length === 0) this.#effects = [];
    return effect;
  }

  /** When `handleDeadline` is due. Incoming bytes do not move it (MPA-7.1.2-18). */
  nextDeadline(): Micros {
    const state = this.#state;
    return 'deadline' in state ? state.deadline : NEVER;
  }

  // Getters

  get stateName(): StartupStateName {
    return this.#state.name;
  }

  // MPA-7.1.2-11, EMPA-9.2-16: RTR or not, the responder waits for a valid FPDU.
  /** True when FPDUs may be sent. */
  get sendable(): boolean {
    return this.#state.name === 'full-operation';
  }

  /**
   * For the stream, when the connection is lost before the first FPDU: the known peer's quirk that
   * explains it.
   */
  get lossQuirk(): string | undefined {
    const waiting = this.#state.name === 'awaiting-first-fpdu';
    return waiting && this.#options.markersRequested ? SIW_REFUSES_MARKERS : undefined;
  }

  // Handlers

  #awaitedKind(): StartupFrameKind | undefined {
    const name = this.#state.name;
    if (name === 'awaiting-reply' || name === 'giving-up') return 'reply';
    return name === 'awaiting-request' ? 'request' : undefined;
  }

  /** Bytes while no startup frame is due. */
  #handleUnawaited(start: number, end: number): number {
    const name = this.#state.name;
    if (name === 'full-operation' || name === 'awaiting-first-fpdu') return start;
    if (name === 'awaiting-consumer' && end > start) this.#failExcess();
    return end;
  }

  /** Copies the rest of the peer's frame. Returns where it ended; undefined while incomplete. */
  #takeFrame(
    kind: StartupFrameKind,
    bytes: Uint8Array,
    start: number,
    end: number,
  ): number | undefined {
    let at = start;
    const inbound = this.#inbound ?? new Uint8Array(STARTUP_FRAME_MAX_BYTES);
    this.#inbound = inbound;
    for (;;) {
      const needed = startupFrameBytesNeeded(inbound, this.#inboundBytes, kind);
      if (typeof needed === 'string') {
        // MPA-7.1.3-01: fails at the first wrong byte, not at the timeout.
        this.#reject(needed);
        return undefined;
      }
      if (this.#inboundBytes === needed) return at;
      // MPA-7.1.2-17: at most the announced length, which the buffer can hold.
      const taken = Math.min(needed - this.#inboundBytes, end - at);
      if (taken === 0) return undefined;
      copyBytes(bytes, at, at + taken, inbound, this.#inboundBytes);
      this.#inboundBytes += taken;
      at += taken;
    }
  }

  /** Parses the complete frame. Its Private Data keeps the buffer, which is not reused. */
  #parseInbound(kind: StartupFrameKind): StartupFrame | undefined {
    assert(this.#inbound !== undefined, 'no frame to parse');
    const frame = parseStartupFrame(this.#inbound.subarray(0, this.#inboundBytes), kind);
    this.#inbound = undefined;
    this.#inboundBytes = 0;
    if (typeof frame !== 'string') return frame;
    this.#reject(frame);
    return undefined;
  }

  #handleRequest(request: StartupFrame, excessBytes: number): void {
    // MPA-7.1.1-22: an initiator must send nothing before it has the Reply.
    if (excessBytes > 0) {
      this.#failExcess();
      return;
    }
    // EMPA-10-05: closed without a Reply, so the initiator can retry unenhanced.
    if (request.enhanced !== undefined && !this.#options.enhancedSupported) {
      this.#failFrame('an enhanced Request; only revision 1 is spoken here', undefined, 'abort');
      return;
    }
    this.#transition({ name: 'awaiting-consumer', request });
    // MPA-7.1-06, MPA-7.1.1-17, MPA-7.1.1-24, EMPA-9.1-03: the consumer judges all of it.
    this.#effects.push({
      type: 'request',
      revision: request.revision,
      enhanced: request.enhanced !== undefined,
      privateData: request.privateData,
      peerIrd: request.enhanced?.ird,
      peerOrd: request.enhanced?.ord,
      peerToPeer: request.enhanced?.peerToPeer === true,
    });
  }

  #handleReply(reply: StartupFrame): void {
    const state = this.#state;
    const givingUp = state.name === 'giving-up';
    assert(givingUp || state.name === 'awaiting-reply', 'unexpected Reply');
    const { request } = state;
    if (reply.enhanced !== undefined && request.enhanced === undefined) {
      // EMPA-10-02
      this.#failFrame('an enhanced Reply to an unenhanced Request', undefined, 'abort');
      return;
    }
    if (reply.rejected) {
      this.#transition({ name: 'rejected' });
      // MPA-7.1.2-09, MPA-7.1.4.2-01, EMPA-9.1-11
      this.#effects.push({
        type: 'rejected',
        privateData: reply.privateData,
        peerIrd: reply.enhanced?.ird,
        peerOrd: reply.enhanced?.ord,
        quirk: request.markers ? SIW_REFUSES_MARKERS : undefined,
      });
      return;
    }
    // MPA-7.1.2-07: from here on FPDUs may be sent.
    this.#transition(FULL_OPERATION);
    const outcome = concludeReply(request.enhanced, reply.enhanced, this.#options);
    // EMPA-9.3-02
    const error = givingUp ? MPA_ERRORS.localCatastrophic : outcome.error;
    // MPA-7.1.2-10
    this.#effects.push({
      type: 'full-operation',
      agreement: this.#agreement(reply, outcome),
      rtr: error === undefined ? outcome.rtr : undefined,
      error,
    });
  }

  // Parts of effects

  #reply(
    request: StartupFrame,
    enhanced: EnhancedParameters | undefined,
    privateData: Uint8Array,
    rejected: boolean,
  ): StartupFrame {
    return {
      kind: 'reply',
      markers: this.#options.markersRequested,
      crc: this.#options.crcRequested,
      rejected,
      // EMPA-10-02, MPA-7.1.1-15: an initiator understands the revision that it sent.
      revision: this.#options.enhancedSupported ? request.revision : 1,
      enhanced,
      privateData,
    };
  }

  #agreement(peer: StartupFrame, depths: Depths): Agreement {
    return {
      ird: depths.ird,
      ord: depths.ord,
      crcEnabled: crcInUse(this.#options.crcRequested, peer.crc),
      // MPA-7.1.1-06, MPA-7.1.1-07, MPA-7.1.1-08: in each direction the receiver's M alone decides.
      sendMarkers: peer.markers,
      receiveMarkers: this.#options.markersRequested,
      revision: peer.revision,
      peerIrd: peer.enhanced?.ird,
      peerOrd: peer.enhanced?.ord,
      privateData: peer.privateData,
    };
  }

  #reject(error: StartupFrameError): void {
    const quirk = error === 'enhanced-length' ? SIW_LENGTH_OVERFLOW : undefined;
    // MPA-C.2.2-01: a revision mismatch is not an attack: FIN, not RST.
    this.#failFrame(ERROR_TEXT[error], quirk, error === 'revision' ? 'finish' : 'abort');
  }

  #failExcess(): void {
    this.#failFrame('bytes after a Request that has no Reply yet', undefined, 'abort');
  }

  // MPA-8-06, MPA-7.1.2-03, MPA-7.1.2-08: closed at once, with code 4, and nothing is sent.
  #failFrame(text: string, quirk: string | undefined, close: 'finish' | 'abort'): void {
    this.#fail(failureOf('invalid-frame', text, MPA_ERRORS.invalidStartupFrame, quirk), close);
  }

  // MPA-8-02: code 1 covers every loss, timeouts included.
  #failLost(kind: 'lost' | 'timeout', text: string): void {
    this.#fail(failureOf(kind, text, MPA_ERRORS.connectionLost, this.lossQuirk), 'abort');
  }

  #fail(failure: StreamFailure, close: 'finish' | 'abort'): void {
    this.#transition({ name: 'failed' });
    this.#inbound = undefined;
    this.#inboundBytes = 0;
    this.#effects.push({ type: 'failed', failure, close });
  }

  #transition(next: State): void {
    const legal = LEGAL[this.#state.name].includes(next.name);
    assert(legal, `MPA startup: illegal transition from ${this.#state.name} to ${next.name}`);
    this.#state = next;
  }
}

function emitted(frame: StartupFrame): Uint8Array {
  const bytes = new Uint8Array(startupFrameSizeBytes(frame));
  emitStartupFrame(frame, bytes);
  return bytes;
}

function failureOf(
  kind: string,
  text: string,
  error: ProtocolError,
  quirk: string | undefined,
): StreamFailure {
  const { layer, etype, code } = error;
  return streamFailure(kind, `${error.text}: ${text}`, { layer, etype, code, quirk });
}
