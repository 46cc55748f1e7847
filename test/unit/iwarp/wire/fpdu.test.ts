import { describe, expect, it } from 'vitest';
import { fpduSizeBytes, padBytes } from '#daemon/iwarp/wire/fpdu';

describe('FPDU geometry', () => {
  it.each([
    [14, 0, 20],
    [16, 2, 24],
    [18, 0, 24],
    [42, 0, 48],
    [46, 0, 52],
    [1, 1, 8],
    [3, 3, 12],
    [4, 2, 12],
    [64768, 2, 64776],
    [65535, 3, 65544],
    [0, 2, 8],
  ])('a ULPDU of %i bytes has %i of PAD and makes %i in all [MPA-4.1-05]', (length, pad, size) => {
    expect(padBytes(length)).toBe(pad);
    expect(fpduSizeBytes(length)).toBe(size);
  });

  it('every FPDU is a multiple of 4 with 6 to 9 bytes of overhead [MPA-4.1-05]', () => {
    for (let length = 0; length <= 65535; length++) {
      const size = fpduSizeBytes(length);
      if (size % 4 !== 0 || size - length !== 6 + padBytes(length)) expect.fail(`at ${length}`);
    }
  });
});
