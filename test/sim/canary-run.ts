/**
 * Runs seeds until one breaks a rule: `node canary-run.js RULE SEEDS [NETWORK]`. Prints that seed, or nothing
 * if no seed breaks the rule. Skips seeds that break other rules: one bug may break several.
 */
import { NETWORKS, runOver } from './over.ts';
import { BrokenRule } from './rules.ts';

const [rule, count, name] = process.argv.slice(2);
const over = NETWORKS.find((each) => each === name) ?? 'tcp';
for (let seed = 1; seed <= Number(count); seed += 1) {
  try {
    await runOver(seed, over);
  } catch (error) {
    if (!(error instanceof BrokenRule) || error.rule !== rule) continue;
    console.log(seed);
    break;
  }
}
