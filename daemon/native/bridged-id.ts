/** A connection id that rdma_cm serves. */
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import type { ServedId } from '../adapter/device-backend.ts';
import type { BridgedDevice } from './bridged-device.ts';
import type { BridgedQP } from './bridged-queue-pair.ts';
import type { LowerId } from './lower.ts';

/** Where an id stands. */
export type BridgedIdState =
  | 'idle'
  | 'bound'
  | 'resolving'
  | 'resolved'
  | 'routed'
  | 'listening'
  /** A connect request that nobody has answered. */
  | 'requested'
  | 'connecting'
  | 'connected'
  | 'ended'
  | 'destroyed';

/** See the module's comment. Only `BridgedConnections` changes it. */
export class BridgedId implements ServedId {
  tag: unknown;
  readonly lower: LowerId;
  state: BridgedIdState = 'idle';
  served: BridgedDevice | undefined;
  localAddress: SocketAddress | undefined;
  peerAddress: SocketAddress | undefined;
  qp: BridgedQP | undefined;
  /** On a connect request: the listener, until it is answered. */
  listener: BridgedId | undefined;
  /** Of a listener: how many requests may wait for an answer, and those that do. */
  backlog = 0;
  readonly unanswered = new Set<BridgedId>();
  /** Connects, once the route is there that nobody asked for. */
  connectWhenRouted: (() => void) | undefined;
  /** Settles the resolution under way. */
  waiter: { resolve(): void; reject(error: Error): void } | undefined;

  constructor(lower: LowerId, tag: unknown) {
    this.lower = lower;
    this.tag = tag;
  }

  get device(): string | undefined {
    return this.served?.name;
  }
}
