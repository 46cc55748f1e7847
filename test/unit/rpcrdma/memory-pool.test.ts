import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isVerbsError } from '#contract/verbs/errors';
import type { PD, Provider } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { MemoryPool } from '#verbs-api/rpcrdma/memory-pool';

const MIB = 1 << 20;

describe('a pool', () => {
  let provider: Provider;
  let pd: PD;

  beforeEach(async () => {
    provider = await createEmbedded();
    pd = await (await provider.open()).allocPD();
  });
  afterEach(() => provider.close());

  it('hands out memory of the requested length, and the same again', async () => {
    const pool = new MemoryPool(pd, 10 * MIB);
    const first = await pool.take(5000);
    expect(first.bytes).toHaveLength(5000);
    pool.giveBack(first);
    const second = pool.take(6000);
    // Free memory is available at once.
    expect(second).not.toBeInstanceOf(Promise);
    expect((await second).mr).toBe(first.mr);
    expect(await pool.take(6000)).not.toMatchObject({ mr: first.mr });
  });

  it('wastes at most a quarter, beyond a page', async () => {
    const pool = new MemoryPool(pd, 1 << 30);
    for (const lengthBytes of [1, 4096, 4097, 100_000, MIB, MIB + 1, 3 * MIB + 5]) {
      const { mr } = await pool.take(lengthBytes);
      expect(mr.length).toBeGreaterThanOrEqual(lengthBytes);
      expect(mr.length).toBeLessThanOrEqual(lengthBytes * 1.25 + 4096);
    }
  });

  it('hands out no more than its limit', async () => {
    const pool = new MemoryPool(pd, 4 * MIB);
    const taken = await Promise.all([pool.take(2 * MIB), pool.take(2 * MIB)]);
    expect(() => pool.take(1)).toThrow(expect.toSatisfy((error) => isVerbsError(error)));
    const [first] = taken;
    if (first) pool.giveBack(first);
    expect((await pool.take(MIB)).bytes).toHaveLength(MIB);
  });

  it('keeps 16 MiB of unused memory, and returns the rest to the device', async () => {
    const pool = new MemoryPool(pd, 64 * MIB);
    const taken = await Promise.all(Array.from({ length: 20 }, () => pool.take(MIB)));
    for (const each of taken) pool.giveBack(each);
    const again = Array.from({ length: 20 }, () => pool.take(MIB));
    expect(again.filter((each) => !(each instanceof Promise))).toHaveLength(16);
    await Promise.all(again);
  });
});
