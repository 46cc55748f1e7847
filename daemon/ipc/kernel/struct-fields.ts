/** Numbers of 64 bits in structs, and what is thrown when they do not fit. */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';

/** Writes a number of up to 53 bits as u64. */
export function setUint64(fields: DataView, at: number, value: number): void {
  fields.setUint32(at, value >>> 0, true);
  fields.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
}

/** Reads a u64 as a number. EINVAL beyond the 53 bits that are exact. */
export function getUint64(fields: DataView, at: number): number {
  const value = fields.getUint32(at + 4, true) * 2 ** 32 + fields.getUint32(at, true);
  if (!Number.isSafeInteger(value)) {
    throw new VerbsError('EINVAL', `${value} needs more than the 53 bits that are supported`);
  }
  return value;
}

/** Zero octets to be filled in, and a view of them. */
export function newStruct(bytes: number): {
  readonly octets: Uint8Array;
  readonly fields: DataView;
} {
  const octets = new Uint8Array(bytes);
  return { octets, fields: new DataView(octets.buffer) };
}
