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
import { isKeptInMemory, readOctets, writeOctets } from '../../../daemon/nfs/file-octets.ts';
import { readCached } from '../../../native-bridge/libc/cached-read.ts';
import { pattern } from '../../support/echo-program.ts';

const places = ['/dev/shm', tmpdir()].filter((place) => existsSync(place));

it.each([...places, '/proc'])('knows whether files of %s are in memory', (place) => {
  const type = execFileSync('stat', ['-f', '-c', '%T', place]).toString().trim();
  expect(isKeptInMemory(place)).toBe(type === 'tmpfs' || type === 'ramfs');
});

describe.each(places.flatMap((place) => [[place, false] as const, [place, true] as const]))(
  'in %s, taken as in memory: %s',
  (place, inMemory) => {
    let folder: string;
    let file: string;
    let fd: number;

    beforeEach(() => {
      folder = mkdtempSync(join(place, 'iwarpd-octets-'));
      file = join(folder, 'file');
      writeFileSync(file, pattern(300_001));
      fd = openSync(file, 'r+');
    });
    afterEach(() => {
      closeSync(fd);
      rmSync(folder, { recursive: true });
    });

    it('reads as far as the file goes', async () => {
      const octets = new Uint8Array(200_000);
      expect(await readOctets(fd, octets, 1000, inMemory)).toBe(200_000);
      expect(Buffer.compare(octets, pattern(300_001).subarray(1000, 201_000))).toBe(0);
      expect(await readOctets(fd, octets, 300_000, inMemory)).toBe(1);
      expect(octets[0]).toBe(pattern(300_001)[300_000]);
      expect(await readOctets(fd, octets, 300_001, inMemory)).toBe(0);
    });

    it('writes, into the file and beyond its end', async () => {
      const octets = new Uint8Array(200_000).fill(7);
      expect(await writeOctets(fd, octets, 200_000, inMemory)).toBe(200_000);
      const written = readFileSync(file);
      expect(written).toHaveLength(400_000);
      expect(Buffer.compare(written.subarray(200_000), octets)).toBe(0);
      expect(Buffer.compare(written.subarray(0, 200_000), pattern(200_000))).toBe(0);
    });

    it('says why it cannot', async () => {
      const readOnly = openSync(file, 'r');
      const writeOnly = openSync(file, 'w');
      const refused = { code: 'EBADF' };
      await expect(writeOctets(readOnly, Buffer.of(1), 0, inMemory)).rejects.toMatchObject(refused);
      await expect(readOctets(writeOnly, Buffer.of(1), 0, inMemory)).rejects.toMatchObject(refused);
      closeSync(readOnly);
      closeSync(writeOnly);
    });
  },
);

it('reads at once what the system has just written, where the file system can tell', () => {
  const folder = mkdtempSync(join(tmpdir(), 'iwarpd-octets-'));
  const file = join(folder, 'file');
  writeFileSync(file, 'what is here');
  const fd = openSync(file, 'r');
  const octets = new Uint8Array(20);
  const count = readCached(fd, octets, 5);
  const empty = readCached(fd, octets.subarray(10), 12);
  closeSync(fd);
  rmSync(folder, { recursive: true });
  // tmpfs and some others cannot tell, and then leave the octets alone.
  const told = count !== undefined;
  expect([count, empty]).toEqual(told ? [7, 0] : [undefined, undefined]);
  expect(Buffer.from(octets).toString('latin1', 0, 7)).toBe(told ? 'is here' : '\0'.repeat(7));
  expect(readCached(-1, octets, 0)).toBeUndefined();
});
