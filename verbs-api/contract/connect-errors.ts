/** How a refused connection reaches the caller of `connect`. */
import { VerbsError } from './errors.ts';
import type { CMEvent } from './provider.ts';

/**
 * The peer rejected the connection, or nobody listens there. The code is ECONNREFUSED, as it is for
 * a synchronous `rdma_connect`; the peer's private data and depths, and the errno that the device
 * gave, are in `event`.
 */
export class ConnectionRejectedError extends VerbsError {
  readonly event: CMEvent;

  constructor(event: CMEvent) {
    super('ECONNREFUSED', event.text);
    this.event = event;
  }
}
