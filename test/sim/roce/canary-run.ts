/**
 * Runs seeds until one breaks a rule: `node canary-run.js RULE SEEDS [memory|connections]`. Prints that
 * seed, or nothing if no seed breaks the rule. Skips seeds that break other rules: one bug may break
 * several.
 */
import { runConnections } from './connections-run.ts';
import { runMemory } from './memory-run.ts';
import { BrokenRoceRule } from './rules.ts';
import { runTransports } from './transport-run.ts';

const RUNS: Readonly<Partial<Record<string, (seed: number) => unknown>>> = {
  memory: runMemory,
  connections: runConnections,
};

const [rule, count, what = ''] = process.argv.slice(2);
const run = RUNS[what] ?? runTransports;
for (let seed = 1; seed <= Number(count); seed += 1) {
  try {
    await run(seed);
  } catch (error) {
    if (!(error instanceof BrokenRoceRule) || error.rule !== rule) continue;
    console.log(seed);
    break;
  }
}
