/**
 * Addresses of regions: unsigned 64-bit numbers, for SGEs and, as Tagged Offsets, for peers.
 *
 * They are `bigint` where regions are created and inspected, and pairs of 32-bit halves on hot
 * paths, since a `bigint` costs an allocation. Offsets within a region are plain numbers: regions
 * are short enough for these to be exact.
 */

const HALF = 2 ** 32;
const LOW_BITS = 0xffff_ffffn;

export const ADDRESS_END = 1n << 64n;

export function highHalf(address: bigint): number {
  return Number(address >> 32n);
}

export function lowHalf(address: bigint): number {
  return Number(address & LOW_BITS);
}

// DDP-4.2-07: the difference of the upper halves times 2^32 is exact. Rounding starts where the sum
// passes 2^53, beyond the end of any region.
/** Distance of an address from a base; exact below 2^53, negative before the base. */
export function distance(hi: number, lo: number, baseHi: number, baseLo: number): number {
  return (hi - baseHi) * HALF + (lo - baseLo);
}

/** The upper half of the address `offset` bytes further; it must not pass 2^64. */
export function advanceHi(hi: number, lo: number, offset: number): number {
  return hi + Math.floor((lo + offset) / HALF);
}

/** The lower half. */
export function advanceLo(lo: number, offset: number): number {
  return (lo + offset) % HALF;
}
