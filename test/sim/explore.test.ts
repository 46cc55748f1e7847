/**
 * Deterministic simulation: two NICs, up to three connections, random work, random delivery, in
 * every third run faults. `IWARPD_SIM_SEED=n npx vitest run test/sim` replays one seed;
 * `IWARPD_SIM_RUNS=n` explores more of them.
 */
import { describe, expect, it } from 'vitest';
import { run } from './run.ts';

const replay = process.env['IWARPD_SIM_SEED'];
const first = replay === undefined ? 1 : Number(replay);
const count = replay === undefined ? Number(process.env['IWARPD_SIM_RUNS'] ?? 60) : 1;

describe('two NICs over a simulated link', () => {
  it(`keep every rule in ${count} runs from seed ${first} on`, { timeout: 120_000 }, () => {
    let completions = 0;
    let faults = 0;
    for (let seed = first; seed < first + count; seed++) {
      try {
        const result = run(seed);
        completions += result.completions;
        faults += result.faults;
      } catch (error) {
        throw new Error(`replay with IWARPD_SIM_SEED=${seed} npx vitest run test/sim`, {
          cause: error,
        });
      }
    }
    expect(completions).toBeGreaterThan(count * 20);
    if (replay === undefined) expect(faults).toBeGreaterThan(0);
  });

  it('do the same again for the same seed', () => {
    expect(run(first)).toEqual(run(first));
    expect(run(first).trace).not.toBe(run(first + 1).trace);
  });
});
