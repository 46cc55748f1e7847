/** The connection manager's interface to its host: network, effects and events. */
import type { CMOutcome } from '#contract/protocol/commands';
import type { ErrnoCode } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { CmEndpoint, CmId } from './cm-id.ts';

/** Why an address is unreachable; `text` adds details, if any. */
export interface NoRoute {
  readonly error: ErrnoCode;
  readonly text?: string | undefined;
}

/** Another id has the port. */
export interface PortInUse {
  readonly error: ErrnoCode;
  readonly address: string;
}

/** Synchronous operations of the host's TCP. */
export interface HostNetwork {
  /**
   * Reserves a local address and port (0: any free one) for `id`, with its options, and releases its
   * former reservation. EADDRINUSE if another id has them; a socket of another program is detected only
   * when the id listens or dials. EADDRNOTAVAIL, EACCES.
   */
  reserve(
    id: CmId,
    address: SocketAddress,
  ): { readonly port: number } | { readonly error: ErrnoCode };
  /**
   * The errno and the other id's address if another id of the port space holds the address and port that `id`
   * wants; undefined if none does. `reuseAddress` overrides the option of `id`.
   */
  clash(id: CmId, address: SocketAddress, reuseAddress?: boolean): PortInUse | undefined;
  /** True if the port reserved for `id` is taken by a socket of another program. */
  isTaken(id: CmId): boolean;
  /** Starts to accept connections at the reserved port; each goes to `handleIncoming`. */
  listen(id: CmId): ErrnoCode | undefined;
  /** Releases the reservation; a listener stops. Ignores unknown ids. */
  release(id: CmId): void;
  /**
   * Makes connections to a listener's port wait until the port is handed over, or released. False
   * for an id whose port does not accept connections.
   */
  suspend(id: CmId): boolean;
  /** Moves the reservation of `from` to `to`, and releases the former one of `to`. */
  handOver(from: CmId, to: CmId): void;
  /** The local address from which `destination` is reached; tries only `source` if given. */
  sourceAddress(
    destination: string,
    source: string | undefined,
  ): { readonly address: string } | NoRoute;
}

/** An event of a connection id, before it is delivered to the owner of the id (`rdma_cm_event`). */
export interface CmEvent<Id = CmId> extends CMOutcome {
  /** On a connect request: the new id, which has the tag of its listener. */
  readonly id: Id;
  /** On a connect request: the listening id. */
  readonly listener: Id | undefined;
}

/** Actions of the manager; poll them until undefined after every input. */
export type CmEffect =
  /** Open a TCP connection; answer with `handleDialed` or `handleDialFailed`. */
  | {
      readonly type: 'dial';
      readonly endpoint: CmEndpoint;
      readonly local: SocketAddress;
      readonly remote: SocketAddress;
    }
  /** Cancel a 'dial' effect that has not been answered. */
  | { readonly type: 'cancelDial'; readonly endpoint: CmEndpoint }
  /** The endpoint's stream got a command: poll it. */
  | { readonly type: 'touched'; readonly endpoint: CmEndpoint }
  /** Deliver to the id's owner. */
  | { readonly type: 'deliver'; readonly event: CmEvent };
