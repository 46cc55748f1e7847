/** A connection that carries bytes in order, or messages: over TCP, SCTP, or a simulation of them. */

import type { Delivery, Transmit } from '#base/transmit';
import type { TapLinkEnds } from '#contract/protocol/tap-records';
import type { DeviceLowerLayer } from '#contract/verbs/attributes';
import type { LinkPosition } from '#daemon/capture/capture-tap';

/** The user of a link. Called from events of the network; must not throw. */
export interface LinkUser {
  /** Bytes arrived, or one message; borrowed for the call. `delivery` is `PLAIN` unless given. */
  handleBytes(bytes: Uint8Array, delivery?: Delivery): void;
  /** Completes the checksums in `bytes`, which it wrote unsealed: a capture or fault needs them. */
  seal?(bytes: Uint8Array): void;
  /** True if all memory that the input may reach takes lent payload. */
  readonly takesLent?: boolean;
  /** True if input needs its checksums, because it is captured or changed. */
  readonly inspectsInput?: boolean;
  /** The network has accepted `bytes` that an earlier `write` left over. */
  handleFlushed(bytes: number): void;
  /** The peer has acknowledged everything that was written. Only links of messages report this. */
  handleAcknowledged?(): void;
  /** `emssBytes` has changed. Only links of messages report this; others are polled. */
  handlePathChanged?(): void;
  /** The peer's FIN. */
  handlePeerClosed(): void;
  /** The connection has ended, called once; the errno name if it failed. No call follows. */
  handleClosed(errorCode: string | undefined): void;
  /** Received bytes that the user keeps until more arrive, for watchers of the link. */
  readonly heldInput?: Uint8Array | undefined;
  /** Unwritten bytes of FPDUs that are partly written, for watchers. Default 0. */
  readonly cutOutputBytes?: number;
  /** The queue pair that uses the link, for watchers. */
  readonly queuePair?: LinkPosition['queuePair'];
}

/** Placeholder for a link without a user. */
export const NO_USER: LinkUser = {
  handleBytes: () => {},
  handleFlushed: () => {},
  handlePeerClosed: () => {},
  handleClosed: () => {},
};

/** One end of a connection. No method calls its user. */
export interface Link extends TapLinkEnds {
  /**
   * True if whole writes reach the peer unchanged: checksums are computed only if a capture or fault needs
   * them.
   */
  readonly faithful?: boolean;
  /** True while nothing sees segments: a write may hold any number of FPDUs. */
  readonly unsegmented?: boolean;
  /** True while `write` accepts bytes that stand for lent payload. */
  readonly lends?: boolean;
  /** Default: TCP. */
  readonly lowerLayer?: DeviceLowerLayer;
  /**
   * True if each write is a separate message, delivered in any order, and there is no half-close:
   * `finish` does nothing, and `close` ends both halves once both users have finished.
   */
  readonly carriesMessages?: boolean;
  /**
   * Ends a segment after each write. Set if the peer cannot handle an FPDU that spans two segments.
   */
  segmentAligned: boolean;
  user: LinkUser;
  /** Bytes of payload that one segment holds now (MPA-5.1-01), or the longest message. */
  emssBytes(): number;
  /** True if bytes of an earlier `write` still wait, possibly forever. */
  readonly congested: boolean;
  /** True if `write` may be called: there is room, and neither end of the link has been reached. */
  readonly writable: boolean;
  /**
   * Sends bytes; the link must be writable. Returns how many of all bytes written so far were accepted at
   * once, in order: the caller may reuse those. The rest stays borrowed until `handleFlushed`.
   * The record is borrowed for the call. Only a faithful link accepts unsealed bytes.
   */
  write(transmit: Transmit): number;
  /**
   * Ends the connection with ETIMEDOUT once the peer has vanished: it answers no probes, sent after
   * `idleSeconds` of silence and then every `intervalSeconds`, or accepts no data for as long as
   * all probes would take. Optional for networks that never lose peers.
   */
  keepAlive?(idleSeconds: number, intervalSeconds: number, probes: number): void;
  /** Incoming bytes wait in the network until `resumeReading`. */
  pauseReading(): void;
  resumeReading(): void;
  /** Sends our FIN after all written bytes. Reading continues (DDP-6.2.1-06). */
  finish(): void;
  /**
   * Closes the connection at once: bytes that the network has accepted are still sent, then a FIN;
   * a reset instead if there is unread input.
   */
  close(): void;
  /** Resets the connection at once; bytes in flight are lost. */
  reset(): void;
  /** Bytes that the link holds back, if it can. */
  readonly heldBytes?: number;
  /** Checks the link against its counts, if it has any. Throws `InvariantError`. */
  assertInvariants?(): void;
}

/** A connection attempt; `cancel` ends it, and then neither callback is called. */
export interface Dial {
  cancel(): void;
}
