import { describe, expect, it } from 'vitest';
import { writeUint32LE } from '#base/checked-bytes';
import {
  CRC32C_TABLE_MAX_BYTES,
  crc32c,
  rangeCrc32c,
  tableCrc32c,
} from '#daemon/iwarp/wire/crc32c';
import { hexOf } from '#test/support/hex';

/** The definition, one bit at a time: slow, and independent of the tables. */
function bitwiseCrc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function wireBytes(crc: number): string {
  const field = new Uint8Array(4).fill(0xa5);
  writeUint32LE(field, 0, crc);
  return hexOf(field);
}

const ascending = Uint8Array.from({ length: 32 }, (_, i) => i);

describe('crc32c', () => {
  it.each([
    ['zeros', new Uint8Array(32), 'aa36918a'],
    ['ones', new Uint8Array(32).fill(0xff), '43aba862'],
    ['ascending', ascending, '4e79dd46'],
    ['descending', ascending.toReversed(), '5cdb3f11'],
  ])('iSCSI test pattern %s [MPA-4.4-09]', (_name, bytes, expected) => {
    expect(wireBytes(crc32c(bytes))).toBe(expected);
  });

  it('check value of "123456789", least significant byte first on the wire [MPA-4.4-10]', () => {
    const bytes = Uint8Array.from('123456789', (digit) => digit.charCodeAt(0));
    expect(crc32c(bytes)).toBe(0xe3069283);
    expect(wireBytes(0xe3069283)).toBe('839206e3');
  });

  it('equals the definition for every length and alignment of the eight-byte steps', () => {
    const bytes = Uint8Array.from({ length: 80 }, (_, i) => (i * 73 + 11) & 0xff);
    for (let start = 0; start < 9; start++) {
      for (let end = start; end <= bytes.length; end++) {
        const expected = bitwiseCrc32c(bytes.subarray(start, end));
        expect(tableCrc32c(bytes, start, end)).toBe(expected);
      }
    }
  });

  it('continues from the result for earlier bytes', () => {
    const whole = crc32c(ascending);
    for (let cut = 0; cut <= 32; cut++) {
      expect(crc32c(ascending.subarray(cut), crc32c(ascending.subarray(0, cut)))).toBe(whole);
    }
  });

  it('uses the table for small ranges and the given function for large ones', () => {
    const bytes = new Uint8Array(2 * CRC32C_TABLE_MAX_BYTES);
    const lengths: number[] = [];
    const large = (view: Uint8Array): number => {
      lengths.push(view.length);
      return 7;
    };
    expect(rangeCrc32c(large, bytes, 3, 3 + CRC32C_TABLE_MAX_BYTES)).toBe(
      crc32c(bytes.subarray(0, CRC32C_TABLE_MAX_BYTES)),
    );
    expect(rangeCrc32c(large, bytes, 3, 4 + CRC32C_TABLE_MAX_BYTES)).toBe(7);
    expect(lengths).toEqual([CRC32C_TABLE_MAX_BYTES + 1]);
  });

  it('refuses a range outside of the buffer', () => {
    expect(() => tableCrc32c(ascending, -1, 4)).toThrow(RangeError);
    expect(() => tableCrc32c(ascending, 0, 33)).toThrow(RangeError);
    expect(() => tableCrc32c(ascending, 5, 4)).toThrow(RangeError);
  });
});
