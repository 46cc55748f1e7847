/**
 * Runs seeds until one breaks a rule: `node canary-run.js RULE SEEDS [CARRIER]`. Prints that seed, or nothing
 * if no seed breaks the rule. Skips seeds that break other rules: one bug may break several.
 */
import { CARRIERS } from './plan.ts';
import { BrokenRule } from './rules.ts';
import { run } from './run.ts';

const [rule, count, over] = process.argv.slice(2);
const carrier = CARRIERS.find((each) => each === over);
for (let seed = 1; seed <= Number(count); seed += 1) {
  try {
    await run(seed, carrier);
  } catch (error) {
    if (!(error instanceof BrokenRule) || error.rule !== rule) continue;
    console.log(seed);
    break;
  }
}
