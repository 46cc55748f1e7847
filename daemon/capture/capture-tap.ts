/**
 * Where the octets of a link can be watched. A tap sees what TCP took and gave, in order, and never
 * changes it; pcapng-capture.ts writes it down.
 */

import type { QueuePairName } from '../../verbs-api/contract/tap-records.ts';

/** The two ends of a link, from this side. */
export interface LinkAddresses {
  readonly localAddress: string;
  readonly localPort: number;
  readonly remoteAddress: string;
  readonly remotePort: number;
  /** True when this side sent the SYN. */
  readonly dialed: boolean;
  /** Octets that one TCP segment holds. */
  readonly emssBytes: number;
}

/** Watches one link. Octets are borrowed for the call. */
export interface LinkTap {
  outbound(octets: Uint8Array): void;
  inbound(octets: Uint8Array): void;
  /** A FIN went ('us') or came ('peer'). */
  finished(by: 'us' | 'peer'): void;
  /** The socket is gone; `reset` when a reset ended it. */
  closed(reset: boolean): void;
}

/** Where a link stands, for who comes to watch it later. */
export interface LinkPosition {
  /** Octets that came and are no whole FPDU yet; borrowed. */
  heldInput(): Uint8Array;
  /** True while the rest of a write waits for room: `outbound` tells it when it has gone. */
  midOutput(): boolean;
  /** The queue pair of this end; undefined while it has none. */
  queuePair(): QueuePairName | undefined;
}

/** Watches the links of a host: one tap each. */
export interface CaptureTap {
  opened(addresses: LinkAddresses, position: LinkPosition): LinkTap;
}
