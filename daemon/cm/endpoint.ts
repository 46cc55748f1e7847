/**
 * One TCP connection from the first SYN to the last FIN: the machine between a stream, a queue pair
 * and a connection id. The id may go earlier (destroyed) and the endpoint then ends alone.
 *
 * Read before changing: RFC 5044 §7.1–7.2, RFC 6581 §9–10; the diagram is in README.md.
 */

import type { CMParameters } from '../../verbs-api/contract/commands.ts';
import { CMEventType } from '../../verbs-api/contract/enums.ts';
import type { ErrnoCode } from '../../verbs-api/contract/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import { type Micros, NEVER, type StreamEvent, type StreamFailure } from '../engine/stream-api.ts';
import type { CmId } from './cm-id.ts';
import type { CmDevice, CmStream, ConnectableQP } from './cm-types.ts';
import type { Depths } from './stream-wishes.ts';

/** Phases of a connection, in the order in which they can follow each other. */
export type EndpointPhase =
  /** Initiator: TCP connects. */
  | 'dialing'
  /** Initiator: the Request is sent, the Reply awaited. */
  | 'initiating'
  /** Responder: the Request is awaited. */
  | 'awaiting-request'
  /** Responder: the consumer has the connect request. */
  | 'requested'
  /** Responder: accepted, the Reply on its way. */
  | 'accepting'
  /** Full Operation. */
  | 'established'
  /** Full Operation is over by a close of either side; TCP is not. */
  | 'closing'
  /** MPA ended by a rejection; the manager, as ULP, closes TCP. */
  | 'leaving'
  /** The socket is gone or ordered away. */
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

/** What an endpoint needs of the connection manager. */
export interface EndpointOwner {
  /** A Request came: false when the backlog is full. */
  requested(endpoint: Endpoint, event: RequestEvent): boolean;
  /** Tells the id, if there still is one. */
  deliver(endpoint: Endpoint, event: EndpointEvent): void;
  /** The stream was given a command: it may have octets and events. */
  touched(endpoint: Endpoint): void;
  /** TCP is not wanted any more. */
  cancelDial(endpoint: Endpoint): void;
  /** `endpoint.qp` is about to be forgotten. */
  released(endpoint: Endpoint): void;
  /** The endpoint has reached 'over'. */
  finished(endpoint: Endpoint): void;
}

/** An MPA Request as the stream tells it. */
export type RequestEvent = Extract<StreamEvent, { type: 'request' }>;

/** The part of a `CmEvent` that an endpoint knows. */
export interface EndpointEvent {
  readonly type: CMEventType;
  readonly error: ErrnoCode | undefined;
  readonly privateData: Uint8Array;
  readonly initiatorDepth: number | undefined;
  readonly responderResources: number | undefined;
  readonly text: string;
}

const NO_OCTETS = new Uint8Array(0);

/** One connection. The adapter binds a socket to it and feeds its stream. */
export class Endpoint {
  readonly role: 'initiator' | 'responder';
  readonly device: CmDevice;
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
  /** The id it belongs to: none before the connect request, none once the id is destroyed. */
  id: CmId | undefined;
  /** Responder: who listens, until the request is answered or the listener gone. */
  listener: CmId | undefined;
  stream: CmStream | undefined;
  qp: ConnectableQP | undefined;
  /** Initiator: what connect was called with. */
  parameters: CMParameters | undefined;
  depths: Depths | undefined;
  /** When waiting for TCP has lasted long enough. */
  deadline: Micros = NEVER;
  /** Set when the peer of an unanswered request went away. */
  lost = false;
  /** Responder: the Request is to be rejected, and nobody asked. */
  rejecting = false;
  /** Responder: whether the Request was enhanced, which bounds the Reply's Private Data. */
  enhanced = false;
  readonly #owner: EndpointOwner;
  #phase: EndpointPhase;
  #failure: StreamFailure | undefined;

  constructor(
    role: 'initiator' | 'responder',
    device: CmDevice,
    addresses: { readonly local: SocketAddress; readonly remote: SocketAddress },
    owner: EndpointOwner,
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

  /** Initiator: TCP is there. Throws `VerbsError` when the QP does not take the stream any more. */
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

  /** Responder: TCP is there; MPA's timeout on the Request runs from here (MPA-7.1.2-16). */
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

  /** Responder: refuses the Request and then closes TCP, which MPA leaves open (MPA-7.1.2-05). */
  reject(privateData: Uint8Array, now: Micros): void {
    // MPA-7.1.2-04
    this.stream?.reject(privateData, now);
    this.#leave(now);
  }

  /** Graceful close: our FIN follows what is queued (DDP-6.2.1-01). */
  disconnect(now: Micros): void {
    if (this.#phase !== 'established') return;
    this.#transition('closing');
    this.stream?.disconnect(now);
    this.#owner.touched(this);
  }

  /** The consumer does not want it any more, in any phase, and hears nothing further. */
  drop(now: Micros): void {
    this.id = undefined;
    switch (this.#phase) {
      case 'requested':
        // The peer has a right to an answer: a Reply that rejects.
        this.reject(NO_OCTETS, now);
        return;
      case 'established':
        // Graceful for TCP: octets of completed work requests still reach the peer.
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

  /** TCP could not be had. */
  handleDialFailed(code: string, now: Micros): void {
    if (this.#phase !== 'dialing') return;
    const { type, error } = dialFailure(code);
    const { address, port } = this.remote;
    this.#tell(type, error, `no TCP connection to ${address} port ${port}: ${code}`);
    this.#end(now, undefined);
  }

  /** TCP is there, but the QP left its state or was destroyed meanwhile. */
  handleQPRefused(now: Micros): void {
    const text = 'the queue pair went to another state while TCP connected';
    this.#tell(CMEventType.connectError, 'EINVAL', text);
    this.#end(now, undefined);
  }

  /** The deadline may have passed. */
  handleDeadline(now: Micros): void {
    if (now < this.deadline || this.#phase !== 'dialing') return;
    this.#tell(CMEventType.unreachable, 'ETIMEDOUT', 'TCP did not connect in time');
    this.#end(now, 'reset');
  }

  /** The stream has something to tell. 'nudged', 'finish' and 'abort' are for others. */
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
    if (this.rejecting || !this.#owner.requested(this, event)) this.reject(NO_OCTETS, now);
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
    // The QP is in RTS before its consumer hears of it.
    this.qp?.established({ ird: event.ird, ord: event.ord }, now);
    this.#owner.deliver(this, {
      type: CMEventType.established,
      error: undefined,
      privateData: event.privateData,
      initiatorDepth: event.ord,
      responderResources: event.ird,
      text: `established: MPA revision ${event.revision}, CRC ${event.crcEnabled ? 'on' : 'off'}`,
    });
  }

  #handlePeerClosed(now: Micros): void {
    if (this.#phase === 'requested') this.lost = true;
    // DDP-6.2.1-05: the other half goes when its ULP says so; that is here, after what is queued.
    if (this.#phase === 'established') this.disconnect(now);
  }

  #handleClosed(failure: StreamFailure | undefined, now: Micros): void {
    const why = this.#failure ?? failure;
    const whyText = why === undefined ? undefined : withQuirk(why.text, why.quirk);
    switch (this.#phase) {
      case 'established':
      case 'closing':
        this.qp?.streamEnded(why, now);
        this.#tell(CMEventType.disconnected, undefined, whyText ?? 'disconnected');
        break;
      case 'initiating': {
        const { type, error } = startupFailure(why);
        this.#tell(type, error, whyText ?? 'the peer closed before its Reply');
        break;
      }
      case 'accepting':
        this.#tell(CMEventType.connectError, 'ECONNRESET', whyText ?? 'the peer went away');
        break;
      case 'requested':
        // Nothing is told before the consumer answers; accept then fails with ECONNRESET.
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

  // Steps

  #tell(type: CMEventType, error: ErrnoCode | undefined, text: string): void {
    this.#owner.deliver(this, {
      type,
      error,
      privateData: NO_OCTETS,
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

  /** Gives the QP back when the stream never reached Full Operation: it may connect anew. */
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

/** `text`, and the known peculiarity of a known peer that explains it. */
function withQuirk(text: string, quirk: string | undefined): string {
  return quirk === undefined ? text : `${text}; known peculiarity: ${quirk}`;
}

/** What the consumer hears when TCP does not connect: as iWARP hardware reports it. */
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
      return { type: CMEventType.connectError, error: code };
    default:
      return { type: CMEventType.connectError, error: 'EIO' };
  }
}

/** The same for an MPA startup that failed without a rejecting Reply. */
function startupFailure(failure: StreamFailure | undefined): {
  type: CMEventType;
  error: ErrnoCode;
} {
  switch (failure?.kind) {
    case undefined:
    case 'lost':
      return { type: CMEventType.rejected, error: 'ECONNRESET' };
    case 'timeout':
      return { type: CMEventType.unreachable, error: 'ETIMEDOUT' };
    case 'refused-markers':
    case 'refused-crc':
      return { type: CMEventType.rejected, error: 'ECONNREFUSED' };
    default:
      return { type: CMEventType.connectError, error: 'EINVAL' };
  }
}
