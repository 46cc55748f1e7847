/** Whether the wire of a queue pair has ended, and why. Requester and responder share it. */
import type { WireFailure } from '#daemon/rnic/wire-port';
import type { TransportFailure } from './packet-wire.ts';

export class Outcome {
  /** The wire has failed or was aborted: it takes and sends no messages. */
  stopped = false;
  #failure: TransportFailure | undefined = undefined;

  /** Keeps the first failure. */
  fail(by: 'us' | 'peer', failure: WireFailure): void {
    if (this.stopped) return;
    this.stopped = true;
    this.#failure = { by, failure };
  }

  /** Returns the failure once. */
  poll(): TransportFailure | undefined {
    const failure = this.#failure;
    this.#failure = undefined;
    return failure;
  }
}
