/** A connection id: what `rdma_create_id` gives. States and transitions are drawn in README.md. */
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import type { Endpoint } from './endpoint.ts';

/** Where an id stands. */
export type CmIdState =
  | { readonly kind: 'idle' }
  | { readonly kind: 'bound' }
  | { readonly kind: 'resolved' }
  | { readonly kind: 'routed' }
  | { readonly kind: 'listening'; readonly listener: Listener }
  /** From connect, or from the connect request, until the connection is over. */
  | { readonly kind: 'connection'; readonly endpoint: Endpoint }
  /** The connection failed or ended; only destroy is left. */
  | { readonly kind: 'closed'; readonly wasConnected: boolean }
  | { readonly kind: 'destroyed' };

/** What a listening id holds. */
export interface Listener {
  readonly backlog: number;
  /** Connections whose MPA Request is still to come. */
  readonly starting: Set<Endpoint>;
  /** Ids whose connect request has not been answered. */
  readonly pending: Set<CmId>;
}

const TRANSITIONS: Readonly<Record<CmIdState['kind'], readonly CmIdState['kind'][]>> = {
  idle: ['bound', 'resolved', 'listening', 'connection', 'destroyed'],
  bound: ['resolved', 'listening', 'destroyed'],
  resolved: ['routed', 'connection', 'destroyed'],
  routed: ['connection', 'destroyed'],
  listening: ['destroyed'],
  connection: ['closed', 'destroyed'],
  closed: ['destroyed'],
  destroyed: [],
};

/** A connection id. Only the connection manager changes it. */
export class CmId {
  /** Unique among the ids of the manager that made it. */
  readonly number: number;
  /** Whose id it is: for the owner to route events. A connect request's id starts with its listener's. */
  tag: unknown;
  /** Name of the device, once an address decided it. */
  device: string | undefined;
  localAddress: SocketAddress | undefined;
  /** How long a refused TCP connection is tried again before it fails, in milliseconds. */
  refusalPatienceMs = 0;
  /**
   * Whose listening port it is: the port stays held for a moment after the id, so that clients of
   * the same owner's next listener are not refused. Undefined: it goes with the id.
   */
  portKeeper: object | undefined;
  peerAddress: SocketAddress | undefined;
  #state: CmIdState = { kind: 'idle' };

  constructor(number: number, tag: unknown) {
    this.number = number;
    this.tag = tag;
  }

  get state(): CmIdState {
    return this.#state;
  }

  /** Moves along the table; an illegal step is an error of the manager. */
  transition(next: CmIdState): void {
    if (!TRANSITIONS[this.#state.kind].includes(next.kind)) {
      throw new Error(`connection id ${this.number}: ${this.#state.kind} to ${next.kind}`);
    }
    this.#state = next;
  }
}
