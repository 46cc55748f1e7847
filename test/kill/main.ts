/** `npm run kill -- --rounds 1000`: runs the campaign for any number of rounds. See README.md. */
import { randomInt } from 'node:crypto';
import { parseArgs } from 'node:util';
import { missingPackages } from '../support/prerequisites.ts';
import { Campaign, describeRound, type Load, WIRES } from './campaign.ts';

const PROGRESS_ROUNDS = 50;

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '1000' },
    seed: { type: 'string' },
    wire: { type: 'string', default: 'tcp' },
  },
});
const wire = WIRES.find((name) => name === values.wire);
if (wire === undefined) throw new Error(`--wire is one of ${WIRES.join(', ')}`);
const rounds = Number(values.rounds);
const seed = Number(values.seed ?? randomInt(2 ** 31));
const loads: Load[] = ['typescript'];
if (missingPackages('rdma-programs').length === 0) loads.push('rping', 'ib_write_bw');

const campaign = new Campaign(seed, loads, wire);
console.log(`seed ${seed}, ${rounds} rounds of ${loads.join(', ')} over ${wire}`);
const from = Date.now();
let failure: unknown;
try {
  await campaign.start();
  for (let round = 1; round <= rounds; round++) {
    const played = await campaign.round();
    if (round % PROGRESS_ROUNDS !== 0 && round !== rounds) continue;
    const seconds = Math.round((Date.now() - from) / 1000);
    console.log(`${seconds} s: ${describeRound(played)} ${JSON.stringify(campaign.tally)}`);
  }
} catch (error) {
  failure = error;
}
await campaign.stop();
if (failure !== undefined) {
  console.error(failure instanceof Error ? failure.message : failure);
  console.error(`to repeat: npm run kill -- --rounds ${rounds} --seed ${seed} --wire ${wire}`);
}
process.exit(failure === undefined ? 0 : 1);
