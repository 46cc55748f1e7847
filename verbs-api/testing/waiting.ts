/** Waits that always end: on success, a deadline, a signal, or the daemon's end. */
import { setTimeout as pause } from 'node:timers/promises';
import { FUNCTION, optional, options, refusalBy, TEXT, takes } from '#contract/verbs/arguments';
import { isVerbsError } from '#contract/verbs/errors';
import { LIMIT } from '#contract/verbs/signatures';

/** Shorter than the 5 s of a vitest test, whose own error would hide the cause. */
const DEFAULT_TIMEOUT_MS = 4000;
const POLL_INTERVAL_MS = 10;
/** A program notices a lost daemon before its process is reaped. */
const REAP_TIMEOUT_MS = 1000;
const LOST: ReadonlySet<string> = new Set(['EIO', 'ENODEV', 'ECONNREFUSED', 'ECONNRESET']);

/** How long to wait. */
export interface WaitOptions {
  /** Default 4000: vitest ends a test after 5000, and node:test never. */
  readonly timeoutMs?: number | undefined;
  /** Gives up earlier: the wait rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** The kind of `WaitOptions`. */
export const WAIT_OPTIONS = optional(options<WaitOptions>(LIMIT));

const checkWaitFor = takes('waitFor', { what: TEXT, condition: FUNCTION, options: WAIT_OPTIONS });

/** The wait reached its deadline. */
export class WaitTimeoutError extends Error {
  /** Stable code. */
  readonly code = 'ETIMEDOUT';

  override get name(): string {
    return 'WaitTimeoutError';
  }
}

/** Inputs of a wait besides its options. */
interface Wait extends WaitOptions {
  /** Aborts, with the error as its reason, when the daemon ends. */
  readonly daemonGone?: AbortSignal | undefined;
  /** The error of a wait that reached its deadline. */
  timedOut(timeoutMs: number): Error | Promise<Error>;
}

/** Runs `body` until it settles or the wait has to end; `body` must stop when its signal aborts. */
export async function within<T>(
  wait: Wait,
  body: (signal: AbortSignal) => T | Promise<T>,
): Promise<T> {
  const { timeoutMs = DEFAULT_TIMEOUT_MS, signal, daemonGone } = wait;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), timeoutMs);
  const others = [signal, daemonGone].filter((each) => each !== undefined);
  const ending = AbortSignal.any([late.signal, ...others]);
  try {
    return await unlessAborted(ending, Promise.resolve(body(ending)));
  } catch (error) {
    if (late.signal.aborted && ending.reason === late.signal.reason) {
      throw await wait.timedOut(timeoutMs);
    }
    throw await causeOf(error, daemonGone);
  } finally {
    clearTimeout(timer);
    // Ends what `body` is still waiting for.
    late.abort();
  }
}

/** The result of `waitFor`: a truthy result of the condition. */
export type Truthy<T> = Exclude<T, false | undefined | null | 0 | ''>;

/**
 * Waits until `condition` returns a truthy value, and resolves with it. Calls `condition` every 10
 * ms, never concurrently; an error that it throws ends the wait. Rejects with `WaitTimeoutError`,
 * which names `what`, or with the signal's reason.
 */
export function waitFor<T>(
  what: string,
  condition: () => T | Promise<T>,
  options: WaitOptions = {},
): Promise<Truthy<T>> {
  const refused = refusalBy(checkWaitFor, what, condition, options);
  if (refused !== undefined) return Promise.reject(refused);
  return waitUnlessGone(() => what, condition, options, undefined);
}

/** Like `waitFor`, while the daemon runs; `what` may include the last value. */
export function waitUnlessGone<T>(
  what: () => string,
  condition: () => T | Promise<T>,
  options: WaitOptions,
  daemonGone: AbortSignal | undefined,
): Promise<Truthy<T>> {
  const timedOut = (timeoutMs: number): Error =>
    new WaitTimeoutError(`waited ${timeoutMs} ms for ${what()}`);
  return within({ ...options, daemonGone, timedOut }, async (signal) => {
    for (;;) {
      const value = await condition();
      if (isTrue(value)) return value;
      await pause(POLL_INTERVAL_MS, undefined, { signal });
    }
  });
}

function isTrue<T>(value: T): value is Truthy<T> {
  return Boolean(value);
}

/** Settles as the promise does, or rejects with the signal's reason if that aborts first. */
function unlessAborted<T>(signal: AbortSignal, promise: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
  });
}

/** The daemon's end, with its output, if it caused the error. */
async function causeOf(error: unknown, daemonGone: AbortSignal | undefined): Promise<unknown> {
  if (daemonGone === undefined || !isVerbsError(error) || !LOST.has(error.code)) return error;
  const reaped = new Promise<unknown>((resolve) => {
    const timer = setTimeout(() => resolve(error), REAP_TIMEOUT_MS);
    const onEnd = (): void => {
      clearTimeout(timer);
      resolve(daemonGone.reason);
    };
    if (daemonGone.aborted) onEnd();
    else daemonGone.addEventListener('abort', onEnd, { once: true });
  });
  return await reaped;
}
