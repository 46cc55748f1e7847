/**
 * Packet sequence numbers: 24 bits that wrap (IBTA 9.7.1).
 *
 * `psnDistance` orders two numbers that are less than half the space apart, which the window guarantees.
 * `addPsn` and `psnDistance` also serve MSNs, which have 24 bits too.
 */

const PSN_MASK = 0xff_ffff;

/** The PSN `count` packets after `psn`; `count` may be negative. */
export function addPsn(psn: number, count: number): number {
  return (psn + count) & PSN_MASK;
}

/** How far `psn` is ahead of `base`, in packets: -2^23 to 2^23 - 1. Negative if `psn` is older. */
export function psnDistance(psn: number, base: number): number {
  return ((psn - base) << 8) >> 8;
}
