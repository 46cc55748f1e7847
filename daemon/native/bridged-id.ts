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
