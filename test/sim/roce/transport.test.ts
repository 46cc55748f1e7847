/** Reliable transports over bad networks keep every rule. */
import { describe, expect, it } from 'vitest';
import { runTransports } from './transport-run.ts';

const SEEDS = 400;

describe('two reliable transports on a network that loses, repeats, reorders and delays', () => {
  it.each([
    ['packets', 0],
    ['packets that stand for up to two or more', 4096],
    ['whole messages', 65_536],
  ])(`keep every rule for ${SEEDS} seeds with %s`, (_name, wholeBytes) => {
    let completions = 0;
    let timeouts = 0;
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      try {
        const result = runTransports(seed, wholeBytes);
        completions += result.completions;
        timeouts += result.timeouts;
      } catch (error) {
        throw new Error(`seed ${seed}`, { cause: error });
      }
    }
    // An idle simulation, or one of a good network, would also keep every rule.
    expect(completions).toBeGreaterThan(10 * SEEDS);
    expect(timeouts).toBeGreaterThan(SEEDS);
  });
});
