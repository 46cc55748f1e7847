/** Requests that wait for the next refusal. */
import type { RefusalFilter, RefusalList } from '#contract/protocol/refusals';
import { VerbsError } from '#contract/verbs/errors';
import type { Refusals } from '../refusals/refusals.ts';

/**
 * The matching refusals; if there are none, waits up to `filter.waitMs` for the first. Rejects with
 * EBUSY if too many requests wait.
 */
export async function listRefusals(
  refusals: Refusals,
  filter: RefusalFilter,
  uid: number | undefined,
): Promise<RefusalList> {
  const now = refusals.list(filter, uid);
  const { waitMs = 0 } = filter;
  if (now.refusals.length > 0 || waitMs === 0) return now;
  let stop: (() => void) | undefined;
  let timer: NodeJS.Timeout | undefined;
  try {
    await new Promise<void>((resolve) => {
      timer = setTimeout(resolve, waitMs);
      stop = refusals.watch(({ number }) => {
        if (refusals.list({ ...filter, after: number - 1 }, uid).refusals.length > 0) resolve();
      });
      if (stop === undefined) throw new VerbsError('EBUSY', 'too many requests wait for refusals');
    });
  } finally {
    clearTimeout(timer);
    stop?.();
  }
  return refusals.list(filter, uid);
}
