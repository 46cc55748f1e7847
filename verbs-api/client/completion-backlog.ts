/** Completion queues as loops see them: one completion after the other, and none lost. */
import type { WC } from '../contract/completion.ts';
import { VerbsError } from '../contract/errors.ts';

/** Completions of a `poll` or `wait` that does not say how many. */
export const DEFAULT_BATCH = 16;

/** The queue behind an iterator. */
export interface CompletionSource {
  /** False once it is closed. */
  readonly usable: boolean;
  wait(): Promise<WC[]>;
}

/** Completions that an iterator took and did not hand out; they come first in the next poll. */
export class CompletionBacklog {
  #kept: WC[] = [];

  /** At most `max` completions: those kept, then what `take` finds. */
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
        // The loop was left early: what it did not see waits for the next poll.
        if (batch.length > 0) this.#kept = [...batch, ...this.#kept];
      }
    }
  }
}

/** The size of a batch to wait for. EINVAL unless it is a count above 0. */
export function batchSize(max: number = DEFAULT_BATCH): number {
  if (!Number.isSafeInteger(max) || max < 1) throw new VerbsError('EINVAL', 'max is at least 1');
  return max;
}
