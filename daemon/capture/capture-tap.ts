/**
 * Interfaces to watch the bytes of a link. A tap sees the bytes that TCP accepted and delivered, in
 * order, and never changes them; `pcapng-capture.ts` records them.
 */
import type { TappedPacket } from '#contract/protocol/packet-records';
import type { QueuePairName, TapLinkEnds } from '#contract/protocol/tap-records';

/** The two ends of a link, seen from this side. */
export interface LinkAddresses extends TapLinkEnds {
  /** True when this side sent the SYN. */
  readonly dialed: boolean;
  /** Maximum payload bytes of a TCP segment. */
  readonly emssBytes: number;
}

/** Watches one link. Bytes are borrowed for the call. */
export interface LinkTap {
  /** False while nothing watches; the bytes may then lack checksums. */
  readonly watched: boolean;
  /** Bytes about to be sent. */
  outbound(bytes: Uint8Array): void;
  /** Bytes that arrived. */
  inbound(bytes: Uint8Array): void;
  /** A FIN was sent ('us') or received ('peer'). */
  finished(by: 'us' | 'peer'): void;
  /** The socket was closed; `reset`: by a reset. */
  closed(reset: boolean): void;
}

/** The state of a link, for watchers that join later. */
export interface LinkPosition {
  /** Bytes received that are not yet a whole FPDU, if any; borrowed. */
  readonly heldInput: Uint8Array | undefined;
  /** True while the rest of a write waits for room: `outbound` reports it once sent. */
  readonly congested: boolean;
  /** Unsent bytes, after the rest above, of FPDUs that are partly sent. Default 0. */
  readonly cutOutputBytes?: number;
  /** The queue pair of this end; undefined if none. */
  readonly queuePair?: QueuePairName | undefined;
}

/** Watches packets between queue pairs, which belong to no link. */
export interface PacketTap {
  /** False while there is no watcher: packets need not be reported. */
  readonly watched: boolean;
  /** A packet that reaches its receiver, or would if a fault had not dropped it. Borrowed for the call. */
  packet(packet: TappedPacket): void;
}

/** Watches the traffic of a host. */
export interface CaptureTap {
  /** Packets; without it, they are not watched. */
  readonly packets?: PacketTap;

  /** A link was opened: returns the tap for its bytes. Each link has one. */
  opened(addresses: LinkAddresses, position: LinkPosition): LinkTap;
}
