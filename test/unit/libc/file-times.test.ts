import { statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, it } from 'vitest';
import { setFileTimes } from '#native-bridge/libc/file-times';
import { temporaryFolder } from '#test/support/temporary-folder';

let folder: string;
let file: string;

function times(path: string) {
  const { atimeNs, mtimeNs } = statSync(path, { bigint: true });
  return { atimeNs, mtimeNs };
}

beforeEach(() => {
  folder = temporaryFolder();
  file = join(folder, 'file');
  writeFileSync(file, '');
});

it('sets either time to the nanosecond, and keeps the other', () => {
  setFileTimes(file, { seconds: 1, nanoseconds: 999_999_999 }, { seconds: 2, nanoseconds: 1 });
  expect(times(file)).toEqual({ atimeNs: 1_999_999_999n, mtimeNs: 2_000_000_001n });
  setFileTimes(file, undefined, { seconds: 0xffff_ffff, nanoseconds: 7 });
  expect(times(file).atimeNs).toBe(1_999_999_999n);
  setFileTimes(file, 'now', undefined);
  expect(Number(times(file).atimeNs / 1_000_000n)).toBeGreaterThan(Date.now() - 60_000);
});

it('follows links, and throws the system’s error', () => {
  symlinkSync('file', join(folder, 'link'));
  setFileTimes(join(folder, 'link'), { seconds: 5, nanoseconds: 0 }, undefined);
  expect(times(file).atimeNs).toBe(5_000_000_000n);
  expect(() => setFileTimes(join(folder, 'none'), 'now', 'now')).toThrow('ENOENT');
});
