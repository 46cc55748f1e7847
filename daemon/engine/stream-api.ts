/**
 * The vocabulary between a stream and those who drive it: the connection manager (startup), the
 * queue pair (full operation) and the socket (octets).
 */
import type { StreamUser } from './placement.ts';

/** Microseconds from an arbitrary start that never runs backwards. */
export type Micros = number;

/** No deadline is set. */
export const NEVER: Micros = Number.POSITIVE_INFINITY;

/** RTR kinds of RFC 6581 §9 as a set. */
export interface RtrKinds {
  readonly send: boolean;
  readonly write: boolean;
  readonly read: boolean;
}

/** How the sender picks its MULPDU (architecture: FPDU size is a policy). */
export type FpduSizePolicy =
  | { readonly kind: 'emss' }
  | { readonly kind: 'large' }
  | { readonly kind: 'fixed'; readonly mulpduBytes: number };

/** What one side of a connection wishes; a device profile plus the connection's own choices. */
export interface StreamOptions {
  /** MPA revision that an initiator sends: 1 (RFC 5044) or 2 (RFC 6581). */
  readonly mpaRevision: 1 | 2;
  /** False: only revision 1 is spoken, an enhanced Request is refused (RFC 6581 §10). */
  readonly enhancedSupported: boolean;
  /** Ask for CRCs (C). Off only on the administrator's explicit word (RFC 5044 §4.4). */
  readonly crcRequested: boolean;
  /** Ask the peer to send markers (M). */
  readonly markersRequested: boolean;
  /** Peer-to-peer model with RTR (RFC 6581 §9.2); false is the client-server model. */
  readonly peerToPeer: boolean;
  readonly rtrKinds: RtrKinds;
  /** Wish, and ceiling, for inbound reads (IRD) and outbound reads (ORD). */
  readonly ird: number;
  readonly ord: number;
  readonly irdMax: number;
  readonly ordMax: number;
  /** Octets of payload that one TCP segment holds; undefined until the socket tells. */
  readonly emssBytes: number;
  readonly fpduSize: FpduSizePolicy;
  /** How long an initiator waits for the Reply, a responder for the Request (RFC 5044 §7.1.3). */
  readonly startupTimeoutMicros: Micros;
  /** How long the closing side waits for the peer's FIN before it aborts. */
  readonly closeTimeoutMicros: Micros;
  /** Speak RFC 7306: atomics and Immediate Data. Default true. */
  readonly extensionsEnabled?: boolean;
  /**
   * Initiator: this long after the Reply, a peer that was sent FPDUs and has sent none gets an RDMA
   * Write without payload, once. The kernel's siw puts its Reply on the wire before it listens for
   * FPDUs: what comes in between stays unread until more octets come. Default `NEVER`.
   */
  readonly nudgeDelayMicros?: Micros;
}

/** Why a stream ended, as data for events, logs and diagnostics. */
export interface StreamFailure {
  /** Stable word: 'timeout', 'invalid-frame', 'refused-markers', 'lost', 'protocol', 'local' ... */
  readonly kind: string;
  readonly text: string;
  /** Set when the failure has a Terminate triple. */
  readonly layer?: number;
  readonly etype?: number;
  readonly code?: number;
  /** Set when a known peculiarity of a known peer explains it (for example siw's bit order). */
  readonly quirk?: string;
}

/** What the stream tells those above it, in order. */
export type StreamEvent =
  /** Responder: an MPA Request came. Answer with `accept` or `reject`. */
  | {
      readonly type: 'request';
      readonly revision: number;
      readonly enhanced: boolean;
      readonly privateData: Uint8Array;
      /** The peer's raw values; undefined in an unenhanced Request. */
      readonly peerIrd: number | undefined;
      readonly peerOrd: number | undefined;
      readonly peerToPeer: boolean;
    }
  /** Initiator: the peer rejected. The stream is over; the connection manager closes TCP. */
  | {
      readonly type: 'rejected';
      readonly privateData: Uint8Array;
      readonly peerIrd: number | undefined;
      readonly peerOrd: number | undefined;
      /** Set when a known peculiarity of a known peer may explain it. */
      readonly quirk?: string | undefined;
    }
  /** Full Operation. For a responder: its Reply is sent; it may send once `sendable` is true. */
  | {
      readonly type: 'established';
      readonly privateData: Uint8Array;
      readonly peerIrd: number | undefined;
      readonly peerOrd: number | undefined;
      /** Negotiated depths: inbound reads we serve, outbound reads we may have. */
      readonly ird: number;
      readonly ord: number;
      readonly crcEnabled: boolean;
      readonly sendMarkers: boolean;
      readonly receiveMarkers: boolean;
      readonly revision: number;
    }
  /** The silent peer of `nudgeDelayMicros` was sent an RDMA Write without payload. */
  | { readonly type: 'nudged'; readonly quirk: string; readonly text: string }
  /** A Terminate was sent or came. The stream then closes by itself. */
  | { readonly type: 'terminated'; readonly by: 'us' | 'peer'; readonly failure: StreamFailure }
  /** The peer sent its FIN after its last whole FPDU. */
  | { readonly type: 'peer-closed' }
  /** The stream is over, once. `failure` is undefined after a graceful close by either side. */
  | { readonly type: 'closed'; readonly failure: StreamFailure | undefined }
  /** To the socket: send FIN once everything polled has been written. */
  | { readonly type: 'finish' }
  /** To the socket: reset the connection. */
  | { readonly type: 'abort' };

/** The commands and inputs of a stream (implemented by `Stream` in stream.ts). */
export interface StreamPort {
  // Commands
  /** Initiator: sends the MPA Request. `user` receives what comes in Full Operation. */
  connect(privateData: Uint8Array, user: StreamUser, now: Micros): void;
  /** Responder: starts to wait for the Request (its timeout runs from here). */
  listen(now: Micros): void;
  /** Responder: answers the Request; wishes override those of the options. */
  accept(
    privateData: Uint8Array,
    user: StreamUser,
    wishes: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void;
  reject(privateData: Uint8Array, now: Micros): void;
  /** There may be work: frame messages and read responses until the output is full. */
  pump(now: Micros): void;
  /**
   * Graceful close: FIN when `StreamUser.nextMessage` has no more, what the peer asked for is
   * answered, and our own reads are. Data that has to be fetched first is not waited for.
   */
  disconnect(now: Micros): void;
  /** Reset at once. */
  abort(now: Micros): void;
  /** Local catastrophic error above: Terminate (RDMAP, local catastrophic), then close. */
  fail(failure: StreamFailure, now: Micros): void;
  // Inputs
  handleOctets(octets: Uint8Array, now: Micros): void;
  /** The socket has taken `bytes` polled octets off our hands. */
  handleFlushed(bytes: number, now: Micros): void;
  /** The peer's FIN. */
  handlePeerClosed(now: Micros): void;
  /** The socket is gone; `errorCode` is its errno name, if it failed. */
  handleClosed(errorCode: string | undefined, now: Micros): void;
  handleDeadline(now: Micros): void;
  // Outputs
  nextDeadline(): Micros;
  /** The next octets for the socket; ours again after `handleFlushed`. */
  pollTransmit(): Uint8Array | undefined;
  pollEvent(): StreamEvent | undefined;
  // Getters
  /** True when messages may be framed (Full Operation; a responder has had its first FPDU). */
  readonly sendable: boolean;
}
