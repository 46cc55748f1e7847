/** DDP over associations whose messages overtake each other keeps every rule. */
import { describe, expect, it } from 'vitest';
import { runSessions } from './sessions-run.ts';

const SEEDS = 100;

describe('DDP stream sessions on an association whose messages overtake each other', () => {
  it(`keep every rule for ${SEEDS} seeds`, () => {
    let sessions = 0;
    let messages = 0;
    let heldMost = 0;
    const fates = new Set<string>();
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      try {
        const result = runSessions(seed);
        sessions += result.sessions;
        messages += result.messages;
        heldMost = Math.max(heldMost, result.heldMost);
        for (const fate of result.fates) fates.add(fate);
      } catch (error) {
        throw new Error(`seed ${seed}`, { cause: error });
      }
    }
    // An idle simulation, or one without reordering, would also keep every rule.
    expect(sessions).toBeGreaterThan(2 * SEEDS);
    expect(messages).toBeGreaterThan(50 * SEEDS);
    expect(heldMost).toBeGreaterThan(10);
    expect(fates.size).toBe(6);
  });
});
