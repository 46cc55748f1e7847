/** A daemon and commands on a file system that is full. */
import { mkdtempSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { runCommand } from './cli-process.ts';

const isRoot = process.getuid?.() === 0;
const needs = isRoot ? '' : ' (skipped: a file system of its own needs root)';

const full = mkdtempSync(join(tmpdir(), 'iwarpd-full-'));
afterAll(() => rmdirSync(full));

/** Runs a command where `full` is a file system without a free page, for the command alone. */
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
      /^iwarpd: cannot (?:write|create) \S*iwarpd\.sock\S*: no space left on its file system; free some, or choose another directory \(ENOSPC\)$/m,
    );
  });
});
