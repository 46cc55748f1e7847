/**
 * CRC-32 of Ethernet, zlib and the ICRC: reflected polynomial 0xEDB88320, initial value and final
 * XOR 0xFFFFFFFF.
 */
import { type Crc, slicedCrc, slicesOf } from '#base/crc';

/** Computes a CRC-32, like `crc32` of `node:zlib`. */
export type Crc32 = Crc;

/** Up to this many bytes the table is as fast as a native call and the view it needs. */
const TABLE_MAX_BYTES = 128;

const SLICES = slicesOf(0xedb88320);

/** CRC-32 of `bytes[start, end)` from the table; see `slicedCrc`. */
export function tableCrc32(bytes: Uint8Array, start: number, end: number, initial = 0): number {
  return slicedCrc(SLICES, bytes, start, end, initial);
}

export const crc32: Crc32 = (bytes, initial = 0) => tableCrc32(bytes, 0, bytes.length, initial);

/**
 * CRC-32 of `bytes[start, end)`, where `initial` is the result for the preceding bytes: a long range by
 * `large`, which gets a view valid for the call.
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
