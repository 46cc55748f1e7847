/** How a refused connection reaches the caller of `connect`. */
import { VerbsError } from './errors.ts';
import type { CMEvent } from './provider.ts';

/** The peer rejected the connection; its private data and depths are in `event`. */
export class ConnectionRejectedError extends VerbsError {
  readonly event: CMEvent;

  constructor(event: CMEvent) {
    super('ECONNREFUSED', 'the peer rejected the connection');
    this.event = event;
  }
}
