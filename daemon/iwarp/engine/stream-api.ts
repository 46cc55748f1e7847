/**
 * The interface between a stream and its users: the connection manager (startup), the queue pair
 * (Full Operation) and the socket (bytes).
 */
import type { Micros } from '#base/time';
import type { Delivery, Transmit } from '#base/transmit';
import type { Loans, Wire, WireUser } from '#daemon/rnic/wire-port';
import type { StreamFailure } from './stream-failure.ts';

/** RTR kinds of RFC 6581 §9 as a set. */
export interface RtrKinds {
  /** A Send of no bytes. */
  readonly send: boolean;
  /** An RDMA Write of no bytes. */
  readonly write: boolean;
  /** An RDMA Read of no bytes. */
  readonly read: boolean;
}

/** How the sender chooses its MULPDU (daemon/ARCHITECTURE.md: FPDU size is a policy). */
export type FpduSizePolicy =
  | { readonly kind: 'emss' }
  | { readonly kind: 'large' }
  | {
      readonly kind: 'fixed';
      /** Bytes of the largest ULPDU. */
      readonly mulpduBytes: number;
    };

/** Options of a stream that a device sets for all. */
export interface StreamDefaults {
  /** MPA revision that an initiator sends: 1 (RFC 5044) or 2 (RFC 6581). */
  readonly mpaRevision: 1 | 2;
  /** False: only revision 1 is spoken, and an enhanced Request fails (RFC 6581 §10). */
  readonly enhancedSupported: boolean;
  /** Ask for CRCs (C). Off only when the administrator says so explicitly (RFC 5044 §4.4). */
  readonly crcRequested: boolean;
  /** Ask the peer to send markers (M). */
  readonly markersRequested: boolean;
  /** Peer-to-peer model with RTR (RFC 6581 §9.2); false is the client-server model. */
  readonly peerToPeer: boolean;
  /** Kinds of the ready-to-receive message that are accepted. */
  readonly rtrKinds: RtrKinds;
  /** How large FPDUs are. */
  readonly fpduSize: FpduSizePolicy;
  /** How long an initiator waits for the Reply, a responder for the Request (RFC 5044 §7.1.3). */
  readonly startupTimeoutMicros: Micros;
  /**
   * How long each step of a close may take before it becomes a reset: from a disconnect or an error
   * to our FIN, and from our FIN to the peer's. Nothing the peer sends extends it. Work posted
   * before a disconnect may take longer while it makes progress.
   */
  readonly closeTimeoutMicros: Micros;
}

/** Options of one side of a connection: a device profile plus the connection's own choices. */
export interface StreamOptions extends StreamDefaults {
  /** Requested value, and limit, for inbound reads (IRD) and outbound reads (ORD). */
  readonly ird: number;
  readonly ord: number;
  readonly irdMax: number;
  readonly ordMax: number;
  /** Payload bytes that one TCP segment holds; undefined until the socket reports it. */
  readonly emssBytes: number;
  /** Speak RFC 7306: atomics and Immediate Data. Default true. */
  readonly extensionsEnabled?: boolean;
  /**
   * Initiator: this long after the Reply, a peer that has received FPDUs and sent none gets one
   * RDMA Write without payload. The kernel's siw sends its Reply before it listens for FPDUs, so
   * FPDUs that arrive in between stay unread until more bytes arrive. Default `NEVER`.
   */
  readonly nudgeDelayMicros?: Micros;
}

/** The agreed options, and what the peer sent. */
export interface Agreement {
  /** Negotiated depths: inbound reads we serve, outbound reads we may have. */
  readonly ird: number;
  readonly ord: number;
  readonly crcEnabled: boolean;
  /** We insert markers: the peer asked for them. */
  readonly sendMarkers: boolean;
  /** We expect markers: we asked for them. */
  readonly receiveMarkers: boolean;
  /** Revision of the peer's frame. */
  readonly revision: number;
  /** The peer's raw values; undefined when its frame was not enhanced. */
  readonly peerIrd: number | undefined;
  readonly peerOrd: number | undefined;
  /** The consumer's Private Data in the peer's frame. */
  readonly privateData: Uint8Array;
}

/** Events of startup frames for the connection manager. */
export type StartupEvent =
  /** Responder: an MPA Request arrived. Answer with `accept` or `reject`. */
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
      /** Set when a known peer's quirk may explain it. */
      readonly quirk?: string | undefined;
    };

/** Events for the layers above, in order. */
export type StreamEvent =
  | StartupEvent
  /** Full Operation. A responder's Reply is sent; it may send more once `sendable` is true. */
  | ({ readonly type: 'established' } & Agreement)
  /** The silent peer of `nudgeDelayMicros` was sent an RDMA Write without payload. */
  | { readonly type: 'nudged'; readonly quirk: string; readonly text: string }
  /** A Terminate arrived, or is about to be sent. The stream then closes on its own. */
  | { readonly type: 'terminated'; readonly by: 'us' | 'peer'; readonly failure: StreamFailure }
  /** The peer sent its FIN after its last whole FPDU. */
  | { readonly type: 'peer-closed' }
  /**
   * The stream is over; reported once. `failure` is undefined after a graceful close by either
   * side. Without an 'abort' before it, the socket sends FIN after writing everything that
   * `pollTransmit` still returns.
   */
  | { readonly type: 'closed'; readonly failure: StreamFailure | undefined }
  /** To the socket: send FIN after writing everything polled. */
  | { readonly type: 'finish' }
  /** To the socket: reset the connection. */
  | { readonly type: 'abort' };

/**
 * The commands and inputs of a stream (implemented by `Stream` in stream.ts). `disconnect` sends
 * FIN when the queue pair has nothing left to send. `abort` ends Full Operation without a
 * Terminate: after the 'closed' event, `pollTransmit` still returns what was framed. `fail` sends a
 * Terminate (RDMAP, local catastrophic). `sendable` is true in Full Operation, for a responder from
 * the initiator's first FPDU on.
 */
export interface StreamPort extends Wire {
  // Commands
  /** Initiator: sends the MPA Request. `user` handles Full Operation. */
  connect(privateData: Uint8Array, user: WireUser, now: Micros): void;
  /** Responder: waits for the Request; its timeout starts here. */
  listen(now: Micros): void;
  /** Responder: answers the Request; `consumerDepths` override the stream's options. */
  accept(
    privateData: Uint8Array,
    user: WireUser,
    consumerDepths: { readonly ird: number; readonly ord: number },
    now: Micros,
  ): void;
  reject(privateData: Uint8Array, now: Micros): void;
  /** The connection brings bytes unchanged: their checksums may be left to `seal`. */
  leaveUnsealed(): void;
  /** Payload may be lent to the peer, if the lower layer can. */
  lend?(loans: Loans): void;
  /** Completes the checksums in polled bytes, which may also be a copy. */
  seal(bytes: Uint8Array): void;
  /** Responder: refuses the request without a decision of its consumer. */
  refuse(now: Micros): void;
  // Inputs
  /** `delivery` is `PLAIN` unless given. */
  handleBytes(bytes: Uint8Array, now: Micros, delivery?: Delivery): void;
  /** The socket has taken this many of the polled bytes. */
  handleFlushed(bytes: number, now: Micros): void;
  /** The peer has acknowledged everything that the transport has taken. Only SCTP reports this. */
  handleAcknowledged(now: Micros): void;
  /** The peer's FIN. */
  handlePeerClosed(now: Micros): void;
  /** The socket is gone; `errorCode` is its errno name, if it failed. */
  handleClosed(errorCode: string | undefined, now: Micros): void;
  // Outputs
  /**
   * The next bytes for the socket. They are reused after `handleFlushed`, the record by the next call.
   * `unsegmented`: nothing sees segments, so FPDUs need not be aligned to them. Default false.
   */
  pollTransmit(unsegmented?: boolean): Transmit | undefined;
  pollEvent(): StreamEvent | undefined;
}
