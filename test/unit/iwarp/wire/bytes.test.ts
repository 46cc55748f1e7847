import { describe, expect, it } from 'vitest';
import {
  copyBytes,
  readUint8,
  readUint16,
  readUint32,
  readUint32LE,
  writeUint8,
  writeUint16,
  writeUint32,
  writeUint32LE,
} from '#base/checked-bytes';
import { bytesOf, hexOf } from '#test/support/hex';

describe('bytes', () => {
  it('reads fields in network byte order, unsigned', () => {
    const bytes = bytesOf('01 fe dc ba 98 76');
    expect(readUint8(bytes, 1)).toBe(0xfe);
    expect(readUint16(bytes, 1)).toBe(0xfedc);
    expect(readUint32(bytes, 1)).toBe(0xfedcba98);
    expect(readUint32LE(bytes, 1)).toBe(0x98badcfe);
  });

  it('writes each field and no other byte', () => {
    const bytes = new Uint8Array(16).fill(0xa5);
    writeUint8(bytes, 1, 0x101);
    writeUint16(bytes, 3, 0xfedc);
    writeUint32(bytes, 6, 0xfedcba98);
    writeUint32LE(bytes, 11, 0xfedcba98);
    expect(hexOf(bytes)).toBe('a501a5fedca5fedcba98a598badcfea5');
  });

  it.each([
    ['readUint8', readUint8, 1],
    ['readUint16', readUint16, 2],
    ['readUint32', readUint32, 4],
    ['readUint32LE', readUint32LE, 4],
  ] as const)('%s reads up to the last byte and refuses one further', (_name, read, size) => {
    const bytes = new Uint8Array(8);
    expect(read(bytes, 8 - size)).toBe(0);
    expect(() => read(bytes, 9 - size)).toThrow(RangeError);
    expect(() => read(bytes, -1)).toThrow(RangeError);
  });

  it.each([
    ['writeUint8', writeUint8, 1],
    ['writeUint16', writeUint16, 2],
    ['writeUint32', writeUint32, 4],
    ['writeUint32LE', writeUint32LE, 4],
  ] as const)('%s writes up to the last byte and refuses one further', (_name, write, size) => {
    const bytes = new Uint8Array(8).fill(0xa5);
    write(bytes, 8 - size, 0);
    const written = hexOf(bytes);
    expect(written).toBe('a5'.repeat(8 - size) + '00'.repeat(size));
    expect(() => write(bytes, 9 - size, 0)).toThrow(RangeError);
    expect(() => write(bytes, -1, 0)).toThrow(RangeError);
    expect(hexOf(bytes)).toBe(written);
  });

  it.each([0, 1, 48, 49, 300])('copies %i bytes, by whichever method it chooses', (size) => {
    const source = Uint8Array.from({ length: 400 }, (_, i) => i % 251);
    const target = new Uint8Array(400).fill(0xa5);
    copyBytes(source, 7, 7 + size, target, 11);
    expect(target.subarray(11, 11 + size)).toEqual(source.subarray(7, 7 + size));
    expect(target.subarray(0, 11).every((byte) => byte === 0xa5)).toBe(true);
    expect(target.subarray(11 + size).every((byte) => byte === 0xa5)).toBe(true);
  });

  it.each([20, 200])('moves %i bytes towards the front of one buffer', (size) => {
    const bytes = Uint8Array.from({ length: 400 }, (_, i) => i % 251);
    const expected = bytes.slice(9, 9 + size);
    copyBytes(bytes, 9, 9 + size, bytes, 2);
    expect(bytes.subarray(2, 2 + size)).toEqual(expected);
  });

  it('refuses to copy outside of either buffer', () => {
    const small = new Uint8Array(4);
    const large = new Uint8Array(8);
    expect(() => copyBytes(large, 0, 5, small, 0)).toThrow(RangeError);
    expect(() => copyBytes(small, 0, 5, large, 0)).toThrow(RangeError);
    expect(() => copyBytes(small, -1, 2, large, 0)).toThrow(RangeError);
    expect(() => copyBytes(small, 3, 2, large, 0)).toThrow(RangeError);
  });
});
