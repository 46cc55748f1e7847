/**
 * What the two ends of a connection tell each other, and the limits of the manager. Names are those
 * of the specification (IBTA 12).
 */
import type { QPType } from '../../../verbs-api/contract/verbs/enums.ts';
import type { CmPath } from './cm-path.ts';

/** What an end of a connection says of its queue pair, in a REQ or a REP. */
export interface CmEndFacts {
  readonly qpn: number;
  /** Reads and atomics that it serves at once, and that it will have open at once. */
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly flowControl: boolean;
  /** How often it wants to be tried when no receive is posted; 7: for ever. */
  readonly rnrRetry: number;
  readonly srq: boolean;
  /**
   * Own data: at most 92 bytes in a REQ and 196 in a REP. That of the peer has always this length,
   * zeros behind what it gave.
   */
  readonly privateData: Uint8Array;
}

/** What the peer says, and the PSN that it wants our first packet to have. */
export interface CmPeerFacts extends CmEndFacts {
  readonly startingPsn: number;
}

/** What `connect` asks for. */
export interface CmRequest extends CmEndFacts {
  /** The upper half of a service id is zero here. */
  readonly serviceId: number;
  readonly type: QPType;
  readonly path: CmPath;
  /** Transport retries of both ends; at most 7. */
  readonly retryCount: number;
  /** Timeout of the own queue pair. Undefined: from the path and from what the peer says. */
  readonly ackTimeout: number | undefined;
}

/** What a datagram service tells the one who asked: queue pair and key. */
export interface CmService {
  /** 0 when it gives access. Otherwise one of `SidrStatus`. */
  readonly status: number;
  readonly qpn: number;
  readonly qkey: number;
  /** Own data: at most 136 bytes. That of the peer has always this length. */
  readonly privateData: Uint8Array;
}

/** Who answers for a connection until it is forgotten, which is after its owner's id is destroyed. */
export interface CmAccount {
  /** Throws `VerbsError` when it may have no more. */
  take(what: 'roceConnections'): void;
  give(what: 'roceConnections'): void;
}

/** Limits of the manager: what hostile peers and careless programs could otherwise exhaust. */
export interface CmLimits {
  /** Connections of the host in any state, those in timewait included. */
  readonly connectionsMax: number;
  /** Requests of peers that are not established yet, in all and from one address. */
  readonly halfOpenMax: number;
  readonly halfOpenPerAddressMax: number;
  /** Requests that wait for somebody to listen, in all and from one address. */
  readonly earlyMax: number;
  readonly earlyPerAddressMax: number;
  /** Requests that may wait at one listener for its program's answer. */
  readonly backlogMax: number;
}

/** Defaults of `CmLimits`. */
export const DEFAULT_CM_LIMITS: CmLimits = {
  // As many ids as iWARP's manager has: librdmacm indexes ids below 65536.
  connectionsMax: 65_536,
  halfOpenMax: 4096,
  // A REQ costs its sender one datagram: one address must not shut out the others.
  halfOpenPerAddressMax: 1024,
  // A program with that many queue pairs asks for all of them at once; each is a MAD of 256 bytes.
  earlyPerAddressMax: 128,
  earlyMax: 1024,
  backlogMax: 1024,
};
