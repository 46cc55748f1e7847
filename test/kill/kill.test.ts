import { randomInt } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { patience } from '../support/patience.ts';
import { missingPackages } from '../support/prerequisites.ts';
import { Campaign, type Load } from './campaign.ts';

/** `IWARPD_KILL_ROUNDS` and `IWARPD_KILL_SEED` override these defaults. */
const ROUNDS = Number(process.env['IWARPD_KILL_ROUNDS'] ?? 30);
const SEED = Number(process.env['IWARPD_KILL_SEED'] ?? randomInt(2 ** 31));
const ROUND_LIMIT_MS = 20_000;

const missing = missingPackages('rdma-programs');
const loads: Load[] =
  missing.length === 0 ? ['typescript', 'rping', 'ib_write_bw'] : ['typescript'];
const without = missing.length === 0 ? '' : `, without programs: missing ${missing.join(' ')}`;

describe(`kill -9 of clients, daemons and peers (seed ${SEED}${without})`, () => {
  const campaign = new Campaign(SEED, loads);

  beforeAll(() => campaign.start());

  afterAll(() => campaign.stop());

  it(
    `flushes the other end, leaves nothing behind and loses no completed Send in ${ROUNDS} rounds`,
    async () => {
      for (let round = 0; round < ROUNDS; round++) await campaign.round();
      expect(campaign.tally.rounds).toBe(ROUNDS);
      expect(campaign.tally.sends).toBeGreaterThan(ROUNDS);
    },
    patience(ROUNDS * ROUND_LIMIT_MS),
  );
});
