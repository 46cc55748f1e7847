/** Checks the part of a memory region that a call names. */
import { described } from './arguments.ts';

/**
 * The bytes of a part of a region of `regionBytes`: `length`, or all from `offset` on. Throws RangeError,
 * which names the argument, unless they are within the region.
 */
export function bytesWithin(
  call: string,
  regionBytes: number,
  offset: number,
  length: number | undefined,
): number {
  if (!isWithin(offset, regionBytes)) {
    throw outside(call, 'offset', `${regionBytes}, the bytes of the region`, offset);
  }
  const rest = regionBytes - offset;
  if (length === undefined) return rest;
  if (!isWithin(length, rest)) {
    const end = offset === 0 ? 'the bytes of the region' : `the bytes from ${offset} on`;
    throw outside(call, 'length', `${rest}, ${end}`, length);
  }
  return length;
}

function isWithin(value: number, max: number): boolean {
  return Number.isSafeInteger(value) && value >= 0 && value <= max;
}

function outside(call: string, name: string, range: string, value: unknown): RangeError {
  const wants = `a whole number from 0 to ${range}`;
  return new RangeError(`${call}: ${name} must be ${wants}, not ${described(value)}`);
}
