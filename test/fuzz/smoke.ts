/**
 * The targets in `npm test`: a bounded number of inputs for a fixed seed and for one that changes
 * with the commit, and each target's canary.
 */
import { execFileSync } from 'node:child_process';
import { hash32 } from '../support/draws.ts';
import { inputName, judgeBatch, replayCommand, runBatch } from './batch.ts';
import { repositoryRoot } from './corpus.ts';
import { targetsNamed } from './registry.ts';

const FIXED_SEED = 1;

/** The commit's seed, or the day's if the commit is unknown. */
function commitSeed(): number {
  try {
    const options = { cwd: repositoryRoot(), encoding: 'utf8', stdio: 'pipe' } as const;
    return hash32(execFileSync('git', ['rev-parse', 'HEAD'], options));
  } catch {
    return hash32(new Date().toISOString().slice(0, 10));
  }
}

/** Runs a target's smoke inputs. The error of a failure names the command that replays it. */
export async function smoke(name: string): Promise<void> {
  const [target] = targetsNamed([name]);
  if (target === undefined) throw new Error(`no target ${name}`);
  for (const seed of [FIXED_SEED, hash32(name, commitSeed())]) {
    for (let left = target.smokeInputs, batch = 0; left > 0; batch++) {
      const inputs = Math.min(left, target.batchInputs);
      const { finding } = await judgeBatch(target, seed + batch, { inputs });
      left -= inputs;
      if (finding === undefined) continue;
      const replay = replayCommand(finding);
      throw new Error(`${inputName(finding)}: ${finding.text}\n${replay}\n${finding.stack}`);
    }
  }
}

/** Plants a target's defect. Throws if the oracles miss it. */
export async function bites(name: string): Promise<void> {
  const [target] = targetsNamed([name]);
  if (target === undefined) throw new Error(`no target ${name}`);
  const remove = target.canary.plant();
  try {
    const { finding } = await runBatch(target, FIXED_SEED, { inputs: target.canary.inputs });
    if (finding === undefined) throw new Error(`${name} missed its planted defect`);
  } finally {
    remove();
  }
}
