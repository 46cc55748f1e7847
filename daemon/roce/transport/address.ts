/** Remote addresses: pairs of unsigned 32-bit halves, advanced by an offset below 2^32. */

const WORD = 2 ** 32;

/** High half of `hi`:`lo` plus `offset`, modulo 2^64. */
export function addressAddHi(hi: number, lo: number, offset: number): number {
  return (hi + (lo + offset >= WORD ? 1 : 0)) >>> 0;
}

export function addressAddLo(lo: number, offset: number): number {
  return (lo + offset) >>> 0;
}
