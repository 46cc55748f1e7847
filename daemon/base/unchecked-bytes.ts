/**
 * Big-endian integer fields over a `Uint8Array`, for headers of InfiniBand and RoCE.
 *
 * Callers check lengths once per packet, not once per field; this makes the `as number` assertions sound. A
 * position outside the bytes reads as 0.
 */

/** The unsigned 16-bit field at `at`. */
export function readUint16(bytes: Uint8Array, at: number): number {
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
}

/** The unsigned 24-bit field at `at`: a queue pair number, a PSN or an MSN. */
export function readUint24(bytes: Uint8Array, at: number): number {
  return (
    ((bytes[at] as number) << 16) | ((bytes[at + 1] as number) << 8) | (bytes[at + 2] as number)
  );
}

/** The unsigned 32-bit field at `at`. */
export function readUint32(bytes: Uint8Array, at: number): number {
  return (
    (((bytes[at] as number) << 24) |
      ((bytes[at + 1] as number) << 16) |
      ((bytes[at + 2] as number) << 8) |
      (bytes[at + 3] as number)) >>>
    0
  );
}

/** Writes the low 16 bits of `value` at `at`. */
export function writeUint16(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 8;
  bytes[at + 1] = value;
}

/** Writes the low 24 bits of `value` at `at`. */
export function writeUint24(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 16;
  bytes[at + 1] = value >>> 8;
  bytes[at + 2] = value;
}

/** Writes the low 32 bits of `value` at `at`. */
export function writeUint32(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}
