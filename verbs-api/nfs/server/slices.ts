/** Long work in slices, between which the event loop serves others. */

/** Steps without a pause: some milliseconds of work at most. */
export const SLICE_STEPS = 4096;

/** Resolves in the next turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Calls `step` with each number below `count`. Work of one slice is done at once. */
export async function inSlices(count: number, step: (at: number) => void): Promise<void> {
  for (let at = 0; at < count; at += 1) {
    if (at > 0 && at % SLICE_STEPS === 0) await nextTurn();
    step(at);
  }
}

/**
 * The numbers below `count` in the order of `compare`, after `prepare` was called with each: sorts
 * each slice, then merges neighbours until one is left.
 */
export async function sortedInSlices(
  count: number,
  prepare: (at: number) => void,
  compare: (left: number, right: number) => number,
): Promise<Uint32Array> {
  let from = new Uint32Array(count);
  for (let start = 0; start < count; start += SLICE_STEPS) {
    if (start > 0) await nextTurn();
    const end = Math.min(start + SLICE_STEPS, count);
    for (let at = start; at < end; at += 1) {
      from[at] = at;
      prepare(at);
    }
    from.subarray(start, end).sort(compare);
  }
  let to = new Uint32Array(count);
  for (let width = SLICE_STEPS; width < count; width *= 2) {
    await mergeRuns(from, to, width, compare);
    [from, to] = [to, from];
  }
  return from;
}

/** Merges each two runs of `width` numbers of `from` into one of `to`. */
async function mergeRuns(
  from: Uint32Array,
  to: Uint32Array,
  width: number,
  compare: (left: number, right: number) => number,
): Promise<void> {
  let left = 0;
  let right = 0;
  let leftEnd = 0;
  let rightEnd = 0;
  await inSlices(from.length, (at) => {
    if (at === rightEnd) {
      left = at;
      leftEnd = Math.min(at + width, from.length);
      right = leftEnd;
      rightEnd = Math.min(at + 2 * width, from.length);
    }
    const one = from[left] ?? 0;
    const other = from[right] ?? 0;
    const takesLeft = left < leftEnd && (right === rightEnd || compare(one, other) <= 0);
    to[at] = takesLeft ? one : other;
    if (takesLeft) left += 1;
    else right += 1;
  });
}
