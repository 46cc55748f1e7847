/**
 * Tagged Offsets: 64-bit numbers as two unsigned 32-bit halves (RFC 5041 §4.2).
 *
 * A `bigint` per segment costs an allocation; two numbers do not. Lengths are below 2^32, so an
 * addition needs only one carry.
 */

const TWO_TO_32 = 0x1_0000_0000;

/** The low half of `lo + count`; `count` is 0 to 2^32 - 1. */
export function toAddLo(lo: number, count: number): number {
  return (lo + count) >>> 0;
}

/** The high half of the offset plus `count`, modulo 2^32. */
export function toAddHi(hi: number, lo: number, count: number): number {
  return lo + count >= TWO_TO_32 ? (hi + 1) >>> 0 : hi;
}

/** Both halves of the offset plus `count`. Allocates: only for rare paths. */
export function to64(hi: number, lo: number, count: number): { hi: number; lo: number } {
  return { hi: toAddHi(hi, lo, count), lo: toAddLo(lo, count) };
}

/**
 * True when the unsigned sum of offset and `count` reaches 2^64. A range that ends exactly there
 * counts as wrapped (DDP-7.1-14): its end has no offset.
 */
export function toWraps(hi: number, lo: number, count: number): boolean {
  return hi === 0xffff_ffff && lo + count >= TWO_TO_32;
}
