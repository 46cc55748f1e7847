import { describe, expect, it } from 'vitest';
import {
  copyOctets,
  readUint8,
  readUint16,
  readUint32,
  readUint32LE,
  writeUint8,
  writeUint16,
  writeUint32,
  writeUint32LE,
} from '../../../daemon/wire/octets.ts';
import { hexOf, octetsOf } from '../../support/hex.ts';

describe('octets', () => {
  it('reads fields in network byte order, unsigned', () => {
    const octets = octetsOf('01 fe dc ba 98 76');
    expect(readUint8(octets, 1)).toBe(0xfe);
    expect(readUint16(octets, 1)).toBe(0xfedc);
    expect(readUint32(octets, 1)).toBe(0xfedcba98);
    expect(readUint32LE(octets, 1)).toBe(0x98badcfe);
  });

  it('writes each field and no octet besides it', () => {
    const octets = new Uint8Array(16).fill(0xa5);
    writeUint8(octets, 1, 0x101);
    writeUint16(octets, 3, 0xfedc);
    writeUint32(octets, 6, 0xfedcba98);
    writeUint32LE(octets, 11, 0xfedcba98);
    expect(hexOf(octets)).toBe('a501a5fedca5fedcba98a598badcfea5');
  });

  it.each([
    ['readUint8', readUint8, 1],
    ['readUint16', readUint16, 2],
    ['readUint32', readUint32, 4],
    ['readUint32LE', readUint32LE, 4],
  ] as const)('%s reads up to the last octet and refuses one further', (_name, read, size) => {
    const octets = new Uint8Array(8);
    expect(read(octets, 8 - size)).toBe(0);
    expect(() => read(octets, 9 - size)).toThrow(RangeError);
    expect(() => read(octets, -1)).toThrow(RangeError);
  });

  it.each([
    ['writeUint8', writeUint8, 1],
    ['writeUint16', writeUint16, 2],
    ['writeUint32', writeUint32, 4],
    ['writeUint32LE', writeUint32LE, 4],
  ] as const)('%s writes up to the last octet and refuses one further', (_name, write, size) => {
    const octets = new Uint8Array(8).fill(0xa5);
    write(octets, 8 - size, 0);
    const written = hexOf(octets);
    expect(written).toBe('a5'.repeat(8 - size) + '00'.repeat(size));
    expect(() => write(octets, 9 - size, 0)).toThrow(RangeError);
    expect(() => write(octets, -1, 0)).toThrow(RangeError);
    expect(hexOf(octets)).toBe(written);
  });

  it.each([0, 1, 48, 49, 300])('copies %i octets, whatever way it chooses', (size) => {
    const source = Uint8Array.from({ length: 400 }, (_, i) => i % 251);
    const target = new Uint8Array(400).fill(0xa5);
    copyOctets(source, 7, 7 + size, target, 11);
    expect(target.subarray(11, 11 + size)).toEqual(source.subarray(7, 7 + size));
    expect(target.subarray(0, 11).every((octet) => octet === 0xa5)).toBe(true);
    expect(target.subarray(11 + size).every((octet) => octet === 0xa5)).toBe(true);
  });

  it.each([20, 200])('moves %i octets towards the front of one buffer', (size) => {
    const octets = Uint8Array.from({ length: 400 }, (_, i) => i % 251);
    const expected = octets.slice(9, 9 + size);
    copyOctets(octets, 9, 9 + size, octets, 2);
    expect(octets.subarray(2, 2 + size)).toEqual(expected);
  });

  it('refuses to copy outside of either buffer', () => {
    const small = new Uint8Array(4);
    const large = new Uint8Array(8);
    expect(() => copyOctets(large, 0, 5, small, 0)).toThrow(RangeError);
    expect(() => copyOctets(small, 0, 5, large, 0)).toThrow(RangeError);
    expect(() => copyOctets(small, -1, 2, large, 0)).toThrow(RangeError);
    expect(() => copyOctets(small, 3, 2, large, 0)).toThrow(RangeError);
  });
});
