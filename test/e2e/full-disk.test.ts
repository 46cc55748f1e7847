/** A daemon and commands on a file system that is full. */
import { mkdtempSync, readFileSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { CommandFolder, refusedWords, runCommand } from '../support/cli-process.ts';

const isRoot = process.getuid?.() === 0;
const needs = isRoot ? '' : ' (skipped: a file system of its own needs root)';

const full = mkdtempSync(join(tmpdir(), 'iwarpd-full-'));
afterAll(() => rmdirSync(full));

/** Runs a command that sees `full` as a file system without a free page. */
function onFullDisk(words: readonly string[], environment: Readonly<Record<string, string>>) {
  const steps = `mount -t tmpfs -o size=64k,mode=700 none ${full} && mkdir ${full}/d &&
    { cat /dev/zero >${full}/fill 2>/dev/null; exec "$@"; }`;
  return runCommand(words, environment, ['unshare', '--mount', 'sh', '-c', steps, 'sh']);
}

describe.skipIf(!isRoot)(`a full disk${needs}`, () => {
  it('ends the start of a daemon with a line that names the file and the fix', async () => {
    const socket = join(full, 'd', 'iwarpd.sock');
    const { status, stdout, stderr } = await onFullDisk(['start', '--socket', socket], {});
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toMatch(
      /^iwarpd: cannot (?:write|create) \S*iwarpd\.sock\S*: no space left on its file system; free some space, or choose another directory \(ENOSPC\)$/m,
    );
  });
});

describe.skipIf(!isRoot)(`a detached daemon on a full disk${needs}`, () => {
  it('reports why it ended, which does not fit the log', async () => {
    const words = ['start', '--detach', '--socket', join(full, 'd', 'iwarpd.sock')];
    const { status, stderr } = await onFullDisk(words, {});
    expect(status).toBe(1);
    expect(stderr).toMatch(
      /^iwarpd: the daemon has not started: cannot (?:write|create) \S*iwarpd\.sock\S*: no space left .*\(ENOSPC\)\n$/,
    );
  });
});

describe('a recording on a full disk', () => {
  const folder = new CommandFolder();
  afterEach(() => folder.clean());

  it.each(['capture', 'trace'])('fails a run with a successful program: --%s', async (option) => {
    const junit = folder.file('junit');
    // Refusals are traced, and captures end with statistics.
    const program = ['sh', '-c', '"$@" || exit 0', 'sh', ...refusedWords([0])];
    const words = ['--fresh', `--${option}`, '/dev/full', '--junit', junit, '--', ...program];
    const { status, stderr } = await runCommand(['run', ...words]);
    const cut = 'cannot write /dev/full: no space left on device (ENOSPC)';
    expect(stderr).toContain(cut);
    expect(status).toBe(1);
    expect(readFileSync(junit, 'utf8')).toMatch(/<failure|<error/);
    expect(readFileSync(junit, 'utf8')).toContain(cut);
  });

  it('fails a command that writes its output there, in one line', async () => {
    const socket = folder.file('d/iwarpd.sock');
    await folder.daemon(socket);
    const traced = ['sh', '-c', 'exec "$@" >/dev/full', 'sh'];
    const { status, stderr } = await runCommand(['status', '--socket', socket], {}, traced);
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: 'iwarpd: cannot write /dev/full: no space left on device (ENOSPC)\n',
    });
  });
});

describe.skipIf(!isRoot)(`a JUnit file on a disk that fills up${needs}`, () => {
  it('leaves the report of a program that fails on standard error', async () => {
    const steps = `mount -t tmpfs -o size=64k,mode=700 none ${full} && exec "$@"`;
    const fill = `cat /dev/zero >${full}/fill 2>/dev/null; exit 7`;
    const { status, stderr } = await runCommand(
      ['run', '--fresh', '--junit', join(full, 'junit'), '--', 'sh', '-c', fill],
      {},
      ['unshare', '--mount', 'sh', '-c', steps, 'sh'],
    );
    expect(stderr).toMatch(/^iwarpd: sh -c .*: ended with status 7\n/);
    expect(stderr).toMatch(
      /^iwarpd: cannot write \S*junit: no space left on device \(ENOSPC\)\n$/m,
    );
    expect(status).toBe(1);
  });
});

describe.skipIf(!isRoot)(`a temporary directory that cannot be written to${needs}`, () => {
  it('ends a run with a line that says so', async () => {
    const steps = `mount -t tmpfs -o ro none ${full} && exec "$@"`;
    const { status, stderr } = await runCommand(
      ['run', '--fresh', '--', 'true'],
      { TMPDIR: full },
      ['unshare', '--mount', 'sh', '-c', steps, 'sh'],
    );
    expect({ status, stderr }).toEqual({
      status: 1,
      stderr: `iwarpd: cannot create a folder in ${full}: read-only file system (EROFS); set TMPDIR to a directory that you can write to\n`,
    });
  });
});
