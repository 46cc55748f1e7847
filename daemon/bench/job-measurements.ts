/** The overhead of `run --fresh` for each of many jobs, compared with plain Node. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { CommandFailure } from '../console/failure.ts';
import type { Measurement } from './measurement.ts';
import { programObstacle } from './program-pair.ts';

/** Time for a process to load all modules that it loads at startup. */
const SETTLE_MS = 2000;
const MIB_IN_KIB = 1024;

const MAIN = fileURLToPath(new URL('../cli/main.js', import.meta.url));

export const JOB_MEASUREMENTS: readonly Measurement[] = [
  {
    name: 'job-time',
    title: '`iwarpd run --fresh -- true`, from its start to its end',
    unit: 'ms',
    better: 'lower',
    target: { kind: 'ratio', limit: 15 },
    baselines: [{ title: 'node -e 0', run: async () => await lifetime(['-e', '0']), aim: 8 }],
    run: async () => await lifetime([MAIN, 'run', '--fresh', '--', 'true']),
    obstacle: () => programObstacle('true', 'coreutils'),
    warmUps: 1,
  },
  {
    name: 'job-memory',
    title: '`iwarpd run --fresh` while its program waits, its share of pages in common',
    unit: 'MiB',
    better: 'lower',
    target: { kind: 'value', limit: 80 },
    aim: 48,
    baselines: [
      {
        title: 'node that waits',
        run: async () => await memory(['-e', 'console.log(); process.stdin.resume()']),
      },
    ],
    run: async () => await memory([MAIN, 'run', '--fresh', '--', 'sh', '-c', 'echo; exec cat']),
    obstacle: () => programObstacle('cat', 'coreutils'),
  },
];

/** Lifetime of a Node process, in milliseconds. */
async function lifetime(words: readonly string[]): Promise<number> {
  const began = performance.now();
  await ended(spawn(process.execPath, words, { stdio: ['ignore', 'ignore', 'inherit'] }), words);
  return performance.now() - began;
}

/**
 * Memory in MiB of a Node process that has printed something and waits for the end of its input. A page
 * shared by several processes counts in part for each (PSS), as in the memory of many jobs.
 */
async function memory(words: readonly string[]): Promise<number> {
  const child = spawn(process.execPath, words, { stdio: ['pipe', 'pipe', 'inherit'] });
  const end = ended(child, words);
  await Promise.race([once(child.stdout, 'data'), end]);
  await sleep(SETTLE_MS);
  const rollup = readFileSync(`/proc/${child.pid}/smaps_rollup`, 'utf8');
  child.stdin.end();
  await end;
  return Number(/^Pss:\s*(\d+) kB/m.exec(rollup)?.[1] ?? Number.NaN) / MIB_IN_KIB;
}

/** Waits for a process; CommandFailure unless it exits with status 0. */
async function ended(child: ChildProcess, words: readonly string[]): Promise<void> {
  const [status] = await once(child, 'exit');
  if (status !== 0) throw new CommandFailure(`node ${words.join(' ')}: ended with ${status}`);
}
