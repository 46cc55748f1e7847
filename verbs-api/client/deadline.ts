/** Waits limited by a signal or by a number of milliseconds. */
import { VerbsError } from '#contract/verbs/errors';
import type { CancelSignal, WaitLimit } from '#contract/verbs/provider';
import { cancellable, throwIfAborted } from './cancellation.ts';

/** No limit. It needs no check. */
export const NO_LIMIT: WaitLimit = Object.freeze({});

/**
 * Runs `body` with a signal that aborts when `limit` is reached; `body` must stop then. `what`
 * names the call in the text of ETIMEDOUT. Leaves neither timer nor listener behind. The caller has
 * checked the limit.
 */
export async function within<T>(
  limit: WaitLimit,
  what: string,
  body: (signal: CancelSignal | undefined) => Promise<T>,
): Promise<T> {
  const { signal, timeoutMs } = limit;
  throwIfAborted(signal);
  if (timeoutMs === undefined) return await body(signal);
  const controller = new AbortController();
  const timer = setTimeout(() => {
    controller.abort(new VerbsError('ETIMEDOUT', `${what}: timed out after ${timeoutMs} ms`));
  }, timeoutMs);
  const onAbort = (): void => controller.abort(signal?.reason);
  signal?.addEventListener('abort', onAbort);
  try {
    return await body(controller.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', onAbort);
  }
}

/** `promise`, unless the signal aborts first; the promise's outcome is then dropped. */
export function orAbort<T>(promise: Promise<T>, signal: CancelSignal | undefined): Promise<T> {
  return cancellable<T>(
    signal,
    (waiter) => void promise.then(waiter.resolve, waiter.reject),
    () => undefined,
  );
}
