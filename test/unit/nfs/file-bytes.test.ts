import { execFileSync } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { readCached } from '#native-bridge/libc/cached-read';
import { pattern } from '#test/support/pattern';
import { isKeptInMemory, readBytes, writeBytes } from '#verbs-api/nfs/file-bytes';

const places = ['/dev/shm', tmpdir()].filter((place) => existsSync(place));

it.each([...places, '/proc'])('knows whether files of %s are in memory', (place) => {
  const type = execFileSync('stat', ['-f', '-c', '%T', place]).toString().trim();
  expect(isKeptInMemory(place)).toBe(type === 'tmpfs' || type === 'ramfs');
});

describe.each(places.flatMap((place) => [[place, false] as const, [place, true] as const]))(
  'in %s, treated as in memory: %s',
  (place, inMemory) => {
    let folder: string;
    let file: string;
    let fd: number;

    beforeEach(() => {
      folder = mkdtempSync(join(place, 'iwarpd-bytes-'));
      file = join(folder, 'file');
      writeFileSync(file, pattern(300_001));
      fd = openSync(file, 'r+');
    });
    afterEach(() => {
      closeSync(fd);
      rmSync(folder, { recursive: true });
    });

    it('reads up to the end of the file', async () => {
      const bytes = new Uint8Array(200_000);
      expect(await readBytes(fd, bytes, 1000, inMemory)).toBe(200_000);
      expect(Buffer.compare(bytes, pattern(300_001).subarray(1000, 201_000))).toBe(0);
      expect(await readBytes(fd, bytes, 300_000, inMemory)).toBe(1);
      expect(bytes[0]).toBe(pattern(300_001)[300_000]);
      expect(await readBytes(fd, bytes, 300_001, inMemory)).toBe(0);
    });

    it('writes, into the file and beyond its end', async () => {
      const bytes = new Uint8Array(200_000).fill(7);
      expect(await writeBytes(fd, bytes, 200_000, inMemory)).toBe(200_000);
      const written = readFileSync(file);
      expect(written).toHaveLength(400_000);
      expect(Buffer.compare(written.subarray(200_000), bytes)).toBe(0);
      expect(Buffer.compare(written.subarray(0, 200_000), pattern(200_000))).toBe(0);
    });

    it('reports why it failed', async () => {
      const readOnly = openSync(file, 'r');
      const writeOnly = openSync(file, 'w');
      const refused = { code: 'EBADF' };
      await expect(writeBytes(readOnly, Buffer.of(1), 0, inMemory)).rejects.toMatchObject(refused);
      await expect(readBytes(writeOnly, Buffer.of(1), 0, inMemory)).rejects.toMatchObject(refused);
      closeSync(readOnly);
      closeSync(writeOnly);
    });
  },
);

it('reads at once bytes that the system has just written, if the file system can report that', () => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarpd-bytes-'));
  const file = join(folder, 'file');
  writeFileSync(file, 'what is here');
  const fd = openSync(file, 'r');
  const bytes = new Uint8Array(20);
  const count = readCached(fd, bytes, 5);
  const empty = readCached(fd, bytes.subarray(10), 12);
  closeSync(fd);
  rmSync(folder, { recursive: true });
  // tmpfs and some others cannot report this, and then do not touch the bytes.
  const notified = count !== undefined;
  expect([count, empty]).toEqual(notified ? [7, 0] : [undefined, undefined]);
  expect(Buffer.from(bytes).toString('latin1', 0, 7)).toBe(notified ? 'is here' : '\0'.repeat(7));
  expect(readCached(-1, bytes, 0)).toBeUndefined();
});
