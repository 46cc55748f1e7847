/**
 * Order of 32-bit numbers that wrap (MSN, TCP sequence numbers), as RFC 1982 defines it: a number
 * is before another when the way forward to it is shorter than 2^31.
 */

/** `value + count` modulo 2^32, unsigned. `count` may be negative. */
export function serialAdd(value: number, count: number): number {
  return (value + count) >>> 0;
}

/** The signed way from `from` to `to`, in -2^31 .. 2^31 - 1; positive when `to` comes later. */
export function serialDistance(from: number, to: number): number {
  return (to - from) | 0;
}

/** True when `a` comes before `b`. */
export function serialBefore(a: number, b: number): boolean {
  return ((a - b) | 0) < 0;
}
