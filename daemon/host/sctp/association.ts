/**
 * SCTP associations that carry whole messages: the interface between a transport (libusrsctp, the
 * kernel's SCTP, a simulation) and the DDP streams above it.
 *
 * A transport is an `SctpTransport`. It makes each `SctpPort`, whose `Association`s come up with the
 * peer's adaptation indication known, and carry messages until they end.
 */
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';

/**
 * Limit for all hosts of the process. Each association takes some 15 KB, and up to its window of unread data.
 */
export const ASSOCIATIONS_MAX = 4096;

/** Address of an SCTP endpoint: an IP address and an SCTP port, not a UDP port. */
export interface SctpAddress {
  readonly address: string;
  readonly port: number;
}

/** How a message is sent. Senders keep a constant for each kind, so that sending does not allocate. */
export interface MessageKind {
  /** Payload Protocol Identifier. */
  readonly payloadProtocol: number;
  /** The U flag: SCTP may deliver the message before earlier ones of its stream. */
  readonly unordered: boolean;
  /** The I flag (RFC 7053): asks the peer to acknowledge without delay. */
  readonly acknowledgeAtOnce: boolean;
  /**
   * Another message follows at once. Until it does, or earlier ones are acknowledged, the transport may wait
   * to fill a packet.
   */
  readonly followed?: boolean;
}

/** Why an association ended. */
export interface AssociationEnd {
  /**
   * - shutdown: SHUTDOWN from either end; everything sent was acknowledged.
   * - aborted: an ABORT of the peer.
   * - lost: the peer no longer answers, or the network is unreachable.
   * - invalid: the peer sent a message that no DDP association may carry; we sent an ABORT.
   */
  readonly kind: 'shutdown' | 'aborted' | 'lost' | 'invalid';
  /** The errno name, if the system reports one. */
  readonly code: string | undefined;
  readonly text: string;
}

/** The user of an association. Called from events of the network; must not throw. */
export interface AssociationUser {
  /**
   * A whole message; `bytes` is borrowed for the call. Unordered messages arrive in any order. The transport
   * assembles fragments up to `MESSAGE_MAX_BYTES` and ends an association that sends more.
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
  /** The peer sent SHUTDOWN: it sends nothing more, but queued messages are still sent to it. */
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
  /** Streams in each direction: the smaller of the two numbers (RFC 5043 section 8). */
  readonly streamCount: number;
  /** Length of the longest message that neither SCTP nor IP fragments at present. */
  readonly messageMaxBytes: number;
  /** True while sent messages are not acknowledged. */
  readonly unacknowledged: boolean;
  user: AssociationUser;
  /**
   * Sends one message, whole or not at all. Returns false if there is no room; then `handleWritable` follows.
   * The caller may reuse `bytes` on return. SCTP fragments messages longer than `messageMaxBytes`; the caller
   * decides whether to allow that.
   */
  send(streamId: number, kind: MessageKind, bytes: Uint8Array): boolean;
  /** Messages stay in the transport, up to its receive window, until `resumeReading`. */
  pauseReading(): void;
  resumeReading(): void;
  /** Sends SHUTDOWN after everything sent. `handleEnded` follows. */
  shutdown(): void;
  /** Sends ABORT at once. `handleEnded` does not follow. */
  abort(): void;
}

/** Options of the associations of a port. */
export interface SctpPortOptions {
  /** Our adaptation indication, in INIT and INIT ACK. */
  readonly adaptation: number;
  /** Requested streams in each direction. */
  readonly streamCount: number;
  /** Charged for each association, from start to end. */
  readonly account?: IdAccount | undefined;
}

/** An attempt to open an association; `cancel` ends it, and then no callback is called. */
export interface AssociationAttempt {
  cancel(): void;
}

/** A held local address and port: first unused, then used to listen or to open associations. */
export interface SctpPort extends SctpAddress {
  /**
   * Delivers associations from now on. `onAssociation` must set the user of its association at once.
   * Associations with another adaptation indication are aborted instead.
   */
  listen(onAssociation: (association: Association) => void): void;
  /**
   * Opens an association. `onOpen` must set the user at once. `onFailed` gets the errno name: ECONNREFUSED,
   * ETIMEDOUT, or EPROTO for another adaptation indication. Never calls back from inside.
   */
  open(
    remote: SctpAddress,
    onOpen: (association: Association) => void,
    onFailed: (errorCode: string, text: string) => void,
  ): AssociationAttempt;
  /** Releases the port; a listener stops. Its associations stay. */
  release(): void;
}

/** An SCTP implementation. */
export interface SctpTransport {
  /**
   * Holds `address` and `port`, 0 for a free one. Throws `NetworkError`: EADDRINUSE, EADDRNOTAVAIL, or
   * EPROTONOSUPPORT if the host has no SCTP.
   */
  hold(local: SctpAddress, options: SctpPortOptions): SctpPort;
}

/** A transport for the addresses of one host. */
export interface HostSctpTransport extends SctpTransport {
  /** Receives packets to the address until `close`. Throws `NetworkError`. */
  open(address: string): void;
  /** Undoes every `open`, and other uses by hosts. Associations stay. */
  close(): void;
}

/** Longest message that is assembled: a DDP Stream Sequence Number and the longest DDP segment. */
export const MESSAGE_MAX_BYTES = 65_537;
