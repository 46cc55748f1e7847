/** A connection id that rdma_cm serves. */
import { IdLifecycle } from '#contract/verbs/id-lifecycle';
import type { SocketAddress } from '#contract/verbs/provider';
import type { ServedId } from '../host/served-device.ts';
import type { BridgedDevice } from './bridged-device.ts';
import type { BridgedQP } from './bridged-queue-pair.ts';
import type { LowerId } from './lower.ts';

/** Changed only by `BridgedConnections`. */
export class BridgedId extends IdLifecycle implements ServedId {
  tag: unknown;
  readonly lower: LowerId;
  served: BridgedDevice | undefined;
  localAddress: SocketAddress | undefined;
  peerAddress: SocketAddress | undefined;
  qp: BridgedQP | undefined;
  /** For a connect request: the listener, until the request is answered. */
  listener: BridgedId | undefined;
  /** For a listener: the limit of unanswered requests, and their number. */
  backlog = 0;
  readonly unanswered = new Set<BridgedId>();
  /** Connects once the route is resolved, if the program did not request that step. */
  connectWhenRouted: (() => void) | undefined;
  /** While resolving an address: the state to return to if that fails. */
  stateBefore: 'idle' | 'bound' = 'idle';

  constructor(lower: LowerId, tag: unknown) {
    super();
    this.lower = lower;
    this.tag = tag;
  }

  get device(): string | undefined {
    return this.served?.name;
  }
}
