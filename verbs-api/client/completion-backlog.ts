/** Hands out completions one at a time to loops, without losing any. */
import type { WC } from '#contract/verbs/completion';
import type { CancelSignal, CQWaitOptions } from '#contract/verbs/provider';
import { checkCall } from '#contract/verbs/signatures';
import { within } from './deadline.ts';

/** Batch size of `poll` and `wait` if not given. */
export const DEFAULT_BATCH = 16;

/** The queue that an iterator reads. */
interface CompletionSource {
  /** False once it is closed. */
  readonly usable: boolean;
  wait(): Promise<WC[]>;
}

/** Completions that an iterator took but did not hand out; the next poll returns them first. */
export class CompletionBacklog {
  #kept: WC[] = [];

  /** At most `max` completions: kept ones first, then those that `take` finds. */
  poll(max: number, take: (max: number) => WC[]): WC[] {
    if (this.#kept.length === 0) return take(max);
    const kept = this.#kept.splice(0, max);
    return kept.length < max ? [...kept, ...take(max - kept.length)] : kept;
  }

  /** Hands the completions of `queue` out one by one. Ends when the queue is closed. */
  async *each(queue: CompletionSource): AsyncGenerator<WC, void, undefined> {
    for (;;) {
      let batch: WC[];
      try {
        batch = await queue.wait();
      } catch (error) {
        if (!queue.usable) return;
        throw error;
      }
      try {
        for (let wc = batch.shift(); wc !== undefined; wc = batch.shift()) yield wc;
      } finally {
        // The loop was left early: keep the rest for the next poll.
        if (batch.length > 0) this.#kept = [...batch, ...this.#kept];
      }
    }
  }
}

/** EINVAL unless `max` completions can be polled. */
export function checkPoll(max: number): void {
  if (!Number.isSafeInteger(max) || max < 0) checkCall.poll(max);
}

/** `CQ.wait` with these options; `wait` takes the batch size and the signal. */
export function waitForBatch(
  options: CQWaitOptions | undefined,
  wait: (max: number, signal: CancelSignal | undefined) => Promise<WC[]>,
): Promise<WC[]> {
  if (options === undefined) return wait(DEFAULT_BATCH, undefined);
  if (isBatchSize(options)) return wait(options.max, undefined);
  try {
    checkCall.wait(options);
  } catch (error) {
    return Promise.reject(error);
  }
  const { max = DEFAULT_BATCH, timeoutMs } = options;
  if (timeoutMs === undefined) return wait(max, options.signal);
  return within(options, 'completion', (signal) => wait(max, signal));
}

/** True for a valid batch size and nothing else, which loops pass for each batch: the full check is slow. */
function isBatchSize(options: CQWaitOptions): options is CQWaitOptions & { readonly max: number } {
  for (const name in options) if (name !== 'max') return false;
  const max = options?.max;
  return max !== undefined && Number.isSafeInteger(max) && max >= 1;
}
