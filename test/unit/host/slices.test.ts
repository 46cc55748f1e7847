/** Work that takes more than one turn. */
import { describe, expect, it } from 'vitest';
import { inSlices } from '#daemon/host/slices';

describe('work in slices', () => {
  it('does as much as one turn permits at once, the rest in later turns, in order', async () => {
    const later: (() => void)[] = [];
    const done: number[] = [];
    const items = Array.from({ length: 10 }, (_, index) => index);
    const all = inSlices(
      items,
      4,
      (run) => later.push(run),
      (item) => done.push(item),
    );
    expect(done).toEqual([0, 1, 2, 3]);
    later.shift()?.();
    expect(done).toHaveLength(8);
    later.shift()?.();
    expect(done).toEqual(items);
    expect(later).toEqual([]);
    await all;
  });

  it('needs no other turn for little work, and rejects with the error of a step', async () => {
    const later: (() => void)[] = [];
    const soon = (run: () => void): void => void later.push(run);
    expect(inSlices([1, 2], 2, soon, () => undefined)).toBeUndefined();
    const failing = inSlices([1, 2, 3], 2, soon, (item) => {
      if (item === 3) throw new Error('three');
    });
    later.shift()?.();
    await expect(failing).rejects.toThrow('three');
  });
});
