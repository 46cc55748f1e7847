/**
 * CRC32C (Castagnoli), as iSCSI, MPA and SCTP use it (RFC 5044 §4.4, RFC 3720 §12.1).
 *
 * MPA-4.4-10: reflected polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF. The result
 * is a number; its bytes go on the wire least significant first (`writeUint32LE`).
 */
import { type Crc, slicedCrc, slicesOf } from '#base/crc';

/** Computes a CRC32C. */
export type Crc32c = Crc;

/** Up to this many bytes the table is as fast as a native call and the view it needs. */
export const CRC32C_TABLE_MAX_BYTES = 200;

const SLICES = slicesOf(0x82f63b78);

/** CRC32C of `bytes[start, end)` from the table; see `slicedCrc`. */
export function tableCrc32c(bytes: Uint8Array, start: number, end: number, initial = 0): number {
  return slicedCrc(SLICES, bytes, start, end, initial);
}

/** Always available, some hundred megabytes to a gigabyte per second. */
export const crc32c: Crc32c = (bytes, initial = 0) => tableCrc32c(bytes, 0, bytes.length, initial);

/** CRC32C of `bytes[start, end)`: a long range by `large`, which gets a view valid for the call. */
export function rangeCrc32c(large: Crc32c, bytes: Uint8Array, start: number, end: number): number {
  if (end - start <= CRC32C_TABLE_MAX_BYTES) return tableCrc32c(bytes, start, end);
  return large(bytes.subarray(start, end));
}
