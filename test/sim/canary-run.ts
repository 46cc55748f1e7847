/**
 * Looks for a seed that breaks a rule: `node canary-run.js RUN RULE SEED MOST` tries SEED, then 1 to MOST. Prints the
 * first that does, or nothing. Skips seeds that break other rules: one bug may break several.
 */
import { BrokenRoceRule } from './roce/rules.ts';
import { BrokenRule } from './rules.ts';
import { loadRun } from './runs.ts';

const [name = '', rule, known, most] = process.argv.slice(2);
const run = await loadRun(name);

async function breaks(seed: number): Promise<boolean> {
  try {
    await run(seed);
    return false;
  } catch (error) {
    const broken = error instanceof BrokenRule || error instanceof BrokenRoceRule;
    return broken && error.rule === rule;
  }
}

let found = (await breaks(Number(known))) ? Number(known) : undefined;
for (let seed = 1; found === undefined && seed <= Number(most); seed += 1) {
  if (await breaks(seed)) found = seed;
}
if (found !== undefined) console.log(found);
