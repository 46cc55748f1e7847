/**
 * SCTP associations that carry whole messages: the interface between a transport (libusrsctp, the
 * kernel's SCTP, a simulation) and the DDP streams above it.
 *
 * A transport is an `SctpTransport`. It makes each `SctpPort`, whose `Association`s come up with the
 * peer's adaptation indication known, and carry messages until they end.
 */
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';

/** Of all hosts of the process: each takes some 15 KB, and up to its window of data that is not yet read. */
export const ASSOCIATIONS_MAX = 4096;

/** Where an SCTP endpoint is: an IP address and a port of SCTP, not of UDP. */
export interface SctpAddress {
  readonly address: string;
  readonly port: number;
}

/** How a message is sent. Senders keep a constant for each kind, so sending allocates nothing. */
export interface MessageKind {
  /** Payload Protocol Identifier. */
  readonly payloadProtocol: number;
  /** The U flag: SCTP may deliver the message before earlier ones of its stream. */
  readonly unordered: boolean;
  /** The I flag (RFC 7053): asks the peer to acknowledge without delay. */
  readonly acknowledgeAtOnce: boolean;
  /**
   * Another message follows at once. Until it does, or earlier ones are acknowledged, the transport may
   * wait to fill a packet.
   */
  readonly followed?: boolean;
}

/** Why an association ended. */
export interface AssociationEnd {
  /**
   * - shutdown: SHUTDOWN from either end; everything sent was acknowledged.
   * - aborted: an ABORT of the peer.
   * - lost: the peer no longer answers, or the network refuses.
   * - invalid: the peer sent what no DDP association may carry, as the text says; we sent an ABORT.
   */
  readonly kind: 'shutdown' | 'aborted' | 'lost' | 'invalid';
  /** The errno name, where the system gives one. */
  readonly code: string | undefined;
  readonly text: string;
}

/** The user of an association. Called from events of the network; must not throw. */
export interface AssociationUser {
  /**
   * A whole message; `bytes` is borrowed for the call. Unordered messages come in any order. The
   * transport assembles fragments of at most `MESSAGE_MAX_BYTES` and ends an association that sends
   * longer ones.
   */
  handleMessage(
    streamId: number,
    payloadProtocol: number,
    unordered: boolean,
    bytes: Uint8Array,
  ): void;
  /** There is room again after `send` returned false. */
  handleWritable(): void;
  /** Everything sent so far is acknowledged (SCTP_SENDER_DRY_EVENT). */
  handleAcknowledged(): void;
  /** `messageMaxBytes` has changed: the path's MTU shrank. */
  handlePathChanged(): void;
  /** The peer sent SHUTDOWN: it sends nothing more, and what is queued here is still sent. */
  handlePeerShutdown(): void;
  /** The association has ended, called once. No call follows. */
  handleEnded(end: AssociationEnd): void;
}

/** One end of an association. No method calls its user. */
export interface Association {
  readonly local: SctpAddress;
  readonly remote: SctpAddress;
  /** The peer's adaptation indication (RFC 5061 section 4.2.6); undefined if it sent none. */
  readonly peerAdaptation: number | undefined;
  /** Streams in each direction: the smaller number of the two (RFC 5043 section 8). */
  readonly streamCount: number;
  /** Bytes of the longest message that neither SCTP nor IP fragments now. */
  readonly messageMaxBytes: number;
  /** True while bytes that `send` took are not acknowledged. */
  readonly unacknowledged: boolean;
  user: AssociationUser;
  /**
   * Sends one message, whole or not at all: false if there is no room now, and then
   * `handleWritable` follows. On return `bytes` is the caller's again. A message longer than
   * `messageMaxBytes` is fragmented by SCTP; the caller decides whether that may be.
   */
  send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean;
  /** Messages wait in the transport, up to its receive window, until `resumeReading`. */
  pauseReading(): void;
  resumeReading(): void;
  /** Sends SHUTDOWN behind everything sent. `handleEnded` follows. */
  shutdown(): void;
  /** Sends ABORT at once. `handleEnded` does not follow. */
  abort(): void;
}

/** Options of the associations of a port. */
export interface SctpPortOptions {
  /** Our adaptation indication, in INIT and INIT ACK. */
  readonly adaptation: number;
  /** Streams asked for in each direction. */
  readonly streamCount: number;
  /** Who is charged for each, from its start to its end. */
  readonly account?: IdAccount | undefined;
}

/** An attempt to open an association; `cancel` ends it, and then no callback is called. */
export interface AssociationAttempt {
  cancel(): void;
}

/** A held local address and port: first unused, then used to listen or by associations opened. */
export interface SctpPort extends SctpAddress {
  /**
   * Delivers associations from now on. `onAssociation` must set the user of its association at
   * once. One whose peer has another adaptation indication is aborted before it is delivered.
   */
  listen(onAssociation: (association: Association) => void): void;
  /**
   * Opens an association; `onFailed` gets the errno name: ECONNREFUSED, ETIMEDOUT, and EPROTO for a
   * peer with another adaptation indication. `onOpen` must set the user at once. No callback is
   * called from inside.
   */
  open(
    remote: SctpAddress,
    onOpen: (association: Association) => void,
    onFailed: (errorCode: string, text: string) => void,
  ): AssociationAttempt;
  /** Releases the port; a listener stops. Its associations stay. */
  release(): void;
}

/** Where associations come from. */
export interface SctpTransport {
  /**
   * Holds `address` and `port`, 0 for a free one. Throws `TransportError`: EADDRINUSE,
   * EADDRNOTAVAIL, EPROTONOSUPPORT where the host has no SCTP.
   */
  hold(local: SctpAddress, options: SctpPortOptions): SctpPort;
}

/** A transport as a host has it, for its addresses. */
export interface HostSctpTransport extends SctpTransport {
  /** Hears what comes to the address, until `close`. Throws `TransportError`. */
  open(address: string): void;
  /** Undoes every `open`, and what else hosts do with a transport. Associations stay. */
  close(): void;
}

/** Longest message that is assembled: a DDP Stream Sequence Number and the longest DDP segment. */
export const MESSAGE_MAX_BYTES = 65_537;
