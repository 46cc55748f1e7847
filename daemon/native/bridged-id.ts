/** A connection id that rdma_cm serves. */
import type { SocketAddress } from '#contract/verbs/provider';
import type { ServedId } from '../host/device-backend.ts';
import type { BridgedDevice } from './bridged-device.ts';
import type { BridgedQP } from './bridged-queue-pair.ts';
import type { LowerId } from './lower.ts';

/** States of an id. */
export type BridgedIdState =
  | 'idle'
  | 'bound'
  | 'resolving'
  | 'resolved'
  | 'routing'
  | 'routed'
  | 'listening'
  /** A connect request without an answer. */
  | 'requested'
  | 'connecting'
  | 'connected'
  | 'ended'
  | 'destroyed';

/** Only `BridgedConnections` changes it. */
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
  /** For a listener: how many requests may wait for an answer, and how many do. */
  backlog = 0;
  readonly unanswered = new Set<BridgedId>();
  /** Connects once the route is resolved, when the program did not request that step. */
  connectWhenRouted: (() => void) | undefined;
  /** While it resolves an address: its state if that fails. */
  stateBefore: 'idle' | 'bound' = 'idle';

  constructor(lower: LowerId, tag: unknown) {
    this.lower = lower;
    this.tag = tag;
  }

  get device(): string | undefined {
    return this.served?.name;
  }
}
