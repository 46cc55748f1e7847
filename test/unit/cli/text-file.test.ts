import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readTextFile } from '#daemon/console/text-file';
import { temporaryFolder } from '#test/support/temporary-folder';

const folder = temporaryFolder();

it('reads a file whole, however many pieces it takes', () => {
  const text = 'ü'.repeat(100_001);
  const path = join(folder, 'text');
  writeFileSync(path, text);
  expect(readTextFile(path)).toBe(text);
  writeFileSync(path, '');
  expect(readTextFile(path)).toBe('');
});

it('reads a pipe to its end', () => {
  const path = join(folder, 'pipe');
  const script = `mkfifo ${path} && { echo text > ${path} & }`;
  expect(spawnSync('sh', ['-c', script], { stdio: 'ignore' }).status).toBe(0);
  expect(readTextFile(path)).toBe('text\n');
});

it('refuses a file without an end, and one that is not there', () => {
  expect(() => readTextFile('/dev/zero')).toThrow('it has more than 16 MiB');
  expect(() => readTextFile(join(folder, 'none'))).toThrow('ENOENT');
  expect(() => readTextFile(folder)).toThrow('EISDIR');
});
