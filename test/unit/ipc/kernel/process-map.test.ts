import { describe, expect, it } from 'vitest';
import { coversRange, isMapped } from '../../../../daemon/ipc/kernel/process-map.ts';
import { addressOf } from '../../../../native-bridge/libc/libc.ts';

const MAPS = `1000-3000 r--p 00000000 08:01 12 /bin/program
3000-4000 rw-p 00000000 00:00 0
4000-6000 rw-p 00000000 00:00 0 [heap]
7000-8000 ---p 00000000 00:00 0
7f0000000000-7f0000001000 rw-s 00000000 00:01 99 /memfd:x (deleted)
`;

describe('the range of a registration', () => {
  it.each<[number, number, boolean, boolean]>([
    [0x1000, 0x2000, false, true],
    [0x1fff, 1, false, true],
    [0x1000, 0x5000, false, true],
    [0x3800, 0x2800, true, true],
    [0x7f0000000000, 0x1000, true, true],
    // Before all, between two, behind all.
    [0xfff, 2, false, false],
    [0x5fff, 2, false, false],
    [0x6800, 1, false, false],
    [0x7f0000000fff, 2, false, false],
    [0x7f0000002000, 1, false, false],
    // Not readable, not writable.
    [0x7000, 1, false, false],
    [0x1000, 1, true, false],
    [0x2fff, 2, true, false],
  ])('%i, %i octets, to be written %s: %s', (start, lengthBytes, writable, usable) => {
    expect(coversRange(MAPS, start, lengthBytes, writable)).toBe(usable);
  });

  it('is that of a real process', () => {
    const octets = new Uint8Array(4096);
    const start = Number(addressOf(octets));
    expect(isMapped(process.pid, start, octets.length, true)).toBe(true);
    expect(isMapped(process.pid, 4096, 1, false)).toBe(false);
  });

  it('of a process that cannot be seen is not judged', () => {
    expect(isMapped(2 ** 22 + 5, 4096, 1, true)).toBe(true);
  });
});
