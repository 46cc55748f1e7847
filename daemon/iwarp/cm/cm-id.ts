/** A connection id, as created by `rdma_create_id`. README.md has a diagram of its states. */
import { IdLifecycle } from '#contract/verbs/id-lifecycle';
import type { SocketAddress } from '#contract/verbs/provider';
import type { CmDevice } from './cm-types.ts';
import type { Endpoint } from './endpoint.ts';
import type { StartingConnections } from './starting-connections.ts';

/** A connection of the manager's ids. */
export type CmEndpoint = Endpoint<CmId>;

interface ListeningState {
  readonly backlog: number;
  /** Connections whose MPA Request has not arrived yet. */
  readonly starting: StartingConnections<CmEndpoint>;
  /** Ids whose connect request has not been answered. */
  readonly pending: Set<CmId>;
}

/** Resources that ids take from their host. SCTP associations and RoCE connections outlive their ids. */
type HostGood = 'descriptors' | 'ports' | 'associations' | 'roceConnections';

/**
 * The account charged for the resources that an id takes from its host: a user's, within the user's
 * share.
 */
export interface IdAccount {
  /** Takes one. Throws `VerbsError` when the user may have no more. */
  take(what: HostGood): void;
  /** Counts one that is taken already. */
  add(what: HostGood): void;
  /** Returns some. Default: one. */
  give(what: HostGood, count?: number): void;
}

/** A connection id. Only the connection manager changes it. */
export class CmId extends IdLifecycle {
  /** Unique among the ids of the manager that made it. */
  readonly number: number;
  /**
   * Owner of the id, for routing events. The id of a connect request starts with its listener's tag.
   */
  tag: unknown;
  /** The device, once an address has determined it. */
  cmDevice: CmDevice | undefined;
  localAddress: SocketAddress | undefined;
  /** How long to retry a refused TCP connection before it fails, in milliseconds. */
  refusalPatienceMs = 0;
  /**
   * Owner of its listening port: the port stays held for a moment after the id, so clients of the
   * same owner's next listener are not refused. Undefined: the port is released with the id.
   */
  portKeeper: object | undefined;
  /**
   * The program that the id belongs to: connections of one program may share a carrier. Undefined:
   * they share none.
   */
  program: object | undefined;
  /** Charged for its port and sockets. Undefined: not charged. */
  account: IdAccount | undefined;
  /**
   * RDMA_OPTION_ID_AFONLY: whether `::` leaves the IPv4 addresses of its port to others. Undefined:
   * the host's default (net.ipv6.bindv6only).
   */
  afOnly: boolean | undefined;
  /** Ids of different port spaces may have one port, until they listen. Undefined: TCP's. */
  portSpace: number | undefined;
  /** Other ids with this set may share its port until it listens. */
  reuseAddress = false;
  peerAddress: SocketAddress | undefined;
  #listening: ListeningState | undefined;
  #endpoint: CmEndpoint | undefined;
  #wasConnected = false;

  constructor(number: number, tag: unknown) {
    super();
    this.number = number;
    this.tag = tag;
  }

  /** Name of the device, once an address has determined it. */
  get device(): string | undefined {
    return this.cmDevice?.name;
  }

  /** While it listens. */
  get listening(): ListeningState | undefined {
    return this.#listening;
  }

  /** While it has a connection. */
  get endpoint(): CmEndpoint | undefined {
    return this.#endpoint;
  }

  /** Its connection was established before it ended. */
  get wasConnected(): boolean {
    return this.#wasConnected;
  }

  listen(listening: ListeningState): void {
    this.enter('listening');
    this.#listening = listening;
  }

  join(endpoint: CmEndpoint): void {
    this.enter('connection');
    this.#endpoint = endpoint;
  }

  /** The connection has ended. */
  part(wasConnected: boolean): void {
    this.enter('closed');
    this.#endpoint = undefined;
    this.#wasConnected = wasConnected;
  }

  destroy(): void {
    this.enter('destroyed');
    this.#endpoint = undefined;
    this.#listening = undefined;
  }
}
