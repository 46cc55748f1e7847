/** Debuggers and checkers, run as users run them: no false alarms, and every bug found. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { type Finished, runCommand } from '../support/cli-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const VALGRIND = ['valgrind', '-q', '--error-exitcode=9', '--leak-check=full'];
const CLEAN = { status: 0, stdout: '0 bytes are wrong\n', stderr: '' };

describeWith(['checkers'], 'a program that', () => {
  let folder: string;

  beforeAll(() => {
    folder = temporaryFolder();
    const programs = join(repositoryRoot(), 'test/interop/programs');
    const hello = join(repositoryRoot(), 'test/examples/c/hello.c');
    compile('checked', join(programs, 'checked.c'));
    compile('sanitized', join(programs, 'checked.c'), '-fsanitize=address,undefined');
    compile('hello', hello, '-lrdmacm');
  });

  function compile(name: string, source: string, ...options: readonly string[]): void {
    const words = ['-std=gnu11', '-Wall', '-Werror', '-O1', '-g', source, '-o', join(folder, name)];
    const all = [...words, ...options, '-libverbs'];
    const { status, stderr } = spawnSync('gcc', all, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
  }

  const run = (...words: readonly string[]): Promise<Finished> =>
    runCommand(['run', '--fresh', '--', ...words]);

  it('valgrind runs has no false alarms about received bytes or leaks', async () => {
    expect(await run(...VALGRIND, join(folder, 'checked'), 'roce0')).toMatchObject(CLEAN);
  });

  it('valgrind runs has no false alarms with rdma_cm at either end', async () => {
    const hello = [...VALGRIND, join(folder, 'hello')].join(' ');
    const ready = 'until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done';
    const both = `${hello} -s 127.0.0.1 & ${ready}; ${hello} 127.0.0.1 && wait $!`;
    const stdout = 'received 15 bytes: hello over RDMA\n';
    expect(await run('sh', '-c', both)).toMatchObject({ status: 0, stdout, stderr: '' });
  });

  it.each([
    ['overrun', /Invalid read of size 1/],
    ['leak', /64 bytes in 1 blocks are definitely lost/],
  ])('has a fault (%s) is reported by valgrind', async (fault, report) => {
    const { status, stderr } = await run(...VALGRIND, join(folder, 'checked'), 'roce0', fault);
    expect(stderr).toMatch(report);
    expect(status).toBe(9);
  });

  it('is built with sanitizers has no false alarms, started by run or by a shell', async () => {
    const program = join(folder, 'sanitized');
    expect(await run(program, 'roce0')).toMatchObject(CLEAN);
    expect(await run('sh', '-c', `${program} roce0; exit $?`)).toMatchObject(CLEAN);
  });

  it('is built with sanitizers and has a bug ends with their report', async () => {
    const { status, stderr } = await run(join(folder, 'sanitized'), 'roce0', 'overrun');
    expect(stderr).toContain('AddressSanitizer: heap-buffer-overflow');
    expect(status).not.toBe(0);
  });

  it('gdb runs stops at a breakpoint and continues', async () => {
    const steps = ['break transfer', 'run', 'continue'].flatMap((step) => ['-ex', step]);
    const words = ['gdb', '-nx', '-batch', ...steps, '--args', join(folder, 'checked'), 'roce0'];
    const { stdout } = await run(...words);
    expect(stdout).toMatch(/Breakpoint 1, .*transfer/);
    expect(stdout).toContain('0 bytes are wrong');
    expect(stdout).toContain('exited normally');
  });
});
