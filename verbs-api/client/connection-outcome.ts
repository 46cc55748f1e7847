/** The event that a call on a connection id waits for. */
import { ConnectionRejectedError } from '../contract/connect-errors.ts';
import { CMEventType } from '../contract/enums.ts';
import { VerbsError } from '../contract/errors.ts';
import type { CMEvent } from '../contract/provider.ts';
import { quiet, type Waiter } from './cancellation.ts';

/** Events that end whatever is under way, and nothing well. */
const FAILURES: ReadonlySet<CMEventType> = new Set([
  CMEventType.addrError,
  CMEventType.routeError,
  CMEventType.connectError,
  CMEventType.unreachable,
  CMEventType.rejected,
  CMEventType.disconnected,
  CMEventType.deviceRemoval,
]);

/** A wait for an event. */
interface Wait {
  readonly success: CMEventType;
  readonly promise: Promise<CMEvent>;
  readonly waiter: Waiter<CMEvent>;
}

/** See the module's comment. An id waits for one event at a time. */
export class ConnectionOutcome {
  #wait: Wait | undefined;

  /** Something is under way. */
  get pending(): boolean {
    return this.#wait !== undefined;
  }

  /**
   * Waits from now on. Resolves with the event of type `success`; rejects with
   * `ConnectionRejectedError`, with `VerbsError` for other events that say that it failed, or with
   * what `fail` is given.
   */
  begin(success: CMEventType): Promise<CMEvent> {
    let waiter: Waiter<CMEvent> = { resolve() {}, reject() {} };
    const promise = quiet(
      new Promise<CMEvent>((resolve, reject) => {
        waiter = { resolve, reject };
      }),
    );
    this.#wait = { success, promise, waiter };
    return promise;
  }

  /** Nothing was started: the promise of `begin` is not waited for any more. */
  withdraw(promise: Promise<CMEvent>): void {
    if (this.#wait?.promise === promise) this.#wait = undefined;
  }

  /** An event came. */
  settle(event: CMEvent): void {
    if (event.type === this.#wait?.success) this.#end()?.resolve(event);
    else if (FAILURES.has(event.type)) this.#end()?.reject(failureOf(event));
  }

  /** No event will come. */
  fail(error: Error): void {
    this.#end()?.reject(error);
  }

  #end(): Waiter<CMEvent> | undefined {
    const wait = this.#wait;
    this.#wait = undefined;
    return wait?.waiter;
  }
}

function failureOf(event: CMEvent): Error {
  return event.type === CMEventType.rejected
    ? new ConnectionRejectedError(event)
    : new VerbsError(event.error ?? 'ECONNRESET', event.text);
}
