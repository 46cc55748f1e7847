import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { coversRange, isMapped } from '#daemon/kernel/process-map';
import { addressOf } from '#native-bridge/libc/libc';
import { visitMappingsIn } from '#native-bridge/libc/process-maps';
import { temporaryFolder } from '#test/support/temporary-folder';

const MAPS = `1000-3000 r--p 00000000 08:01 12 /bin/program
3000-4000 rw-p 00000000 00:00 0
4000-6000 rw-p 00000000 00:00 0 [heap]
7000-8000 ---p 00000000 00:00 0
7f0000000000-7f0000001000 rw-s 00000000 00:01 99 /memfd:x (deleted)
`;

/** Many mappings at lower addresses. */
const LOW = Array.from(
  { length: 4_000 },
  (_, index) => `0-${index % 2} rw-p 00000000 00:00 0\n`,
).join('');

describe('the range of a registration', () => {
  let folder: string;
  let fd: number;

  beforeAll(() => {
    folder = temporaryFolder();
    // Longer than one read, and without the kernel's query ioctl: as before Linux 6.11.
    writeFileSync(join(folder, 'maps'), `${LOW}${MAPS}`);
  });

  it.each<[number, number, boolean, boolean]>([
    [0x1000, 0x2000, false, true],
    [0x1fff, 1, false, true],
    [0x1000, 0x5000, false, true],
    [0x3800, 0x2800, true, true],
    [0x7f0000000000, 0x1000, true, true],
    // Before all, between two, after all.
    [0xfff, 2, false, false],
    [0x5fff, 2, false, false],
    [0x6800, 1, false, false],
    [0x7f0000000fff, 2, false, false],
    [0x7f0000002000, 1, false, false],
    // Not readable, not writable.
    [0x7000, 1, false, false],
    [0x1000, 1, true, false],
    [0x2fff, 2, true, false],
  ])('%i, %i bytes, to be written %s: %s', (start, lengthBytes, writable, usable) => {
    fd = openSync(join(folder, 'maps'), 'r');
    const covers = coversRange(
      (from, end, take) => visitMappingsIn(fd, from, end, take),
      start,
      lengthBytes,
      writable,
    );
    closeSync(fd);
    expect(covers).toBe(usable);
  });

  it('passes on only the overlapping ones of thousands of mappings', () => {
    const asked: number[] = [];
    fd = openSync(join(folder, 'maps'), 'r');
    const visit: Parameters<typeof coversRange>[0] = (from, end, take) => {
      visitMappingsIn(fd, from, end, (piece) => {
        asked.push(piece.start);
        return take(piece);
      });
    };
    // Of 4,005 mappings, those that overlap the range; reading ends at the first one after it.
    expect(coversRange(visit, 0x1000, 0x5000, false)).toBe(true);
    closeSync(fd);
    expect(asked).toEqual([0x1000, 0x3000, 0x4000]);
  });

  it('accepts a region of very many mappings without reading all of them', () => {
    let looked = 0;
    const piece = { readable: true, writable: true, device: undefined };
    const visit: Parameters<typeof coversRange>[0] = (from, end, take) => {
      for (let start = from; start < end; start += 0x1000) {
        looked += 1;
        if (!take({ ...piece, start, end: start + 0x1000 })) return;
      }
    };
    expect(coversRange(visit, 0x1000, 0x1000 * 65_530, true)).toBe(true);
    expect(looked).toBe(256);
  });

  it('stops reading after the range, however many mappings follow', () => {
    const path = join(folder, 'long');
    writeFileSync(path, `${MAPS}${LOW.replaceAll('0-', 'ff0000000000-')}`);
    fd = openSync(path, 'r');
    visitMappingsIn(fd, 0x1000, 0x6000, () => true);
    // One read of 64 KiB; the text is twice as long.
    const { pos } = Object.fromEntries(
      readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1')
        .split('\n')
        .map((line) => line.split(':\t')),
    );
    closeSync(fd);
    expect(Number(pos)).toBe(65_536);
  });

  it('is found for a real process', () => {
    const bytes = new Uint8Array(4096);
    const start = Number(addressOf(bytes));
    expect(isMapped(process.pid, start, bytes.length, true)).toBe(true);
    expect(isMapped(process.pid, 4096, 1, false)).toBe(false);
  });

  it('is not checked for a process that cannot be inspected', () => {
    expect(isMapped(2 ** 22 + 5, 4096, 1, true)).toBe(true);
  });
});
