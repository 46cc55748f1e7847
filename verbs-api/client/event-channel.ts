/** Events in order, each delivered once: to `next` calls and to async iterators alike. */
import type { CancelSignal, WaitLimit } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { cancellable, quiet, type Waiter } from './cancellation.ts';
import { NO_LIMIT, within } from './deadline.ts';
import type { PendingWaits } from './pending-waits.ts';

/**
 * A queue of events with any number of readers; each event goes to one of them.
 *
 * It ends once: by `close`, after which iterators finish, or by `fail`, after which they throw.
 * Events queued before the end are still delivered.
 */
export class EventChannel<T> {
  readonly #waits: PendingWaits | undefined;
  readonly #events: T[] = [];
  readonly #waiters: Waiter<T>[] = [];
  #end: { readonly error: Error; readonly graceful: boolean } | undefined;

  /** `waits`, if any, counts readers that wait. */
  constructor(waits?: PendingWaits) {
    this.#waits = waits;
  }

  /** Adds an event; dropped after the end. */
  push(event: T): void {
    if (this.#end !== undefined) return;
    const waiter = this.#waiters.shift();
    if (waiter === undefined) {
      this.#events.push(event);
      return;
    }
    this.#waits?.end();
    waiter.resolve(event);
  }

  /** Ends the channel because its owner closed: waiting `next` calls reject with `error`. */
  close(error: Error): void {
    this.#finish(error, true);
  }

  /** Ends the channel because its source was lost: readers get `error`. */
  fail(error: Error): void {
    this.#finish(error, false);
  }

  /** The next event. Rejects with the signal's reason, or with the error that ended the channel. */
  next(signal?: CancelSignal): Promise<T> {
    const event = this.#events.shift();
    if (event !== undefined) return Promise.resolve(event);
    if (this.#end !== undefined) return quiet(Promise.reject(this.#end.error));
    return quiet(
      cancellable(
        signal,
        (waiter) => {
          this.#waits?.begin();
          this.#waiters.push(waiter);
        },
        (waiter) => {
          this.#waits?.end();
          this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
        },
      ),
    );
  }

  /** Removes and returns the queued events without waiting. */
  drain(): T[] {
    return this.#events.splice(0);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (;;) {
      let event: T;
      try {
        event = await this.next();
      } catch (error) {
        if (this.#end?.graceful === true) return;
        throw error;
      }
      yield event;
    }
  }

  #finish(error: Error, graceful: boolean): void {
    if (this.#end !== undefined) return;
    this.#end = { error, graceful };
    for (const waiter of this.#waiters.splice(0)) {
      this.#waits?.end();
      waiter.reject(error);
    }
  }
}

/** The next event, as `nextEvent` of channels and ids returns it. */
export function nextOf<T>(events: EventChannel<T>, limit: WaitLimit = NO_LIMIT): Promise<T> {
  if (limit === NO_LIMIT) return events.next();
  return quiet(limitedNext(events, limit));
}

async function limitedNext<T>(events: EventChannel<T>, limit: WaitLimit): Promise<T> {
  checkCall.nextEvent(limit);
  return await within(limit, 'event', (signal) => events.next(signal));
}
