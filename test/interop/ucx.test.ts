/** Programs with UCX in their process. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { PROGRAM_MS, patience } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';

const MAIN = join(repositoryRoot(), 'dist/daemon/cli/main.js');
const SOURCE = join(repositoryRoot(), 'test/interop/programs/ucx-neighbour.c');
const HOOK = 'UCX_MEM_MMAP_HOOK_MODE';

describeWith(['ucx'], 'a program that links UCX', () => {
  let directory: string;

  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'iwarpd-ucx-'));
    const words = [SOURCE, '-o', join(directory, 'program'), '-lucp', '-lucs', '-libverbs'];
    const { status, stderr } = spawnSync('gcc', words, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
  });
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  function run(variables: Readonly<Record<string, string>>) {
    const { [HOOK]: _own, ...environment } = process.env;
    const words = [MAIN, 'run', '--device', 'iwarp0', '--', join(directory, 'program')];
    const env = { ...environment, ...variables };
    return spawnSync('node', words, { encoding: 'utf8', env, timeout: patience(PROGRAM_MS) });
  }

  it.each(['', 'bistro', 'none'])('creates a completion queue with the hook "%s"', (mode) => {
    const { status, stdout } = run(mode === '' ? {} : { [HOOK]: mode });
    expect(status, stdout).toBe(0);
    expect(stdout).toMatch(/^\w+0: created\n$/);
  });
});
