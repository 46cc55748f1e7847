/**
 * Promises that wait for the device: they can be cancelled, and never become unhandled rejections.
 */
import { VerbsError } from '#contract/verbs/errors';
import type { CancelSignal } from '#contract/verbs/provider';

/** The two ends of a waiting promise. */
export interface Waiter<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

/**
 * Marks a promise as handled: a wait that fails because the daemon died must not end a program that
 * has not awaited it yet. Awaiting the promise still throws the error.
 */
export function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

/** Throws the error of a cancelled call: the signal's reason, or EINTR without one. */
export function throwIfAborted(signal: CancelSignal | undefined): void {
  if (signal?.aborted === true) throw abortReason(signal);
}

/**
 * Creates a promise and passes its waiter to `enlist`. If the signal aborts first, the waiter is
 * passed to `withdraw` and the promise rejects with the signal's reason.
 */
export function cancellable<T>(
  signal: CancelSignal | undefined,
  enlist: (waiter: Waiter<T>) => void,
  withdraw: (waiter: Waiter<T>) => void,
): Promise<T> {
  if (signal === undefined) {
    return new Promise((resolve, reject) => enlist({ resolve, reject }));
  }
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(abortReason(signal));
      return;
    }
    const onAbort = (): void => {
      signal.removeEventListener('abort', onAbort);
      withdraw(waiter);
      reject(abortReason(signal));
    };
    const waiter: Waiter<T> = {
      resolve(value) {
        signal.removeEventListener('abort', onAbort);
        resolve(value);
      },
      reject(error) {
        signal.removeEventListener('abort', onAbort);
        reject(error);
      },
    };
    signal.addEventListener('abort', onAbort);
    enlist(waiter);
  });
}

function abortReason(signal: CancelSignal): unknown {
  return signal.reason ?? new VerbsError('EINTR', 'the wait was cancelled');
}
