/**
 * Runs seeds until one breaks a rule: `node canary-run.js RULE SEEDS`. Prints that seed, or nothing
 * if no seed breaks the rule. Skips seeds that break other rules: one bug may break several.
 */

import { BrokenTransportRule, runTransports } from './transport-run.ts';

const [rule, count] = process.argv.slice(2);
for (let seed = 1; seed <= Number(count); seed += 1) {
  try {
    runTransports(seed);
  } catch (error) {
    if (!(error instanceof BrokenTransportRule) || error.rule !== rule) continue;
    console.log(seed);
    break;
  }
}
