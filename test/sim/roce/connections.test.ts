/** Communication managers over bad networks agree, and leave nothing. */
import { describe, expect, it } from 'vitest';
import { runConnections } from './connections-run.ts';

const SEEDS = 400;
/** Seeds in which a request was reported again, because its rejection was lost again and again. */
const ONCE_FAILED = [1550, 1809];

describe('two communication managers on a network that loses, repeats, reorders and delays', () => {
  it(`keep every rule for ${SEEDS} seeds`, () => {
    const total = { established: 0, rejected: 0, services: 0, repeats: 0 };
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      try {
        const result = runConnections(seed);
        for (const name of Object.keys(total) as (keyof typeof total)[]) {
          total[name] += result[name];
        }
      } catch (error) {
        throw new Error(`seed ${seed}`, { cause: error });
      }
    }
    // An idle simulation, or one of a good network, would also keep every rule.
    expect(total.established).toBeGreaterThan(5 * SEEDS);
    expect(total.rejected).toBeGreaterThan(SEEDS);
    expect(total.services).toBeGreaterThan(SEEDS);
    expect(total.repeats).toBeGreaterThan(5 * SEEDS);
  });

  it.each(ONCE_FAILED)('keep every rule for seed %d, which once failed', (seed) => {
    runConnections(seed);
  });
});
