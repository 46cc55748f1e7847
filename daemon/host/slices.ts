/** Long work that is done a few steps in each turn of the event loop, so that it delays nothing else. */

/**
 * Calls `step` with each item, up to `perTurn` of them in each turn, the first ones now. `soon` calls back in
 * the next turn. Returns undefined if all are done; else the promise that they will be, which rejects with
 * what `step` throws.
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
    const goOn = (): void => {
      try {
        if (isMore()) soon(goOn);
        else resolve();
      } catch (error) {
        reject(error);
      }
    };
    soon(goOn);
  });
}
