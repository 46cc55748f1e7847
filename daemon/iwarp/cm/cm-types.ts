/**
 * The interfaces that a connection uses of its queue pair, its stream and its device, and the
 * limits of the manager.
 */
import type { Micros } from '#base/time';
import type { DeviceLowerLayer } from '#contract/verbs/attributes';
import type { SocketAddress } from '#contract/verbs/provider';
import type { Wire, WireFailure, WireUser } from '#daemon/rnic/wire-port';
import type { StreamDefaults, StreamOptions, StreamPort } from '../engine/stream-api.ts';

/** The operations of a queue pair for its connection; implemented by the RNIC's QP. */
export interface ConnectableQP extends WireUser {
  readonly qpn: number;
  /** The attached stream, if any. */
  readonly wire: Wire | undefined;
  /** True while its peer should not send more, because memory that it writes to is slow. */
  readonly congested?: boolean;
  /** All memory that messages of its peer may reach takes lent payload. */
  readonly takesLent?: boolean;
  /** Attaches the stream. Throws `VerbsError`: EISCONN, or EINVAL in a wrong state. */
  attach(wire: Wire): void;
  /** Startup failed or was rejected: the stream is gone and the QP may connect again. */
  detach(wire: Wire): void;
  /** Full Operation: moves to RTS with the negotiated depths. */
  established(depths: { readonly ird: number; readonly ord: number }, now: Micros): void;
  /** The connection is being closed: posted work is sent, later work is not. */
  disconnecting(now: Micros): void;
  /** The stream ended after Full Operation. */
  wireEnded(failure: WireFailure | undefined, now: Micros): void;
  /** Calls `report` once nothing is copied into the program's memory any more: it may use that again then. */
  afterCopies(report: () => void): void;
  /** A Terminate was sent or received. */
  terminated(by: 'us' | 'peer', failure: WireFailure, now: Micros): void;
}

/** Wire options of a device, which a connection may override (daemon/ARCHITECTURE.md, "Seams"). */
export interface WireDefaults extends StreamDefaults {
  /** With CRCs on, no FPDU spans two TCP segments, if possible. */
  readonly segmentAligned: boolean;
  /** See `StreamOptions.nudgeDelayMicros`; `NEVER` switches it off. */
  readonly nudgeDelayMicros: Micros;
  /** Silence after which TCP starts to probe a peer, in whole seconds. 0: never. */
  readonly keepaliveIdleMicros: Micros;
  /** Interval between probes, in whole seconds. */
  readonly keepaliveIntervalMicros: Micros;
  /** Unanswered probes after which the peer counts as gone. */
  readonly keepaliveProbes: number;
}

/** A device as the connection manager sees it. */
export interface CmDevice {
  readonly name: string;
  /** Canonical addresses of the device; empty: every address of the host. */
  readonly addresses: readonly string[];
  /** Ceilings of inbound and outbound reads per connection. */
  readonly irdMax: number;
  readonly ordMax: number;
  readonly lowerLayer: DeviceLowerLayer;
  readonly wire: WireDefaults;
}

/** A stream that follows its socket's segment size. */
export interface CmStream extends StreamPort {
  /** MPA-4.5-05: segments created from now on follow it. */
  setEmss(emssBytes: number): void;
  /** The received part of an incomplete FPDU; borrowed until the next input. */
  readonly heldInput: Uint8Array;
  readonly receivedFpdus: number;
}

export type StreamFactory = (device: CmDevice, options: StreamOptions) => CmStream;

/** Properties of a connection that is open. */
export interface SocketFacts {
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
  /** Bytes of payload that one TCP segment holds, or the longest SCTP message. */
  readonly emssBytes: number;
  readonly lowerLayer: DeviceLowerLayer;
}

/** Limits of the manager: resources that a hostile or careless program could otherwise exhaust. */
export interface CmLimits {
  /** Connection ids of the host. librdmacm indexes ids below 65536. */
  readonly idsMax: number;
  /**
   * Connect requests per listener that may wait for an answer; a larger backlog is reduced to this.
   */
  readonly backlogMax: number;
  /**
   * Connections per listener whose MPA Request has not arrived yet: a silent peer costs a socket.
   * They are shared among the addresses of the peers; see starting-connections.ts.
   */
  readonly startupsPerListenerMax: number;
  /** The same for the whole host. */
  readonly startupsMax: number;
  /** Time limit for TCP to connect: siw's limit for an MPA Reply. */
  readonly dialTimeoutMicros: Micros;
}

export const DEFAULT_CM_LIMITS: CmLimits = {
  idsMax: 65_536,
  backlogMax: 1024,
  startupsPerListenerMax: 1024,
  startupsMax: 4096,
  dialTimeoutMicros: 10_000_000,
};
