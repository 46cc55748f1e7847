/**
 * Accepts requests in parallel, as TCP does before `accept` returns: a peer that connects and never
 * confirms must not delay others. On RoCE, a request is one datagram, whose sender may be forged.
 *
 * If a request is not confirmed within `LATE_MS`, the next one is accepted as well, and the call returns
 * the first that is confirmed. One that is confirmed later goes to a later call with the same options.
 * If a call has `prepare`, which may keep state in the program, only the request for which it was called
 * last counts; others are closed.
 */
import type { CancelSignal, CMEvent, WaitLimit } from '#contract/verbs/provider';
import { throwIfAborted } from './client/cancellation.ts';
import { isPeerFailure } from './dialing.ts';

/** Honest peers confirm within milliseconds; one whose program is stopped takes longer. */
const LATE_MS = 500;

/** The time limit and the options with which a request is accepted. */
export interface AcceptLimit extends WaitLimit {
  readonly prepare?: unknown;
}

/** The source of requests, and how to accept one. */
interface AcceptSource<Options, Endpoint> {
  /** The next request; it is not taken if the signal aborts first. */
  next(signal: CancelSignal): Promise<CMEvent>;
  accept(request: CMEvent, options: Options): Promise<Endpoint>;
}

/** A request that was accepted. It ends with an endpoint or an error. */
interface Attempt<Options, Endpoint> {
  readonly options: Options;
  readonly cancel: AbortController;
  late: boolean;
  endpoint: Endpoint | undefined;
  failed: { readonly error: unknown } | undefined;
}

export class AcceptQueue<Options extends AcceptLimit, Endpoint extends { close(): Promise<void> }> {
  readonly #source: AcceptSource<Options, Endpoint>;
  /** Attempts of earlier calls, which returned another attempt. */
  readonly #left = new Set<Attempt<Options, Endpoint>>();
  /** Requests that arrived as a call returned. */
  readonly #held: CMEvent[] = [];
  /** Wakes the calls that wait. */
  readonly #wakers = new Set<() => void>();

  constructor(source: AcceptSource<Options, Endpoint>) {
    this.#source = source;
  }

  /** The next request, for a caller who answers it. Fails once there are no more. */
  async take(): Promise<CMEvent> {
    for (;;) {
      const request = await this.#wait(true, undefined);
      if (request !== undefined) return request;
    }
  }

  /** The next endpoint. Fails like accepting a request, but skips peers that fail before they confirm. */
  async accept(options: Options, signal: CancelSignal | undefined): Promise<Endpoint> {
    const own: Attempt<Options, Endpoint>[] = [];
    let latest: Attempt<Options, Endpoint> | undefined;
    /** The listener has closed; what was accepted before may still be confirmed. */
    let closed: { readonly error: unknown } | undefined;
    try {
      for (;;) {
        throwIfAborted(signal);
        const endpoint = this.#confirmed(own, options, latest);
        if (endpoint !== undefined) {
          for (const attempt of own) this.#leave(attempt);
          return endpoint;
        }
        if (closed !== undefined && eligible(own, options, latest).length === 0) {
          throw closed.error;
        }
        const newest = own.at(-1);
        const hungry = closed === undefined && (newest === undefined || newest.late);
        let request: CMEvent | undefined;
        try {
          request = await this.#wait(hungry, signal);
        } catch (error) {
          closed = { error };
        }
        if (request === undefined) continue;
        if (eligible(own, options, latest).some(isConfirmed)) this.#hold(request);
        else {
          latest = this.#begin(request, options, own);
          own.push(latest);
        }
      }
    } catch (error) {
      for (const attempt of own) this.#abandon(attempt);
      throw error;
    }
  }

  /** Ends attempts and requests without a call. */
  async close(): Promise<void> {
    for (const attempt of this.#left) this.#abandon(attempt);
    const held = this.#held.splice(0);
    await Promise.all(held.map(({ id }) => id.close()));
  }

  /** Removes failed attempts and the endpoint to return. Throws failures that the peer did not cause. */
  #confirmed(
    own: Attempt<Options, Endpoint>[],
    options: Options,
    latest: Attempt<Options, Endpoint> | undefined,
  ): Endpoint | undefined {
    for (const attempt of [...own]) {
      const { failed } = attempt;
      if (failed === undefined) continue;
      own.splice(own.indexOf(attempt), 1);
      if (!isPeerFailure(failed.error)) throw failed.error;
    }
    const found = eligible(own, options, latest).find(isConfirmed);
    if (found !== undefined) {
      own.splice(own.indexOf(found), 1);
      return found.endpoint;
    }
    for (const left of this.#left) {
      if (left.endpoint === undefined) continue;
      this.#left.delete(left);
      if (sameOptions(left.options, options)) return left.endpoint;
      // Its program has changed the options since.
      void left.endpoint.close().catch(() => {});
    }
    return undefined;
  }

  #begin(
    request: CMEvent,
    options: Options,
    beside: readonly Attempt<Options, Endpoint>[],
  ): Attempt<Options, Endpoint> {
    const cancel = new AbortController();
    // After one late peer, many more may follow.
    const late = options.prepare === undefined && beside.some((other) => other.late);
    const attempt: Attempt<Options, Endpoint> = {
      options,
      cancel,
      late,
      endpoint: undefined,
      failed: undefined,
    };
    const timer = setTimeout(() => {
      attempt.late = true;
      this.#wake();
    }, LATE_MS);
    const { signal } = cancel;
    const settle = (outcome: Partial<Attempt<Options, Endpoint>>): void => {
      clearTimeout(timer);
      Object.assign(attempt, outcome);
      if (this.#left.has(attempt)) this.#leave(attempt);
      this.#wake();
    };
    this.#source.accept(request, { ...options, signal, timeoutMs: undefined }).then(
      (endpoint) => settle({ endpoint }),
      (error: unknown) => settle({ failed: { error } }),
    );
    return attempt;
  }

  /** Its call returned another attempt. */
  #leave(attempt: Attempt<Options, Endpoint>): void {
    const { endpoint, failed, options } = attempt;
    this.#left.add(attempt);
    if (failed !== undefined) this.#left.delete(attempt);
    else if (options.prepare !== undefined && endpoint !== undefined) this.#abandon(attempt);
  }

  #abandon(attempt: Attempt<Options, Endpoint>): void {
    this.#left.delete(attempt);
    const { endpoint, cancel } = attempt;
    if (endpoint === undefined) cancel.abort();
    else void endpoint.close().catch(() => {});
  }

  #wake(): void {
    for (const wake of this.#wakers) wake();
  }

  /** Keeps a request for a call that waits, or for the next one. */
  #hold(request: CMEvent): void {
    this.#held.push(request);
    this.#wake();
  }

  /** Waits until an attempt changes, or the signal aborts; if `hungry`, also for a request. */
  async #wait(hungry: boolean, signal: CancelSignal | undefined): Promise<CMEvent | undefined> {
    const held = hungry ? this.#held.shift() : undefined;
    if (held !== undefined) return held;
    const woken = new AbortController();
    const wake = (): void => woken.abort();
    this.#wakers.add(wake);
    signal?.addEventListener('abort', wake);
    try {
      if (hungry) return await this.#source.next(woken.signal);
      await new Promise<void>((resolve) => {
        woken.signal.addEventListener('abort', () => resolve());
      });
      return undefined;
    } catch (error) {
      if (woken.signal.aborted) return undefined;
      throw error;
    } finally {
      this.#wakers.delete(wake);
      signal?.removeEventListener('abort', wake);
    }
  }
}

/** Attempts that a call with these options may return: with `prepare`, the latest one. */
function eligible<Options extends AcceptLimit, Endpoint>(
  own: readonly Attempt<Options, Endpoint>[],
  { prepare }: Options,
  latest: Attempt<Options, Endpoint> | undefined,
): readonly Attempt<Options, Endpoint>[] {
  return prepare === undefined ? own : own.filter((attempt) => attempt === latest);
}

function isConfirmed<Options, Endpoint>({ endpoint }: Attempt<Options, Endpoint>): boolean {
  return endpoint !== undefined;
}

/** True for options that treat a request alike. */
function sameOptions(a: AcceptLimit, b: AcceptLimit): boolean {
  return sameFields({ ...a, ...NO_LIMIT }, { ...b, ...NO_LIMIT });
}

const NO_LIMIT = { signal: undefined, timeoutMs: undefined };

function sameFields(a: object, b: object): boolean {
  const [left, right] = [Object.entries(a), new Map(Object.entries(b))];
  return left.length === right.size && left.every(([key, value]) => same(value, right.get(key)));
}

/** Objects of a program, such as queues, compare by identity. */
function same(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  return isPlain(a) && isPlain(b) && sameFields(a, b);
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  return Object.getPrototypeOf(value) === Object.prototype || value instanceof Uint8Array;
}
