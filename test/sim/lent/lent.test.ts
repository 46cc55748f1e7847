/** Programs on iWARP devices whose agents copy payload straight into memory: every rule holds for many seeds. */
import { describe, expect, it } from 'vitest';
import { commitSeed } from '../seeds.ts';
import { runLent } from './lent-run.ts';

const FIXED_SEEDS = 150;
const DAILY_SEEDS = 150;

async function explore(first: number, count: number): Promise<[done: number, failures: number]> {
  let completions = 0;
  let failures = 0;
  for (let seed = first; seed < first + count; seed += 1) {
    try {
      const result = await runLent(seed);
      completions += result.completions;
      failures += result.failures;
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  }
  return [completions, failures];
}

describe('iWARP devices of one host whose programs copy for each other', () => {
  it(`keep every rule for the first ${FIXED_SEEDS} seeds`, async () => {
    const [completions, failures] = await explore(1, FIXED_SEEDS);
    // An idle simulation, or one without lost memory, would also keep every rule.
    expect(completions).toBeGreaterThan(50 * FIXED_SEEDS);
    expect(failures).toBeGreaterThan(FIXED_SEEDS / 4);
  });

  const first = commitSeed();
  it(`keep every rule for ${DAILY_SEEDS} seeds that start at the commit's hash, ${first}`, async () => {
    await explore(first, DAILY_SEEDS);
  });

  it('repeat a run exactly for the same seed', async () => {
    for (const seed of [1, 2, 3]) expect(await runLent(seed)).toEqual(await runLent(seed));
    expect((await runLent(1)).trace).not.toBe((await runLent(2)).trace);
  });
});
