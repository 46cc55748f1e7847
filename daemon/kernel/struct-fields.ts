/** 64-bit numbers in structs, with range checks. */
import { invalid } from '#contract/verbs/errors';

/** Writes a number of up to 53 bits as u64. */
export function setUint64(fields: DataView, at: number, value: number): void {
  fields.setUint32(at, value >>> 0, true);
  fields.setUint32(at + 4, Math.floor(value / 2 ** 32), true);
}

/** Reads a u64 as a number. EINVAL beyond the exact 53 bits. */
export function getUint64(fields: DataView, at: number): number {
  const value = fields.getUint32(at + 4, true) * 2 ** 32 + fields.getUint32(at, true);
  if (!Number.isSafeInteger(value)) {
    throw invalid(`${value} is beyond the address space of a process`);
  }
  return value;
}

/** A response to fill in: views of all of it, and of the provider's part after `coreBytes`. */
export function newReply(
  coreBytes: number,
  privateBytes: number,
): { readonly bytes: Uint8Array; readonly fields: DataView; readonly own: DataView } {
  const { bytes, fields } = newStruct(coreBytes + privateBytes);
  return { bytes, fields, own: new DataView(bytes.buffer, coreBytes) };
}

/** Zeroed bytes to fill in, and a view of them. */
export function newStruct(sizeBytes: number): {
  readonly bytes: Uint8Array;
  readonly fields: DataView;
} {
  const bytes = new Uint8Array(sizeBytes);
  return { bytes, fields: new DataView(bytes.buffer) };
}
