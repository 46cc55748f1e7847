/**
 * Bounds-checked integer fields over a `Uint8Array`.
 *
 * All multi-octet fields of MPA, DDP and RDMAP are in network byte order; the one exception is the
 * MPA CRC field, whose octets leave least significant first (RFC 5044 §4.4). Plain arithmetic on
 * octets is used, since a `DataView` per call would be an allocation per field. The `as number`
 * assertions below are sound: each index has been checked against `octets.length`.
 */

function outOfBounds(octets: Uint8Array, at: number, size: number): never {
  throw new RangeError(`${size} octets at ${at} leave a buffer of ${octets.length}`);
}

/** The octet at `at`. Throws `RangeError` outside of `octets`. */
export function readUint8(octets: Uint8Array, at: number): number {
  if (at < 0 || at >= octets.length) outOfBounds(octets, at, 1);
  return octets[at] as number;
}

/** The unsigned 16-bit field at `at`. Throws `RangeError` outside of `octets`. */
export function readUint16(octets: Uint8Array, at: number): number {
  if (at < 0 || at + 2 > octets.length) outOfBounds(octets, at, 2);
  return ((octets[at] as number) << 8) | (octets[at + 1] as number);
}

/** The unsigned 32-bit field at `at`. Throws `RangeError` outside of `octets`. */
export function readUint32(octets: Uint8Array, at: number): number {
  if (at < 0 || at + 4 > octets.length) outOfBounds(octets, at, 4);
  return (
    (((octets[at] as number) << 24) |
      ((octets[at + 1] as number) << 16) |
      ((octets[at + 2] as number) << 8) |
      (octets[at + 3] as number)) >>>
    0
  );
}

/** The unsigned 32-bit field at `at`, least significant octet first: the MPA CRC field only. */
export function readUint32LE(octets: Uint8Array, at: number): number {
  if (at < 0 || at + 4 > octets.length) outOfBounds(octets, at, 4);
  return (
    ((octets[at] as number) |
      ((octets[at + 1] as number) << 8) |
      ((octets[at + 2] as number) << 16) |
      ((octets[at + 3] as number) << 24)) >>>
    0
  );
}

/** Writes the low 8 bits of `value` at `at`. Throws `RangeError` outside of `octets`. */
export function writeUint8(octets: Uint8Array, at: number, value: number): void {
  if (at < 0 || at >= octets.length) outOfBounds(octets, at, 1);
  octets[at] = value;
}

/** Writes the low 16 bits of `value` at `at`. Throws `RangeError` outside of `octets`. */
export function writeUint16(octets: Uint8Array, at: number, value: number): void {
  if (at < 0 || at + 2 > octets.length) outOfBounds(octets, at, 2);
  octets[at] = value >>> 8;
  octets[at + 1] = value;
}

/** Writes the low 32 bits of `value` at `at`. Throws `RangeError` outside of `octets`. */
export function writeUint32(octets: Uint8Array, at: number, value: number): void {
  if (at < 0 || at + 4 > octets.length) outOfBounds(octets, at, 4);
  octets[at] = value >>> 24;
  octets[at + 1] = value >>> 16;
  octets[at + 2] = value >>> 8;
  octets[at + 3] = value;
}

/** Writes the low 32 bits of `value`, least significant octet first: the MPA CRC field only. */
export function writeUint32LE(octets: Uint8Array, at: number, value: number): void {
  if (at < 0 || at + 4 > octets.length) outOfBounds(octets, at, 4);
  octets[at] = value;
  octets[at + 1] = value >>> 8;
  octets[at + 2] = value >>> 16;
  octets[at + 3] = value >>> 24;
}

/** Below this many octets a loop is cheaper than the view that `Uint8Array.set` needs. */
const LOOP_COPY_MAX_BYTES = 48;

/** Copies `source[start, end)` to `target` at `at`. The two may be one buffer if `at <= start`. */
export function copyOctets(
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
