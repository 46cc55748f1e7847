/** Waits limited by a signal or by a number of milliseconds. */
import { cancellable, throwIfAborted } from './client/cancellation.ts';
import { VerbsError } from './contract/verbs/errors.ts';
import type { CancelSignal } from './contract/verbs/provider.ts';

/** Limits of a call. Without either field it waits indefinitely. */
export interface WaitLimit {
  /** Cancels when it aborts: the call rejects with the signal's reason. */
  readonly signal?: CancelSignal | undefined;
  /** Cancels after this many milliseconds: the call rejects with ETIMEDOUT. */
  readonly timeoutMs?: number | undefined;
}

/** The longest timer of Node, in milliseconds: about 24 days. */
const TIMEOUT_MAX_MS = 2 ** 31 - 1;

/**
 * Runs `body` with a signal that aborts when `limit` is reached; `body` must stop then. `what`
 * names the call in the text of ETIMEDOUT. Leaves neither timer nor listener behind.
 */
export async function within<T>(
  limit: WaitLimit,
  what: string,
  body: (signal: CancelSignal | undefined) => Promise<T>,
): Promise<T> {
  const { signal, timeoutMs } = limit;
  throwIfAborted(signal);
  if (timeoutMs === undefined) return await body(signal);
  if (!(timeoutMs >= 0 && timeoutMs <= TIMEOUT_MAX_MS)) {
    throw new VerbsError('EINVAL', `timeoutMs is ${timeoutMs}, not from 0 to ${TIMEOUT_MAX_MS}`);
  }
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
