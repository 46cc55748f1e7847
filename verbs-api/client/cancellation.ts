/** Promises that wait for the device: they can be given up, and never go unhandled. */
import { VerbsError } from '../contract/errors.ts';
import type { CancelSignal } from '../contract/provider.ts';

/** The two ends of a waiting promise. */
export interface Waiter<T> {
  resolve(value: T): void;
  reject(error: unknown): void;
}

/**
 * Marks a promise as looked after: a wait that fails because the daemon went must not end a program
 * that has not yet come round to awaiting it. Whoever awaits the promise still gets the error.
 */
export function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

/** Throws what a cancelled call rejects with: the signal's reason, or EINTR without one. */
export function throwIfAborted(signal: CancelSignal | undefined): void {
  if (signal?.aborted === true) throw abortReason(signal);
}

/**
 * A promise that `enlist` hands on as a waiter. When the signal aborts first, the waiter is taken
 * back with `withdraw` and the promise rejects with the signal's reason.
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
