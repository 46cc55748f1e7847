/** Many jobs at once on a machine with few cores: each has its own devices, and leaks nothing. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { commandWords } from '../support/cli-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** As many as `make -j40` starts. */
const JOBS = 40;
/**
 * A pair of programs; all jobs use the same addresses and port. To wait, it reads what the server printed, to the
 * file `$0`: forty jobs that ask for listeners again and again would keep two processors busy for a minute.
 */
const PAIR = `stdbuf -oL rping -s -d -a 127.0.0.1 -C 3 >"$0" &
  until grep -q rdma_listen "$0"; do sleep 0.2; done
  rping -c -a 127.0.0.1 -C 3 && wait`;

let directory: string;

beforeEach(() => {
  directory = temporaryFolder();
});

/** Starts all jobs at once; every one ends with status 0, and their temporary directory is empty. */
async function succeed(jobs: readonly (readonly string[])[]): Promise<void> {
  const programs = jobs.map((words) => new ShimProgram(words, { TMPDIR: directory }));
  const ends = await Promise.all(programs.map((program) => program.end()));
  expect(ends.filter(({ status }) => status !== 0)).toEqual([]);
  expect(readdirSync(directory)).toEqual([]);
}

describeWith(['rdma-programs'], `${JOBS} runs at once`, () => {
  it('have the same addresses and ports, and leave nothing behind', async () => {
    const printed = temporaryFolder();
    const run = commandWords(['run', '--fresh', '--expect-clean', '--', 'sh', '-c', PAIR]);
    await succeed(Array.from({ length: JOBS }, (_, index) => [...run, join(printed, `${index}`)]));
  });
});

describe(`${JOBS} TypeScript programs at once`, () => {
  it('have the same addresses and ports, and leave nothing behind', async () => {
    const path = join(repositoryRoot(), 'dist/test/interop/one-of-many.js');
    if (!existsSync(path)) throw new Error('dist/ lacks one-of-many: run npm run build');
    const kinds = ['daemon', 'embedded'];
    const jobs = Array.from({ length: JOBS }, (_, index) => kinds[index % kinds.length] ?? '');
    await succeed(jobs.map((kind) => [process.execPath, path, kind]));
  });
});
