/**
 * CRC32C (Castagnoli), as iSCSI and MPA use it (RFC 5044 §4.4, RFC 3720 §12.1).
 *
 * MPA-4.4-10: reflected polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF. The result
 * is a number; its bytes go on the wire least significant first (`writeUint32LE`).
 */

/**
 * Computes a CRC32C. `initial` is the result for the preceding bytes (default 0: none). Returns an
 * unsigned 32-bit number. The bytes are only read. A native implementation is injected as this
 * type.
 */
export type Crc32c = (bytes: Uint8Array, initial?: number) => number;

/**
 * Up to this many bytes the table is used in place: a native call, and the view it needs, would
 * cost more.
 */
export const CRC32C_TABLE_MAX_BYTES = 200;

const POLYNOMIAL_REFLECTED = 0x82f63b78;

/** Eight tables of 256 entries: entry `k * 256 + n` is the CRC of byte n followed by k zeros. */
const SLICES = buildSlices();

function buildSlices(): Int32Array {
  const slices = new Int32Array(8 * 256);
  for (let n = 0; n < 256; n++) {
    let crc = n;
    for (let bit = 0; bit < 8; bit++) {
      crc = (crc & 1) === 1 ? (crc >>> 1) ^ POLYNOMIAL_REFLECTED : crc >>> 1;
    }
    slices[n] = crc;
  }
  for (let i = 256; i < slices.length; i++) {
    const shorter = slices[i - 256] as number;
    slices[i] = (shorter >>> 8) ^ (slices[shorter & 0xff] as number);
  }
  return slices;
}

/**
 * CRC32C of `bytes[start, end)` from the table, eight bytes a step, without a view. `initial` is
 * the result for the preceding bytes. Throws `RangeError` when the range extends past `bytes`.
 */
export function tableCrc32c(bytes: Uint8Array, start: number, end: number, initial = 0): number {
  if (start < 0 || end < start || end > bytes.length) {
    throw new RangeError(`range ${start}..${end} leaves a buffer of ${bytes.length}`);
  }
  // Every `as number` below reads bytes[at..at + 7] with at + 8 <= end <= bytes.length, or a table
  // entry whose index is a slice's base plus 8 bits.
  const slices = SLICES;
  let crc = ~initial;
  let at = start;
  for (; at + 8 <= end; at += 8) {
    const low =
      crc ^
      ((bytes[at] as number) |
        ((bytes[at + 1] as number) << 8) |
        ((bytes[at + 2] as number) << 16) |
        ((bytes[at + 3] as number) << 24));
    crc =
      (slices[1792 + (low & 0xff)] as number) ^
      (slices[1536 + ((low >>> 8) & 0xff)] as number) ^
      (slices[1280 + ((low >>> 16) & 0xff)] as number) ^
      (slices[1024 + (low >>> 24)] as number) ^
      (slices[768 + (bytes[at + 4] as number)] as number) ^
      (slices[512 + (bytes[at + 5] as number)] as number) ^
      (slices[256 + (bytes[at + 6] as number)] as number) ^
      (slices[bytes[at + 7] as number] as number);
  }
  for (; at < end; at++) {
    crc = (crc >>> 8) ^ (slices[(crc ^ (bytes[at] as number)) & 0xff] as number);
  }
  return ~crc >>> 0;
}

/**
 * This module's `Crc32c`: pure, always available, some hundred megabytes to a gigabyte per second.
 */
export const crc32c: Crc32c = (bytes, initial = 0) => tableCrc32c(bytes, 0, bytes.length, initial);

/**
 * CRC32C of `bytes[start, end)`: a small range from the table, a large one by `large`, which gets a
 * view valid for the call.
 */
export function rangeCrc32c(large: Crc32c, bytes: Uint8Array, start: number, end: number): number {
  if (end - start <= CRC32C_TABLE_MAX_BYTES) return tableCrc32c(bytes, start, end);
  return large(bytes.subarray(start, end));
}
