/**
 * The vocabulary of the connection manager: what it asks of the host's network and of queue pairs,
 * what it tells consumers, and its limits.
 */
import type { CMEventType } from '../../verbs-api/contract/enums.ts';
import type { ErrnoCode } from '../../verbs-api/contract/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import type { StreamUser } from '../engine/placement.ts';
import type {
  FpduSizePolicy,
  Micros,
  RtrKinds,
  StreamFailure,
  StreamOptions,
  StreamPort,
} from '../engine/stream-api.ts';
import type { CmId } from './cm-id.ts';
import type { Endpoint } from './endpoint.ts';

/** What a queue pair does for its connection; the RNIC's QP is one. */
export interface ConnectableQP extends StreamUser {
  readonly qpn: number;
  /** The stream it is attached to, if any. */
  readonly stream: StreamPort | undefined;
  /** Binds the stream. Throws `VerbsError`: EISCONN, or EINVAL in a wrong state. */
  attach(stream: StreamPort): void;
  /** Startup failed or was rejected: the stream is gone and the QP may connect anew. */
  detach(stream: StreamPort): void;
  /** Full Operation: moves to RTS with the negotiated depths. */
  established(depths: { readonly ird: number; readonly ord: number }, now: Micros): void;
  /** The stream ended after Full Operation. */
  streamEnded(failure: StreamFailure | undefined, now: Micros): void;
  /** A Terminate was sent or came. */
  terminated(by: 'us' | 'peer', failure: StreamFailure, now: Micros): void;
}

/** How a device speaks on the wire unless a connection says otherwise (architecture §2.7). */
export interface WireDefaults {
  readonly mpaRevision: 1 | 2;
  readonly enhancedSupported: boolean;
  readonly crcRequested: boolean;
  readonly markersRequested: boolean;
  readonly peerToPeer: boolean;
  readonly rtrKinds: RtrKinds;
  readonly fpduSize: FpduSizePolicy;
  /** With CRCs on, no FPDU lies across the boundary of two TCP segments, as far as we can. */
  readonly segmentAligned: boolean;
  readonly startupTimeoutMicros: Micros;
  readonly closeTimeoutMicros: Micros;
  /** See `StreamOptions.nudgeDelayMicros`; `NEVER` switches it off. */
  readonly nudgeDelayMicros: Micros;
}

/** A device as the connection manager sees it. */
export interface CmDevice {
  readonly name: string;
  /** Canonical addresses that it answers for; empty: every address of the host. */
  readonly addresses: readonly string[];
  /** Ceilings of inbound and outbound reads per connection. */
  readonly irdMax: number;
  readonly ordMax: number;
  readonly wire: WireDefaults;
}

/** The host's TCP, as far as the manager asks it questions that have an answer at once. */
export interface HostNetwork {
  /** Holds a local address and port (0: any free one) for `id`. EADDRINUSE, EADDRNOTAVAIL, EACCES. */
  reserve(
    id: CmId,
    address: SocketAddress,
  ): { readonly port: number } | { readonly error: ErrnoCode };
  /** Starts to take connections at the reservation; they come through `handleIncoming`. */
  listen(id: CmId): ErrnoCode | undefined;
  /** Gives the reservation back; a listener stops. Unknown ids are ignored. */
  release(id: CmId): void;
  /** The local address from which `destination` is reached; only `source` is tried when given. */
  sourceAddress(
    destination: string,
    source: string | undefined,
  ): { readonly address: string } | { readonly error: ErrnoCode };
}

/** A stream that follows its socket's segment size. */
export interface CmStream extends StreamPort {
  /** MPA-4.5-05: segments cut from now on follow it. */
  setEmss(emssBytes: number): void;
  /** Octets of an FPDU that has come in part; borrowed until the next input. */
  readonly heldInput: Uint8Array;
}

/** Makes the stream of a connection of `device`. */
export type StreamFactory = (device: CmDevice, options: StreamOptions) => CmStream;

/** What the socket of a connection tells when it is there. */
export interface SocketFacts {
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
  /** Octets of payload that one TCP segment holds. */
  readonly emssBytes: number;
}

/** An event of a connection id, before it is told to whoever owns the id (`rdma_cm_event`). */
export interface CmEvent {
  readonly type: CMEventType;
  /** The id concerned; on a connect request the new one. */
  readonly id: CmId;
  /** On a connect request: who listens. */
  readonly listener: CmId | undefined;
  readonly error: ErrnoCode | undefined;
  readonly privateData: Uint8Array;
  /** This side's view: reads we may have outstanding, reads we serve; undefined if not told. */
  readonly initiatorDepth: number | undefined;
  readonly responderResources: number | undefined;
  /** One line for people. */
  readonly text: string;
}

/** What the manager wants done; polled until undefined after every input. */
export type CmEffect =
  /** Open a TCP connection; answer with `handleDialed` or `handleDialFailed`. */
  | {
      readonly type: 'dial';
      readonly endpoint: Endpoint;
      readonly local: SocketAddress;
      readonly remote: SocketAddress;
    }
  /** Give up a 'dial' effect that has not been answered. */
  | { readonly type: 'cancelDial'; readonly endpoint: Endpoint }
  /** The endpoint's stream was given a command: poll it. */
  | { readonly type: 'touched'; readonly endpoint: Endpoint }
  /** Tell the id's owner. */
  | { readonly type: 'deliver'; readonly event: CmEvent };

/** Bounds of the manager. Each is what a hostile or careless program could otherwise exhaust. */
export interface CmLimits {
  /** Connection ids of the host. librdmacm indexes ids below 65536. */
  readonly idsMax: number;
  /** Connect requests that may wait for an answer per listener; a larger backlog is cut to it. */
  readonly backlogMax: number;
  /** Connections per listener whose MPA Request is still to come: silent peers cost a socket each. */
  readonly startupsPerListenerMax: number;
  /** The same for the whole host. */
  readonly startupsMax: number;
  /** How long TCP may take to connect: as long as siw waits for an MPA Reply. */
  readonly dialTimeoutMicros: Micros;
}

/** Defaults of `CmLimits`. */
export const DEFAULT_CM_LIMITS: CmLimits = {
  idsMax: 65_536,
  backlogMax: 1024,
  startupsPerListenerMax: 1024,
  startupsMax: 4096,
  dialTimeoutMicros: 10_000_000,
};
