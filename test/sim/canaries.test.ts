/** Puts known bugs back, one at a time: the simulation must find each and name the broken rule. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { patience } from '../support/patience.ts';
import { CANARIES } from './canaries.ts';
import { Mutant } from './mutant.ts';
import { PACKET_CANARIES } from './packets/packet-canaries.ts';

const SEEDS_MAX = 1000;
const TIMEOUT_MS = 600_000;

let mutant: Mutant;

beforeAll(() => {
  mutant = new Mutant();
}, patience(TIMEOUT_MS));

afterAll(() => mutant.remove());

describe('simulation canaries', () => {
  for (const { bug, rule, over = 'tcp', edits } of [...CANARIES, ...PACKET_CANARIES]) {
    it(`finds the bug: ${bug}`, { timeout: patience(TIMEOUT_MS) }, async () => {
      const script = 'test/sim/canary-run.js';
      const seed = await mutant.find(edits, script, rule, SEEDS_MAX, [over]);
      expect(seed, `a seed up to ${SEEDS_MAX} that breaks '${rule}'`).toBeGreaterThan(0);
    });
  }
});
