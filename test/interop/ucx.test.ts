/** Programs with UCX in their process. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { PROGRAM_MS, patience } from '../support/patience.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { compileProgram } from './c-programs.ts';

const MAIN = join(repositoryRoot(), 'dist/daemon/cli/main.js');
const HOOK = 'UCX_MEM_MMAP_HOOK_MODE';

describeWith(['ucx'], 'a program that links UCX', () => {
  let program: string;

  beforeAll(() => {
    program = compileProgram('ucx-neighbour', ['-lucp', '-lucs']);
  });

  function run(variables: Readonly<Record<string, string>>) {
    const { [HOOK]: _own, ...environment } = process.env;
    const words = [MAIN, 'run', '--device', 'iwarp0', '--', program];
    const env = { ...environment, ...variables };
    return spawnSync('node', words, { encoding: 'utf8', env, timeout: patience(PROGRAM_MS) });
  }

  it.each(['', 'bistro', 'none'])('creates a completion queue with the hook "%s"', (mode) => {
    const { status, stdout } = run(mode === '' ? {} : { [HOOK]: mode });
    expect(status, stdout).toBe(0);
    expect(stdout).toMatch(/^\w+0: created\n$/);
  });
});
