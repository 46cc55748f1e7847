/** Long work that is done in small steps, a few per turn of the event loop, to delay nothing else. */

/**
 * Calls `step` with each item, up to `perTurn` in each turn, starting now. `soon` calls back in the next
 * turn. Returns undefined if all are done, else a promise of that, which rejects with what `step` throws.
 */
export function inSlices<T>(
  items: readonly T[],
  perTurn: number,
  soon: (run: () => void) => void,
  step: (item: T) => void,
): Promise<void> | undefined {
  let next = 0;
  const isMore = (): boolean => {
    const end = Math.min(items.length, next + perTurn);
    for (; next < end; next += 1) step(items[next] as T);
    return next < items.length;
  };
  if (!isMore()) return undefined;
  return new Promise((resolve, reject) => {
    const resume = (): void => {
      try {
        if (isMore()) soon(resume);
        else resolve();
      } catch (error) {
        reject(error);
      }
    };
    soon(resume);
  });
}
