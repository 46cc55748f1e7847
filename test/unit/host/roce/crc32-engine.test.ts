import { crc32 as zlibCrc32 } from 'node:zlib';
import { expect, it } from 'vitest';
import { chooseCrc32, fastestCrc32 } from '#daemon/host/roce/crc32-engine';
import { crc32 } from '#daemon/roce/wire/crc32';

it('uses the CRC-32 of zlib, or the table if Node.js has none', () => {
  expect(chooseCrc32()).toBe(zlibCrc32);
  expect(chooseCrc32({})).toBe(crc32);
  const bytes = new TextEncoder().encode('123456789');
  expect(chooseCrc32()(bytes)).toBe(0xcbf43926);
  expect(chooseCrc32({})(bytes.subarray(4), crc32(bytes.subarray(0, 4)))).toBe(0xcbf43926);
});

it('uses another one for packets that leave the host, if it is available and correct', () => {
  const other = (bytes: Uint8Array, initial?: number) => crc32(bytes, initial);
  expect(fastestCrc32(() => other)).toBe(other);
  expect(fastestCrc32(() => (bytes) => crc32(bytes))).toBe(zlibCrc32);
  const missing = () => {
    throw new Error('no library');
  };
  expect(fastestCrc32(missing)).toBe(zlibCrc32);
});
