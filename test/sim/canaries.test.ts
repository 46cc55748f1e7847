/** Puts known bugs back, one at a time: the simulation must find each and name the broken rule. */
import { afterAll, beforeAll, describe, it } from 'vitest';
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
  for (const canary of [...CANARIES, ...PACKET_CANARIES]) {
    const { bug, over = 'tcp' } = canary;
    it(`finds the bug: ${bug}`, { timeout: patience(TIMEOUT_MS) }, async () => {
      await mutant.expectFound(canary, over, SEEDS_MAX);
    });
  }
});
