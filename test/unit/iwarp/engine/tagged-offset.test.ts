import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { to64, toAddHi, toAddLo, toWraps } from '#daemon/iwarp/engine/tagged-offset';

const half = fc.integer({ min: 0, max: 0xffff_ffff });
const edge = fc.constantFrom(0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff);
const number = fc.oneof(half, edge);

describe('a Tagged Offset', () => {
  it('adds as a 64-bit number does [DDP-4.2-07, DDP-5.2-08]', () => {
    fc.assert(
      fc.property(number, number, number, (hi, lo, count) => {
        const sum = BigInt.asUintN(64, (BigInt(hi) << 32n) + BigInt(lo) + BigInt(count));
        const whole = (BigInt(toAddHi(hi, lo, count)) << 32n) + BigInt(toAddLo(lo, count));
        expect(whole).toBe(sum);
        expect(to64(hi, lo, count)).toEqual({ hi: toAddHi(hi, lo, count), lo: toAddLo(lo, count) });
      }),
    );
  });

  it('wraps when the sum reaches 2^64 [DDP-7.1-14]', () => {
    fc.assert(
      fc.property(number, number, number, (hi, lo, count) => {
        const sum = (BigInt(hi) << 32n) + BigInt(lo) + BigInt(count);
        expect(toWraps(hi, lo, count)).toBe(sum >= 1n << 64n);
      }),
    );
    expect(toWraps(0xffff_ffff, 0xffff_fffc, 4)).toBe(true);
    expect(toWraps(0xffff_ffff, 0xffff_fffc, 3)).toBe(false);
  });
});
