/** Whether the wire of a queue pair has ended, and why. Shared by its halves. */
import type { WireFailure } from '../../rnic/wire-port.ts';
import type { TransportFailure } from './packet-wire.ts';

export class Outcome {
  /** The wire has failed or was ended: nothing is taken in or begun. */
  stopped = false;
  #failure: TransportFailure | undefined = undefined;

  /** The first failure counts. */
  fail(by: 'us' | 'peer', failure: WireFailure): void {
    if (this.stopped) return;
    this.stopped = true;
    this.#failure = { by, failure };
  }

  /** The failure, once. */
  poll(): TransportFailure | undefined {
    const failure = this.#failure;
    this.#failure = undefined;
    return failure;
  }
}
