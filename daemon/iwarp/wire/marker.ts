/**
 * MPA markers (RFC 5044 §4.2, §4.3; MPA-4.2-01): four bytes at every 512th byte of the stream, counted for
 * each direction from the first byte after the sender's own startup frame.
 *
 *      0                   1                   2                   3
 *      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 *     +---------------------------------------------------------------+
 *     |           RESERVED            |            FPDUPTR            |
 *     +---------------------------------------------------------------+
 *
 * All positions here are phases: stream positions modulo 512. An FPDU's own bytes are called its
 * plain bytes; with its markers, a leading one included, it spans more of the stream. Since FPDUs
 * are multiples of 4 bytes and the first marker is at position 0, every phase at which an FPDU
 * begins is a multiple of 4, and no marker cuts a length or CRC field (MPA-4.1-07).
 *
 * Read before changing: RFC 5044 §4.1 to §4.4, figures 4 to 6.
 */
import { readUint16, writeUint32 } from '#base/checked-bytes';

export const MARKER_BYTES = 4;
/** From the start of one marker to the start of the next, markers included (MPA-4.3-03). */
export const MARKER_INTERVAL_BYTES = 512;
/** Plain bytes between two markers. */
const BETWEEN_MARKERS_BYTES = MARKER_INTERVAL_BYTES - MARKER_BYTES;

// MPA-4.3-05, MPA-4.3-08: positions count from the first marker, and since 2^32 is a multiple of
// 512, a phase is right however often a sequence number wraps.
/** Phase of a stream position, which may be a difference of wrapped 32-bit sequence numbers. */
export function markerPhase(position: number): number {
  return position & (MARKER_INTERVAL_BYTES - 1);
}

// MPA-4.3-07, MPA-4.3-06: a marker due at the start of an FPDU precedes its length field.
/** Bytes of the marker in front of an FPDU that begins at `phase`: 4 or 0. */
export function leadingMarkerBytes(phase: number): number {
  return phase === 0 ? MARKER_BYTES : 0;
}

/** Plain bytes from the length field of an FPDU at `phase` to the first marker within it. */
function plainBytesToMarker(phase: number): number {
  return MARKER_INTERVAL_BYTES - phase - leadingMarkerBytes(phase);
}

/** Markers within an FPDU of `fpduBytes` plain bytes, without one that would follow its CRC. */
function innerMarkerCount(phase: number, fpduBytes: number): number {
  const rest = fpduBytes - plainBytesToMarker(phase);
  return rest > 0 ? Math.ceil(rest / BETWEEN_MARKERS_BYTES) : 0;
}

/** Bytes of the stream that an FPDU of `fpduBytes` plain bytes at `phase` spans, with markers. */
export function markedSizeBytes(phase: number, fpduBytes: number): number {
  return leadingMarkerBytes(phase) + fpduBytes + MARKER_BYTES * innerMarkerCount(phase, fpduBytes);
}

/**
 * Spreads an FPDU and inserts its markers. On entry its plain bytes follow the room for its
 * leading marker: at `start + leadingMarkerBytes(phase)`. On return `bytes` holds, from `start` on,
 * the `markedSizeBytes(phase, fpduBytes)` bytes of the stream, for which it must have room.
 */
export function insertMarkers(
  bytes: Uint8Array,
  start: number,
  fpduBytes: number,
  phase: number,
): void {
  const header = start + leadingMarkerBytes(phase);
  // MPA-4.2-02, MPA-4.3-06: RESERVED is zero, and so is the pointer of a marker between FPDUs.
  if (header !== start) writeUint32(bytes, start, 0);
  const firstBytes = plainBytesToMarker(phase);
  let end = header + fpduBytes;
  // Back to front, so no byte is overwritten before it has moved.
  for (let i = innerMarkerCount(phase, fpduBytes) - 1; i >= 0; i--) {
    const piece = header + firstBytes + i * BETWEEN_MARKERS_BYTES;
    const marker = header + firstBytes + i * MARKER_INTERVAL_BYTES;
    bytes.copyWithin(marker + MARKER_BYTES, piece, end);
    // MPA-4.3-04, MPA-4.3-10, MPA-4.3-11: the distance from the FPDU's length field to this marker,
    // earlier markers included. MPA-4.2-04: a multiple of 4, as all positions are.
    writeUint32(bytes, marker, marker - header);
    end = piece;
  }
}

/**
 * True when every marker of the FPDU that spans `bytes` from `start` on points to its length field.
 * RESERVED and the two low bits of FPDUPTR are ignored (MPA-4.2-03, MPA-4.2-05).
 */
export function markersAgree(
  bytes: Uint8Array,
  start: number,
  fpduBytes: number,
  phase: number,
): boolean {
  const header = start + leadingMarkerBytes(phase);
  if (header !== start && readFpduPtr(bytes, start) !== 0) return false;
  const count = innerMarkerCount(phase, fpduBytes);
  let marker = header + plainBytesToMarker(phase);
  for (let i = 0; i < count; i++, marker += MARKER_INTERVAL_BYTES) {
    // MPA-3-08: lengths that we only receive put markers beyond the pointer's 16 bits.
    if (readFpduPtr(bytes, marker) !== ((marker - header) & 0xffff)) return false;
  }
  return true;
}

function readFpduPtr(bytes: Uint8Array, marker: number): number {
  return readUint16(bytes, marker + 2) & 0xfffc;
}

/**
 * Copies the plain bytes of the FPDU that spans `bytes` from `start` on to `target` at `at`
 * (MPA-4.3-13). `target` may be `bytes` if `at <= start`.
 */
export function stripMarkers(
  bytes: Uint8Array,
  start: number,
  fpduBytes: number,
  phase: number,
  target: Uint8Array,
  at: number,
): void {
  let from = start + leadingMarkerBytes(phase);
  let to = at;
  let left = fpduBytes;
  let piece = Math.min(left, plainBytesToMarker(phase));
  while (left > 0) {
    if (target === bytes) target.copyWithin(to, from, from + piece);
    else target.set(bytes.subarray(from, from + piece), to);
    to += piece;
    from += piece + MARKER_BYTES;
    left -= piece;
    piece = Math.min(left, BETWEEN_MARKERS_BYTES);
  }
}
