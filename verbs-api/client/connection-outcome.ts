/** The event that a call on a connection id waits for. */
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { CMEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { CMEvent } from '#contract/verbs/provider';
import { quiet, type Waiter } from './cancellation.ts';
import type { PendingWaits } from './pending-waits.ts';

/** Events that fail any operation in progress. */
const FAILURES: ReadonlySet<CMEventType> = new Set([
  CMEventType.addrError,
  CMEventType.routeError,
  CMEventType.connectError,
  CMEventType.unreachable,
  CMEventType.rejected,
  CMEventType.disconnected,
  CMEventType.deviceRemoval,
]);

interface Wait {
  readonly success: CMEventType;
  readonly promise: Promise<CMEvent>;
  readonly waiter: Waiter<CMEvent>;
}

/** An id waits for one event at a time. */
export class ConnectionOutcome {
  readonly #waits: PendingWaits | undefined;
  #wait: Wait | undefined;

  /** `waits`, if any, counts it while it is pending. */
  constructor(waits?: PendingWaits) {
    this.#waits = waits;
  }

  /** True while an operation is in progress. */
  get pending(): boolean {
    return this.#wait !== undefined;
  }

  /**
   * Starts waiting. Resolves with the event of type `success`; rejects with `ConnectionRejectedError`,
   * with `VerbsError` for other events that report a failure, or with the error passed to `fail`.
   */
  begin(success: CMEventType): Promise<CMEvent> {
    let waiter: Waiter<CMEvent> = { resolve() {}, reject() {} };
    const promise = quiet(
      new Promise<CMEvent>((resolve, reject) => {
        waiter = { resolve, reject };
      }),
    );
    this.#end();
    this.#wait = { success, promise, waiter };
    this.#waits?.begin();
    return promise;
  }

  /** Nothing was started: stops waiting for the promise of `begin`. */
  withdraw(promise: Promise<CMEvent>): void {
    if (this.#wait?.promise === promise) this.#end();
  }

  settle(event: CMEvent): void {
    if (event.type === this.#wait?.success) this.#end()?.resolve(event);
    else if (FAILURES.has(event.type)) this.#end()?.reject(failureOf(event));
  }

  /** No event will arrive. */
  fail(error: Error): void {
    this.#end()?.reject(error);
  }

  #end(): Waiter<CMEvent> | undefined {
    const wait = this.#wait;
    if (wait === undefined) return undefined;
    this.#wait = undefined;
    this.#waits?.end();
    return wait.waiter;
  }
}

function failureOf(event: CMEvent): Error {
  // A service of datagrams that refuses is unreachable, as in rdma_cm.
  const refused = event.type === CMEventType.unreachable && event.error === 'ECONNREFUSED';
  return refused || event.type === CMEventType.rejected
    ? new ConnectionRejectedError(event)
    : new VerbsError(event.error ?? 'ECONNRESET', event.text);
}
