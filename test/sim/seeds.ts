/** Chooses seeds: each commit explores new ones. */
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { SimulatedOver } from './over.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const SEED_MAX = 2 ** 32;

/** The first seed for the checkout's commit; 1 outside a git checkout. */
export function commitSeed(): number {
  try {
    const hash = execFileSync('git', ['rev-parse', 'HEAD'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    return Number.parseInt(hash.slice(0, 7), 16) % SEED_MAX;
  } catch {
    return 1;
  }
}

/** The command that replays a seed and logs every step. */
export function replayCommand(seed: number, over: SimulatedOver): string {
  return `npm run sim -- --replay ${seed} --over ${over}`;
}
