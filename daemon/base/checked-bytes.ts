/**
 * Bounds-checked integer fields over a `Uint8Array`.
 *
 * All multi-byte fields of MPA, DDP and RDMAP are in network byte order, except the MPA CRC field,
 * which is sent least significant byte first (RFC 5044 §4.4), as are the fields of the preload library's
 * requests. The code uses arithmetic on bytes
 * because a `DataView` per call would allocate. The `as number` assertions below are sound:
 * each index has been checked against `bytes.length`.
 */

function outOfBounds(bytes: Uint8Array, at: number, size: number): never {
  throw new RangeError(`${size} bytes at ${at} exceed a buffer of ${bytes.length} bytes`);
}

/** The byte at `at`. Throws `RangeError` outside `bytes`. */
export function readUint8(bytes: Uint8Array, at: number): number {
  if (at < 0 || at >= bytes.length) outOfBounds(bytes, at, 1);
  return bytes[at] as number;
}

/** The unsigned 16-bit field at `at`. Throws `RangeError` outside `bytes`. */
export function readUint16(bytes: Uint8Array, at: number): number {
  if (at < 0 || at + 2 > bytes.length) outOfBounds(bytes, at, 2);
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
}

/** The unsigned 32-bit field at `at`. Throws `RangeError` outside `bytes`. */
export function readUint32(bytes: Uint8Array, at: number): number {
  if (at < 0 || at + 4 > bytes.length) outOfBounds(bytes, at, 4);
  return (
    (((bytes[at] as number) << 24) |
      ((bytes[at + 1] as number) << 16) |
      ((bytes[at + 2] as number) << 8) |
      (bytes[at + 3] as number)) >>>
    0
  );
}

/** The unsigned 32-bit field at `at`, least significant byte first. Throws `RangeError` outside `bytes`. */
export function readUint32LE(bytes: Uint8Array, at: number): number {
  if (at < 0 || at + 4 > bytes.length) outOfBounds(bytes, at, 4);
  return (
    ((bytes[at] as number) |
      ((bytes[at + 1] as number) << 8) |
      ((bytes[at + 2] as number) << 16) |
      ((bytes[at + 3] as number) << 24)) >>>
    0
  );
}

/** Writes the low 8 bits of `value` at `at`. Throws `RangeError` outside `bytes`. */
export function writeUint8(bytes: Uint8Array, at: number, value: number): void {
  if (at < 0 || at >= bytes.length) outOfBounds(bytes, at, 1);
  bytes[at] = value;
}

/** Writes the low 16 bits of `value` at `at`. Throws `RangeError` outside `bytes`. */
export function writeUint16(bytes: Uint8Array, at: number, value: number): void {
  if (at < 0 || at + 2 > bytes.length) outOfBounds(bytes, at, 2);
  bytes[at] = value >>> 8;
  bytes[at + 1] = value;
}

/** Writes the low 32 bits of `value` at `at`. Throws `RangeError` outside `bytes`. */
export function writeUint32(bytes: Uint8Array, at: number, value: number): void {
  if (at < 0 || at + 4 > bytes.length) outOfBounds(bytes, at, 4);
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

/** Writes the low 32 bits of `value`, least significant byte first: the MPA CRC field only. */
export function writeUint32LE(bytes: Uint8Array, at: number, value: number): void {
  if (at < 0 || at + 4 > bytes.length) outOfBounds(bytes, at, 4);
  bytes[at] = value;
  bytes[at + 1] = value >>> 8;
  bytes[at + 2] = value >>> 16;
  bytes[at + 3] = value >>> 24;
}

/** Up to this length, a loop is cheaper than creating the view that `Uint8Array.set` needs. */
const LOOP_COPY_MAX_BYTES = 48;

/** Copies `source[start, end)` to `target` at `at`. Both may be one buffer if `at <= start`. */
export function copyBytes(
  source: Uint8Array,
  start: number,
  end: number,
  target: Uint8Array,
  at: number,
): void {
  const size = end - start;
  if (start < 0 || size < 0 || end > source.length) outOfBounds(source, start, size);
  if (at < 0 || at + size > target.length) outOfBounds(target, at, size);
  if (size > LOOP_COPY_MAX_BYTES) {
    if (source === target) target.copyWithin(at, start, end);
    else target.set(source.subarray(start, end), at);
    return;
  }
  for (let i = 0; i < size; i++) target[at + i] = source[start + i] as number;
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
