/**
 * Facts that the ends of a connection announce to each other, and the limits of the manager. Names are those of the
 * specification (IBTA 12).
 */
import type { QPType } from '#contract/verbs/enums';
import type { CmPath } from './cm-path.ts';

/** Facts that one end announces about its queue pair in a REQ or a REP. */
export interface CmEndFacts {
  readonly qpn: number;
  /** Reads and atomics that it serves at once, and that it will have outstanding. */
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly flowControl: boolean;
  /** RNR retries of the sender; 7: unlimited. */
  readonly rnrRetry: number;
  readonly srq: boolean;
  /** Our data: at most 92 bytes in a REQ and 196 in a REP. The peer's is padded with zeros to this length. */
  readonly privateData: Uint8Array;
}

/** Facts that the peer announces, with the PSN that our first packet must have. */
export interface CmPeerFacts extends CmEndFacts {
  readonly startingPsn: number;
}

export interface IbCmRequest extends CmEndFacts {
  /** The upper half of the service id is zero here. */
  readonly serviceId: number;
  readonly type: QPType;
  readonly path: CmPath;
  /** Transport retries of both ends; at most 7. */
  readonly retryCount: number;
  /** Timeout of our queue pair. Undefined: computed from the path and the peer's ACK delay. */
  readonly ackTimeout: number | undefined;
}

/** A datagram service's answer to a SIDR REQ: queue pair and key. */
export interface CmService {
  /** 0 if access is granted, otherwise a `SidrStatus`. */
  readonly status: number;
  readonly qpn: number;
  readonly qkey: number;
  /** Our data: at most 136 bytes. The peer's always has this length. */
  readonly privateData: Uint8Array;
}

/**
 * The account charged for a connection until the manager removes it, after the owner's id is
 * destroyed.
 */
export interface CmAccount {
  /** Throws `VerbsError` at the limit. */
  take(what: 'roceConnections'): void;
  give(what: 'roceConnections'): void;
}

/** Limits of the manager, on resources that hostile peers or careless programs could exhaust. */
export interface IbCmLimits {
  /** Connections of the host in any state, including timewait. */
  readonly connectionsMax: number;
  /** Half-open requests of peers, in all and from one address. */
  readonly halfOpenMax: number;
  readonly halfOpenPerAddressMax: number;
  /** Requests held until a listener appears, in all and from one address. */
  readonly earlyMax: number;
  readonly earlyPerAddressMax: number;
  /** Requests that may be pending at one listener. */
  readonly backlogMax: number;
}

export const DEFAULT_IB_CM_LIMITS: IbCmLimits = {
  // As many ids as the iWARP manager has: librdmacm indexes ids below 65536.
  connectionsMax: 65_536,
  halfOpenMax: 4096,
  // A REQ costs its sender one datagram: one address must not lock out the others.
  halfOpenPerAddressMax: 1024,
  // A program with this many queue pairs connects all of them at once; each request is a MAD of 256 bytes.
  earlyPerAddressMax: 128,
  earlyMax: 1024,
  backlogMax: 1024,
};
