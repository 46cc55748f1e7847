/**
 * Simulates whole hosts: a fixed set of seeds, and a set that changes with each commit. README.md
 * describes a run and how to replay it.
 */
import { describe, expect, it } from 'vitest';
import { NETWORKS, runOver, type SimulatedOver } from './over.ts';
import { commitSeed, replayCommand } from './seeds.ts';

const FIXED_SEEDS = 600;
const DAILY_SEEDS = 600;
/**
 * Seeds that found a bug: the first in the simulation; the last two in the closing of a faulty link
 * and in completions that wait for memory; the others in the flush of the send queue.
 */
const ONCE_FAILED = [
  501_215, 20_105_241, 20_560_906, 20_138_328, 20_152_827, 20_186_526, 20_862_129, 20_000_549,
  192_760_742,
];
/** The number of seeds over SCTP, where a run costs as much. */
const FIXED_SCTP_SEEDS = 250;
const DAILY_SCTP_SEEDS = 250;
/**
 * Seeds that found a bug: the first in the session; the second and the last three in the
 * simulation; the sixth in a session after a fault; the others in sessions that are cut off while
 * others continue.
 */
const ONCE_FAILED_SCTP = [
  663, 2502, 1898, 200_480, 196_363_924, 70_002_500, 192_762_568, 81_008_165, 81_069_132,
];
/** The number of seeds over RoCE, where a run costs as much. */
const FIXED_ROCE_SEEDS = 250;
const DAILY_ROCE_SEEDS = 250;
/**
 * Seeds that found a bug: the first in the responder, the last in the simulation, the others in the
 * connection manager.
 */
const ONCE_FAILED_ROCE = [20_421, 31_846, 43_839, 112_270, 406_084, 753_300, 767_763];

async function explore(
  first: number,
  count: number,
  over: SimulatedOver = 'tcp',
): Promise<{ completions: number; established: number }> {
  let completions = 0;
  let established = 0;
  for (let seed = first; seed < first + count; seed += 1) {
    try {
      const result = await runOver(seed, over);
      completions += result.completions;
      established += result.established;
    } catch (error) {
      throw new Error(`seed ${seed}; replay it: ${replayCommand(seed, over)}`, { cause: error });
    }
  }
  return { completions, established };
}

describe('whole hosts on a simulated network', () => {
  it(`keep every rule for the first ${FIXED_SEEDS} seeds`, async () => {
    const { completions, established } = await explore(1, FIXED_SEEDS);
    // An idle simulation would also keep every rule.
    expect(established).toBeGreaterThan(FIXED_SEEDS);
    expect(completions).toBeGreaterThan(10 * FIXED_SEEDS);
  });

  const first = commitSeed();
  it(`keep every rule for ${DAILY_SEEDS} seeds that start at the commit's hash, ${first}`, async () => {
    await explore(first, DAILY_SEEDS);
  });

  it(`keep every rule over SCTP for the first ${FIXED_SCTP_SEEDS} seeds`, async () => {
    const { completions, established } = await explore(1, FIXED_SCTP_SEEDS, 'sctp');
    expect(established).toBeGreaterThan(FIXED_SCTP_SEEDS);
    expect(completions).toBeGreaterThan(10 * FIXED_SCTP_SEEDS);
  });

  it(`keep every rule over SCTP for ${DAILY_SCTP_SEEDS} seeds from ${first}`, async () => {
    await explore(first, DAILY_SCTP_SEEDS, 'sctp');
  });

  it(`keep every rule over RoCE for the first ${FIXED_ROCE_SEEDS} seeds`, async () => {
    const { completions, established } = await explore(1, FIXED_ROCE_SEEDS, 'roce');
    expect(established).toBeGreaterThan(FIXED_ROCE_SEEDS);
    expect(completions).toBeGreaterThan(10 * FIXED_ROCE_SEEDS);
  });

  it(`keep every rule over RoCE for ${DAILY_ROCE_SEEDS} seeds from ${first}`, async () => {
    await explore(first, DAILY_ROCE_SEEDS, 'roce');
  });

  it('keep every rule for seeds that once failed', async () => {
    for (const seed of ONCE_FAILED) await explore(seed, 1);
    for (const seed of ONCE_FAILED_SCTP) await explore(seed, 1, 'sctp');
    for (const seed of ONCE_FAILED_ROCE) await explore(seed, 1, 'roce');
  });

  it('repeat a run exactly for the same seed', async () => {
    for (const seed of [1, 2, 3, 26]) {
      for (const over of NETWORKS) {
        expect(await runOver(seed, over)).toEqual(await runOver(seed, over));
      }
    }
    expect((await runOver(1, 'tcp')).trace).not.toBe((await runOver(2, 'tcp')).trace);
  });
});
