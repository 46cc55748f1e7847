/**
 * One TCP connection from the first SYN to the last FIN: the state machine between a stream, a
 * queue pair and a connection id. The id may be destroyed earlier; the endpoint then ends without
 * it.
 *
 * Read before changing: RFC 5044 §7.1–7.2, RFC 6581 §9–10; the diagram is in README.md.
 */
import { type Micros, NEVER } from '#base/time';
import type { CMOutcome, CMParameters } from '#contract/protocol/commands';
import { lowerLayerText } from '#contract/verbs/attributes';
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO, type ErrnoCode } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { WireFailure } from '#daemon/rnic/wire-port';
import type { Depths } from '../engine/negotiation.ts';
import type { StreamEvent } from '../engine/stream-api.ts';
import type { CmDevice, CmStream, ConnectableQP } from './cm-types.ts';
import type { DialPatience } from './dial-patience.ts';

/** Phases of a connection, in the order in which they can follow each other. */
export type EndpointPhase =
  /** Initiator: TCP is connecting. */
  | 'dialing'
  /** Initiator: the Request was sent, the Reply is awaited. */
  | 'initiating'
  /** Responder: the Request is awaited. */
  | 'awaiting-request'
  /** Responder: the consumer has the connect request. */
  | 'requested'
  /** Responder: accepted, the Reply is being sent. */
  | 'accepting'
  /** Full Operation. */
  | 'established'
  /** Full Operation was ended by a close of either side; TCP is still open. */
  | 'closing'
  /** MPA ended by a rejection; the manager, as ULP, closes TCP. */
  | 'leaving'
  /** The socket is closed, or ordered to close. */
  | 'over';

const TRANSITIONS: Readonly<Record<EndpointPhase, readonly EndpointPhase[]>> = {
  dialing: ['initiating', 'over'],
  initiating: ['established', 'leaving', 'over'],
  'awaiting-request': ['requested', 'leaving', 'over'],
  requested: ['accepting', 'leaving', 'over'],
  accepting: ['established', 'over'],
  established: ['closing', 'over'],
  closing: ['over'],
  leaving: ['over'],
  over: [],
};

/** The endpoint's interface to its connection manager. */
export interface EndpointOwner<Id> {
  /** A Request arrived: false if the backlog is full. */
  requested(endpoint: Endpoint<Id>, event: RequestEvent): boolean;
  /** Delivers an event to the id, if it still exists. */
  deliver(endpoint: Endpoint<Id>, event: CMOutcome): void;
  /** The stream got a command: it may have bytes and events. */
  touched(endpoint: Endpoint<Id>): void;
  /** A refused dial is due again. */
  redial(endpoint: Endpoint<Id>, now: Micros): void;
  cancelDial(endpoint: Endpoint<Id>): void;
  /** `endpoint.qp` is about to be cleared. */
  released(endpoint: Endpoint<Id>): void;
  /** The endpoint has reached 'over'. */
  finished(endpoint: Endpoint<Id>): void;
}

/** An MPA Request as the stream reports it. */
export type RequestEvent = Extract<StreamEvent, { type: 'request' }>;

const NO_BYTES = new Uint8Array(0);

/** One connection, of ids `Id`. The host binds a socket to it and feeds its stream. */
export class Endpoint<Id> {
  readonly role: 'initiator' | 'responder';
  readonly device: CmDevice;
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
  /** The id that it belongs to: none before the connect request, none once the id is destroyed. */
  id: Id | undefined;
  /** Responder: the listening id, until the request is answered or the listener is destroyed. */
  listener: Id | undefined;
  stream: CmStream | undefined;
  qp: ConnectableQP | undefined;
  /** Initiator: the parameters of connect, until the connection is established. */
  parameters: CMParameters | undefined;
  depths: Depths | undefined;
  /** Deadline for TCP. */
  deadline: Micros = NEVER;
  /** Initiator: how long refused attempts are repeated. */
  patience: DialPatience | undefined;
  #redialDue: Micros = NEVER;
  /** Set when the peer of an unanswered request disconnects. */
  lost = false;
  /** Responder: a fault rejects the Request. */
  rejecting = false;
  /** Responder: whether the Request was enhanced, which limits the Reply's Private Data. */
  enhanced = false;
  readonly #owner: EndpointOwner<Id>;
  #phase: EndpointPhase;
  #failure: WireFailure | undefined;

  constructor(
    role: 'initiator' | 'responder',
    device: CmDevice,
    addresses: { readonly local: SocketAddress; readonly remote: SocketAddress },
    owner: EndpointOwner<Id>,
  ) {
    this.role = role;
    this.device = device;
    this.local = addresses.local;
    this.remote = addresses.remote;
    this.#owner = owner;
    this.#phase = role === 'initiator' ? 'dialing' : 'awaiting-request';
  }

  get phase(): EndpointPhase {
    return this.#phase;
  }

  // Commands of the connection manager

  /** Initiator: TCP is connected. Throws `VerbsError` if the QP no longer accepts the stream. */
  initiate(stream: CmStream, now: Micros): void {
    const { qp, parameters } = this;
    if (qp === undefined || parameters === undefined) return;
    qp.attach(stream);
    this.stream = stream;
    this.deadline = NEVER;
    this.#transition('initiating');
    // MPA-7.1.2-01
    stream.connect(parameters.privateData, qp, now);
    this.#owner.touched(this);
  }

  /** Responder: TCP is connected; MPA's timeout for the Request starts here (MPA-7.1.2-16). */
  awaitRequest(stream: CmStream, now: Micros): void {
    this.stream = stream;
    stream.listen(now);
  }

  /** Responder: answers the Request. Throws `VerbsError` when the QP refuses. */
  accept(qp: ConnectableQP, privateData: Uint8Array, depths: Depths, now: Micros): void {
    const stream = this.stream;
    if (stream === undefined) return;
    qp.attach(stream);
    this.qp = qp;
    this.#transition('accepting');
    stream.accept(privateData, qp, depths, now);
    this.#owner.touched(this);
  }

  /** Responder: rejects the Request and then closes TCP, which MPA leaves open (MPA-7.1.2-05). */
  reject(privateData: Uint8Array, now: Micros): void {
    // MPA-7.1.2-04
    this.stream?.reject(privateData, now);
    this.#leave(now);
  }

  // SCTP-6.3-02
  /** Responder: rejects without a decision of its consumer. Not every wire sends that as a rejection. */
  #refuse(now: Micros): void {
    this.stream?.refuse(now);
    this.#leave(now);
  }

  /** Graceful close: our FIN follows everything queued (DDP-6.2.1-01). */
  disconnect(now: Micros): void {
    if (this.#phase !== 'established') return;
    this.#transition('closing');
    // DDP-6.2.1-02: before the stream drains; otherwise a consumer that keeps posting would keep it
    // open.
    this.qp?.disconnecting(now);
    this.stream?.disconnect(now);
    this.#owner.touched(this);
  }

  /** The consumer abandons it, in any phase, and gets no further event. */
  drop(now: Micros): void {
    this.id = undefined;
    switch (this.#phase) {
      case 'requested':
        // The peer is entitled to an answer: a rejecting Reply on MPA.
        this.#refuse(now);
        return;
      case 'established':
        // Graceful for TCP: bytes of completed work requests still reach the peer.
        this.disconnect(now);
        return;
      case 'closing':
      case 'leaving':
      case 'over':
        return;
      case 'dialing':
      case 'initiating':
      case 'awaiting-request':
      case 'accepting':
        this.#end(now, 'reset');
        return;
      default:
        this.#phase satisfies never;
    }
  }

  // Inputs

  handleDialFailed(code: string, now: Micros): void {
    if (this.#phase !== 'dialing') return;
    const retryAt = this.patience?.retryAt(code, now);
    if (retryAt !== undefined) {
      this.#redialDue = retryAt;
      return;
    }
    const { type, error } = dialFailure(code);
    this.#report(
      type,
      error,
      error === code ? ERRNO[error].text : `${this.#layer} connection failed: ${code}`,
    );
    this.#end(now, undefined);
  }

  /** TCP is connected, but the QP changed its state or was destroyed in the meantime. */
  handleQPRefused(now: Micros): void {
    const text = `the queue pair changed its state while ${this.#layer} was connecting`;
    this.#report(CMEventType.connectError, 'EINVAL', text);
    this.#end(now, undefined);
  }

  nextDeadline(): Micros {
    return Math.min(this.deadline, this.#redialDue);
  }

  handleDeadline(now: Micros): void {
    if (this.#phase !== 'dialing') return;
    if (now < this.deadline) {
      if (now < this.#redialDue) return;
      this.#redialDue = NEVER;
      this.#owner.redial(this, now);
      return;
    }
    this.#report(CMEventType.unreachable, 'ETIMEDOUT', `${this.#layer} did not connect in time`);
    this.#end(now, 'reset');
  }

  /** The stream has an event. Others handle 'nudged', 'finish' and 'abort'. */
  handleStreamEvent(event: StreamEvent, now: Micros): void {
    switch (event.type) {
      case 'request':
        this.#handleRequest(event, now);
        return;
      case 'rejected':
        this.#handleRejected(event, now);
        return;
      case 'established':
        this.#handleEstablished(event, now);
        return;
      case 'terminated':
        this.#failure ??= event.failure;
        if (this.#phase === 'established' || this.#phase === 'closing') {
          this.qp?.terminated(event.by, event.failure, now);
        }
        return;
      case 'peer-closed':
        this.#handlePeerClosed(now);
        return;
      case 'closed':
        this.#handleClosed(event.failure, now);
        return;
      case 'nudged':
      case 'finish':
      case 'abort':
        return;
      default:
        event satisfies never;
    }
  }

  #handleRequest(event: RequestEvent, now: Micros): void {
    if (this.#phase !== 'awaiting-request') return;
    this.enhanced = event.enhanced;
    this.#transition('requested');
    if (this.rejecting) this.reject(NO_BYTES, now);
    else if (!this.#owner.requested(this, event)) this.#refuse(now);
  }

  #handleRejected(event: Extract<StreamEvent, { type: 'rejected' }>, now: Micros): void {
    if (this.#phase !== 'initiating') return;
    this.#detach();
    // EMPA-9.1-11, MPA-7.1.4.2-01: the consumer gets the Reply's Private Data and depths.
    this.#owner.deliver(this, {
      type: CMEventType.rejected,
      error: 'ECONNRESET',
      privateData: event.privateData,
      initiatorDepth: event.peerIrd,
      responderResources: event.peerOrd,
      text: withQuirk('the peer rejected the connection', event.quirk),
    });
    // MPA-7.1.2-09: MPA leaves TCP open; this manager is the ULP and closes it.
    this.#leave(now);
  }

  #handleEstablished(event: Extract<StreamEvent, { type: 'established' }>, now: Micros): void {
    if (this.#phase !== 'initiating' && this.#phase !== 'accepting') return;
    this.#transition('established');
    // Not needed any longer, and a connection may last for days.
    this.parameters = undefined;
    this.depths = undefined;
    this.patience = undefined;
    const { revision, crcEnabled } = event;
    const mpa = `MPA revision ${revision}, CRC ${crcEnabled ? 'on' : 'off'}`;
    const session = `${revision === 2 ? 'enhanced' : 'plain'} session over ${this.#layer}`;
    // The QP is in RTS before its consumer is notified.
    this.qp?.established({ ird: event.ird, ord: event.ord }, now);
    this.#owner.deliver(this, {
      type: CMEventType.established,
      error: undefined,
      privateData: event.privateData,
      initiatorDepth: event.ord,
      responderResources: event.ird,
      text: `established: ${this.device.lowerLayer === 'tcp' ? mpa : session}`,
    });
  }

  #handlePeerClosed(now: Micros): void {
    if (this.#phase === 'requested') this.lost = true;
    // DDP-6.2.1-05: the ULP decides when to close the other half; here that is after everything
    // queued.
    if (this.#phase === 'established') this.disconnect(now);
  }

  #handleClosed(failure: WireFailure | undefined, now: Micros): void {
    const why = this.#failure ?? failure;
    const whyText = why === undefined ? undefined : withQuirk(why.text, why.quirk);
    switch (this.#phase) {
      case 'established':
      case 'closing':
        this.qp?.wireEnded(why, now);
        if (this.#phase === 'established') this.#transition('closing');
        this.lost = true;
        if (this.qp === undefined) this.#reportDisconnected(why, whyText, now);
        else this.qp.afterCopies(() => this.#reportDisconnected(why, whyText, now));
        return;
      case 'initiating': {
        const { type, error } = startupFailure(why);
        this.#report(type, error, whyText ?? 'the peer closed before its Reply');
        break;
      }
      case 'accepting':
        this.#report(CMEventType.connectError, 'ECONNRESET', whyText ?? 'the peer went away');
        break;
      case 'requested':
        // Reports nothing before the consumer answers; accept then fails with ECONNRESET.
        this.lost = true;
        return;
      case 'dialing':
      case 'awaiting-request':
      case 'leaving':
      case 'over':
        break;
      default:
        this.#phase satisfies never;
    }
    this.#end(now, undefined);
  }

  #reportDisconnected(why: WireFailure | undefined, text: string | undefined, now: Micros): void {
    // The program may have destroyed the id meanwhile.
    if (this.#phase === 'over') return;
    const error = why === undefined ? undefined : 'ECONNRESET';
    this.#report(CMEventType.disconnected, error, text ?? 'disconnected');
    this.#end(now, undefined);
  }

  // Steps

  get #layer(): string {
    return lowerLayerText(this.device.lowerLayer);
  }

  #report(type: CMEventType, error: ErrnoCode | undefined, text: string): void {
    this.#owner.deliver(this, {
      type,
      error,
      privateData: NO_BYTES,
      initiatorDepth: undefined,
      responderResources: undefined,
      text,
    });
  }

  #leave(now: Micros): void {
    if (this.lost) {
      this.#end(now, undefined);
      return;
    }
    this.#transition('leaving');
    this.stream?.disconnect(now);
    this.#owner.touched(this);
  }

  /** Detaches the QP if the stream never reached Full Operation: it may connect again. */
  #detach(): void {
    const early = this.#phase === 'initiating' || this.#phase === 'accepting';
    if (early && this.stream !== undefined) this.qp?.detach(this.stream);
    this.#owner.released(this);
    this.qp = undefined;
  }

  #end(now: Micros, how: 'reset' | undefined): void {
    const dialing = this.#phase === 'dialing';
    if (this.#phase === 'over') return;
    this.#detach();
    this.#transition('over');
    this.deadline = NEVER;
    this.#redialDue = NEVER;
    if (how === 'reset') {
      this.stream?.abort(now);
      if (dialing) this.#owner.cancelDial(this);
      else this.#owner.touched(this);
    }
    this.#owner.finished(this);
  }

  #transition(next: EndpointPhase): void {
    if (!TRANSITIONS[this.#phase].includes(next)) {
      throw new Error(`connection: ${this.#phase} to ${next}`);
    }
    this.#phase = next;
  }
}

/** `text`, with the known quirk of the peer that explains it. */
function withQuirk(text: string, quirk: string | undefined): string {
  return quirk === undefined ? text : `${text}; known quirk: ${quirk}`;
}

/** The event for a failed TCP connect: as iWARP hardware reports it. */
function dialFailure(code: string): { type: CMEventType; error: ErrnoCode } {
  switch (code) {
    case 'ECONNREFUSED':
    case 'ECONNRESET':
      return { type: CMEventType.rejected, error: code };
    case 'ETIMEDOUT':
      return { type: CMEventType.unreachable, error: 'ETIMEDOUT' };
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return { type: CMEventType.unreachable, error: code };
    case 'EADDRINUSE':
    case 'EADDRNOTAVAIL':
    case 'EACCES':
    case 'EPERM':
    case 'ENOMEM':
      return { type: CMEventType.connectError, error: code };
    default:
      return { type: CMEventType.connectError, error: 'EIO' };
  }
}

/** The event for an MPA startup that failed without a rejecting Reply. */
function startupFailure(failure: WireFailure | undefined): {
  type: CMEventType;
  error: ErrnoCode;
} {
  switch (failure?.kind) {
    case undefined:
    case 'lost':
      return { type: CMEventType.rejected, error: 'ECONNRESET' };
    case 'timeout':
      return { type: CMEventType.unreachable, error: 'ETIMEDOUT' };
    case 'refused':
    case 'refused-markers':
    case 'refused-crc':
      return { type: CMEventType.rejected, error: 'ECONNREFUSED' };
    default:
      return { type: CMEventType.connectError, error: 'EINVAL' };
  }
}
