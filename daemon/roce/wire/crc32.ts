/**
 * CRC-32 of Ethernet, zlib and the ICRC: reflected polynomial 0xEDB88320, initial value and final
 * XOR 0xFFFFFFFF. `rangeCrc32` chooses between the table and a native implementation.
 */
import { slicedCrc, slicesOf } from '#base/sliced-crc';

/**
 * Computes a CRC-32 of `bytes`, which it only reads. `initial` is the result for the preceding bytes (default
 * 0: none). Returns an unsigned 32-bit number. A native implementation, such as that of `node:zlib`, is
 * injected as this type.
 */
export type Crc32 = (bytes: Uint8Array, initial?: number) => number;

/** Up to this length the table is faster: a native call needs a view. */
const TABLE_MAX_BYTES = 128;

const SLICES = slicesOf(0xedb88320);

/**
 * CRC-32 of `bytes[start, end)` from the table, eight bytes at a time, without a view. `initial` is the
 * result for the preceding bytes. Throws `RangeError` if the range extends past `bytes`.
 */
export function tableCrc32(bytes: Uint8Array, start: number, end: number, initial = 0): number {
  return slicedCrc(SLICES, bytes, start, end, initial);
}

/** This module's `Crc32`: pure and always available. */
export const crc32: Crc32 = (bytes, initial = 0) => tableCrc32(bytes, 0, bytes.length, initial);

/**
 * CRC-32 of `bytes[start, end)`, where `initial` is the result for the preceding bytes: a small range by the
 * table, a large one by `large`, which gets a view valid for the call.
 */
export function rangeCrc32(
  large: Crc32,
  bytes: Uint8Array,
  start: number,
  end: number,
  initial: number,
): number {
  if (end - start <= TABLE_MAX_BYTES) return tableCrc32(bytes, start, end, initial);
  return large(bytes.subarray(start, end), initial);
}
