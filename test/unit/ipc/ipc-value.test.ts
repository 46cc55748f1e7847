import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeText,
  decodeValue,
  encodeInParts,
  encodeText,
  encodeValue,
  IpcFormatError,
  type IpcValue,
  VALUE_DEPTH_MAX,
} from '#contract/protocol/ipc-value';
import { bytesOf, hexOf } from '#test/support/hex';

/** Examples of RFC 8949 Appendix A within the subset. */
const EXAMPLES: readonly [IpcValue, string][] = [
  [0, '00'],
  [1, '01'],
  [10, '0a'],
  [23, '17'],
  [24, '1818'],
  [25, '1819'],
  [100, '1864'],
  [1000, '1903e8'],
  [1_000_000, '1a000f4240'],
  [1_000_000_000_000, '1b000000e8d4a51000'],
  [-1, '20'],
  [-10, '29'],
  [-100, '3863'],
  [-1000, '3903e7'],
  [1.1, 'fb3ff199999999999a'],
  [-4.1, 'fbc010666666666666'],
  [1.0e300, 'fb7e37e43c8800759c'],
  [Number.POSITIVE_INFINITY, 'fb7ff0000000000000'],
  [Number.NaN, 'fb7ff8000000000000'],
  [false, 'f4'],
  [true, 'f5'],
  [null, 'f6'],
  [undefined, 'f7'],
  [bytesOf('01020304'), '4401020304'],
  ['', '60'],
  ['a', '6161'],
  ['IETF', '6449455446'],
  ['"\\', '62225c'],
  ['\u00fc', '62c3bc'],
  ['\u6c34', '63e6b0b4'],
  ['\ud800\udd51', '64f0908591'],
  [[], '80'],
  [[1, 2, 3], '83010203'],
  [[1, [2, 3], [4, 5]], '8301820203820405'],
  [{}, 'a0'],
  [{ a: 1, b: [2, 3] }, 'a26161016162820203'],
];

const LARGEST = 0xffff_ffff_ffff_ffffn;

describe('values', () => {
  it('distinguishes texts however many were decoded before, ASCII or not', () => {
    const texts = Array.from({ length: 2000 }, (_, index) => [`key${index}`, `\u00fc${index}`]);
    for (let round = 0; round < 2; round++) {
      for (const text of texts.flat()) expect(decodeValue(encodeValue(text))).toBe(text);
    }
  });

  it('are not changed by those encoded later, long, short or impossible', () => {
    const values = Array.from({ length: 400 }, (_, index): IpcValue => {
      return { index, text: 'x'.repeat((index * 37) % 900), bytes: new Uint8Array(index % 50) };
    });
    values.splice(200, 0, 'y'.repeat(100_000), 1);
    const encoded = values.map((value) => {
      expect(() => encodeValue(['z'.repeat(600), -1n], 4)).toThrow(RangeError);
      return encodeValue(value, 4);
    });
    expect(encoded.every((bytes) => bytes.subarray(0, 4).every((byte) => byte === 0))).toBe(true);
    expect(encoded.map((bytes) => decodeValue(bytes.subarray(4)))).toEqual(values);
    for (const bytes of encoded)
      expect(bytes.buffer.byteLength).toBeLessThan(3 * bytes.length + 16_385);
  });

  it('reserves room in front for the caller', () => {
    expect(hexOf(encodeValue(['a'], 2))).toBe('0000816161');
    const long = 'x'.repeat(5000);
    expect(decodeValue(encodeValue(long, 12).subarray(12))).toBe(long);
  });

  it.each(EXAMPLES)('%o is %s, as in RFC 8949', (value, hex) => {
    expect(hexOf(encodeValue(value))).toBe(hex);
    expect(decodeValue(bytesOf(hex))).toEqual(value);
  });

  /** Encodes `value` in parts of 256 items, between which others are encoded. */
  function partsOf(value: IpcValue): Uint8Array[] {
    const encoder = encodeInParts(value, 12, 256);
    const parts: Uint8Array[] = [];
    for (;;) {
      const { value: part, done } = encoder.next();
      parts.push(part);
      if (done === true) return parts;
      encodeValue({ another: parts.length });
    }
  }

  it.each([0, 1, 255, 256, 257, 1000])('a list of %i items is encoded in parts', (length) => {
    const list = Array.from({ length }, (_, index) => ({ index, name: `item ${index}` }));
    const values = [list, { list, before: 1 }, { after: [1, 2], list, once: list }];
    for (const value of values) {
      const parts = partsOf(value);
      expect(hexOf(Buffer.concat(parts))).toBe(hexOf(encodeValue(value, 12)));
      expect(parts.length > 1).toBe(length > 256);
    }
  });

  it('a value without a long list is one part', () => {
    for (const [value, hex] of EXAMPLES) {
      expect(partsOf(value).map(hexOf)).toEqual([`${'00'.repeat(12)}${hex}`]);
    }
  });

  it('64-bit integers keep their type, however small', () => {
    for (const value of [0n, 1n, 2n ** 53n, LARGEST]) {
      expect(decodeValue(encodeValue(value))).toBe(value);
    }
    // Shorter bignums, as another encoder may write them.
    expect(decodeValue(bytesOf('c240'))).toBe(0n);
    expect(decodeValue(bytesOf('c243010203'))).toBe(0x010203n);
    expect(() => encodeValue(LARGEST + 1n)).toThrow(RangeError);
    expect(() => encodeValue(-1n)).toThrow(RangeError);
  });

  it('integers are limited to the exact range of numbers', () => {
    const most = Number.MAX_SAFE_INTEGER;
    for (const exact of [most, most - 1, -most]) {
      expect(decodeValue(encodeValue(exact))).toBe(exact);
    }
    expect(() => decodeValue(bytesOf('3b001fffffffffffff'))).toThrow(IpcFormatError);
    expect(() => decodeValue(bytesOf('1b0020000000000000'))).toThrow(IpcFormatError);
    expect(() => decodeValue(bytesOf('1bffffffffffffffff'))).toThrow(IpcFormatError);
  });

  it('bytes are copied: the input may be reused', () => {
    const encoded = encodeValue(bytesOf('0102'));
    const decoded = decodeValue(encoded);
    encoded.fill(0);
    expect(decoded).toEqual(bytesOf('0102'));
  });

  it('nesting is limited, both ways', () => {
    const nested = (depth: number): IpcValue => (depth === 0 ? 0 : [nested(depth - 1)]);
    const deepest = encodeValue(nested(VALUE_DEPTH_MAX));
    expect(decodeValue(deepest)).toEqual(nested(VALUE_DEPTH_MAX));
    expect(() => encodeValue(nested(VALUE_DEPTH_MAX + 1))).toThrow(RangeError);
    const deeper = Uint8Array.from([0x81, ...deepest]);
    expect(() => decodeValue(deeper)).toThrow(IpcFormatError);
  });

  it.each([
    ['nothing', ''],
    ['an argument that is cut off', '19ff'],
    ['bytes that are cut off', '4401'],
    ['a string longer than all memory', '7affffffff'],
    ['an array that is cut off', '8301'],
    ['an array that promises more than can be there', '9affffffff00'],
    ['a map that is cut off', 'a16161'],
    ['a key that is no text', 'a10101'],
    ['the same key twice', 'a2616101616102'],
    ['a forbidden key', 'a1695f5f70726f746f5f5f01'],
    ['a reserved length', '1c'],
    ['an indefinite length', '7f6161ff'],
    ['a break', 'ff'],
    ['a half float', 'f93c00'],
    ['a simple value that is not assigned', 'f0'],
    ['a date', 'c11a514b67b0'],
    ['a bignum that is no bytes', 'c201'],
    ['a bignum of a bignum', 'c2c24101'],
    ['a negative bignum', 'c34101'],
    ['a bignum of 9 bytes', 'c249000000000000000001'],
    ['bytes after it', '0000'],
    ['overlong UTF-8', '62c080'],
    ['a surrogate as UTF-8', '63eda080'],
    ['UTF-8 that is cut off', '61c3'],
    ['UTF-8 beyond Unicode', '64f4908080'],
    ['a stray continuation', '6180'],
  ])('%s is refused', (_what, hex) => {
    expect(() => decodeValue(bytesOf(hex))).toThrow(IpcFormatError);
  });

  it('encoding and decoding are inverse', () => {
    const { value } = fc.letrec<{ value: IpcValue }>((tie) => ({
      value: fc.oneof(
        { maxDepth: 5 },
        fc.constantFrom(undefined, null, true, false),
        fc.maxSafeInteger(),
        fc.double().filter((number) => !Object.is(number, -0)),
        fc.bigInt({ min: 0n, max: LARGEST }),
        fc.string({ unit: 'grapheme' }),
        fc.uint8Array(),
        fc.array(tie('value')),
        fc.dictionary(
          fc.string().filter((key) => key !== '__proto__'),
          tie('value'),
          { noNullPrototype: true },
        ),
      ),
    }));
    fc.assert(
      fc.property(value, (sent) => {
        expect(decodeValue(encodeValue(sent))).toEqual(sent);
      }),
    );
  });

  it('text is the platform’s UTF-8', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(encodeText(text)).toEqual(new TextEncoder().encode(text));
        expect(decodeText(encodeText(text))).toBe(
          new TextDecoder().decode(new TextEncoder().encode(text)),
        );
      }),
    );
    expect(hexOf(encodeText('\ud800x'))).toBe('efbfbd78');
  });
});
