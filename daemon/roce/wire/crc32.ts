/**
 * CRC-32 of Ethernet, zlib and the ICRC: reflected polynomial 0xEDB88320, initial value and final
 * XOR 0xFFFFFFFF. `rangeCrc32` chooses between the table and a native implementation.
 */

/**
 * Computes a CRC-32. `initial` is the result for the preceding bytes (default 0: none). Returns an
 * unsigned 32-bit number. The bytes are only read. A native implementation, such as that of
 * `node:zlib`, is injected as this type.
 */
export type Crc32 = (bytes: Uint8Array, initial?: number) => number;

/** Up to this many bytes the table is used in place: a native call needs a view and costs more. */
const TABLE_MAX_BYTES = 128;

const POLYNOMIAL_REFLECTED = 0xedb88320;

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
 * CRC-32 of `bytes[start, end)` from the table, eight bytes a step, without a view. `initial` is
 * the result for the preceding bytes. Throws `RangeError` when the range extends past `bytes`.
 */
export function tableCrc32(bytes: Uint8Array, start: number, end: number, initial = 0): number {
  if (start < 0 || end < start || end > bytes.length) {
    throw new RangeError(`range ${start}..${end} extends past a buffer of ${bytes.length} bytes`);
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

/** This module's `Crc32`: pure and always available. */
export const crc32: Crc32 = (bytes, initial = 0) => tableCrc32(bytes, 0, bytes.length, initial);

/**
 * CRC-32 of `bytes[start, end)` behind bytes with the result `initial`: a small range from the
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
