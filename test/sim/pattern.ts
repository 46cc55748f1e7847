/** Payloads of programs: slices of one fixed random buffer. An offset into it identifies a payload. */
import { Prng } from '../support/prng.ts';

export const PATTERN_BYTES = 1 << 20;

/** Constant; programs send straight from it. */
export const PATTERN = new Uint8Array(PATTERN_BYTES);
new Prng(0x5eed).fill(PATTERN);

const ZEROS = new Uint8Array(PATTERN_BYTES);

/** True if `length` bytes of `bytes` at `at` equal the pattern at `offset`. */
export function holdsPattern(
  bytes: Uint8Array,
  at: number,
  offset: number,
  length: number,
): boolean {
  const got = bytes.subarray(at, at + length);
  return Buffer.compare(got, PATTERN.subarray(offset, offset + length)) === 0;
}

/** As `holdsPattern`, for data that may have arrived in part: bytes that are still zero match too. */
export function holdsPartly(
  bytes: Uint8Array,
  at: number,
  offset: number,
  length: number,
): boolean {
  if (holdsPattern(bytes, at, offset, length)) return true;
  for (let index = 0; index < length; index += 1) {
    const got = bytes[at + index];
    if (got !== 0 && got !== PATTERN[offset + index]) return false;
  }
  return true;
}

/** True if the bytes from `at` to `end` are still zero. */
export function isBlank(bytes: Uint8Array, at: number, end: number): boolean {
  for (let from = at; from < end; from += PATTERN_BYTES) {
    const to = Math.min(end, from + PATTERN_BYTES);
    if (Buffer.compare(bytes.subarray(from, to), ZEROS.subarray(0, to - from)) !== 0) return false;
  }
  return true;
}
