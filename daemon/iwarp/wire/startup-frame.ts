/**
 * MPA Request and Reply Frames (RFC 5044 §7.1.1; MPA-7.1.1-01, EMPA-6-01), with the enhanced
 * connection data of RFC 6581 §9.
 *
 *      0                   1                   2                   3
 *      0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 *     +---------------------------------------------------------------+
 *     |            Key (16 bytes): "MPA ID Req Frame" or              |
 *     |                            "MPA ID Rep Frame"                 |
 *     +-+-+-+-+-------+---------------+-------------------------------+
 *     |M|C|R|S|  Res  |      Rev      |          PD_Length            |
 *     +-+-+-+-+-------+---------------+-------------------------------+
 *     |A|B|       IRD (14)            |C|D|        ORD (14)           |  only if S is set
 *     +---------------------------------------------------------------+
 *     |                   Private Data (if any)                       |
 *
 * PD_Length counts the enhanced word, too. These frames carry no CRC and no markers (MPA-7.1-03).
 * Read before changing: RFC 5044 §7.1.1, §7.1.2; RFC 6581 §6, §9, §10.
 */
import { assert } from '#base/assert';
import {
  readUint8,
  readUint16,
  readUint32,
  writeUint8,
  writeUint16,
  writeUint32,
} from '#base/checked-bytes';
import {
  ENHANCED_BYTES,
  type EnhancedParameters,
  enhancedWord,
  parseEnhancedWord,
} from './enhanced-word.ts';

/** Bytes before the Private Data. */
export const STARTUP_HEADER_BYTES = 20;
/** Most Private Data that a frame holds, the enhanced word included (MPA-7.1.1-19). */
const PRIVATE_DATA_MAX_BYTES = 512;
/** Bytes of the longest startup frame. */
export const STARTUP_FRAME_MAX_BYTES = STARTUP_HEADER_BYTES + PRIVATE_DATA_MAX_BYTES;

const KEY_BYTES = 16;
const FLAGS_AT = 16;
const REVISION_AT = 17;
const PD_LENGTH_AT = 18;
const FLAG_M = 0x80;
const FLAG_C = 0x40;
const FLAG_R = 0x20;
const FLAG_S = 0x10;

// MPA-7.1.1-02, MPA-7.1.1-04: "MPA ID Req Frame" and "MPA ID Rep Frame" in ASCII.
const KEYS = {
  request: keyBytes(0x71),
  reply: keyBytes(0x70),
} as const;

function keyBytes(letter: number): readonly number[] {
  return [77, 80, 65, 32, 73, 68, 32, 82, 101, letter, 32, 70, 114, 97, 109, 101];
}

export type StartupFrameKind = 'request' | 'reply';

/** A startup frame without its reserved bits. */
export interface StartupFrame {
  readonly kind: StartupFrameKind;
  /** M: the sender of this frame wants to receive markers. */
  readonly markers: boolean;
  /** C: the sender of this frame wants CRCs. */
  readonly crc: boolean;
  /** R: a Reply that rejects. False in a Request. */
  readonly rejected: boolean;
  /** 1 or 2; 2 when `enhanced` is set. */
  readonly revision: number;
  readonly enhanced: EnhancedParameters | undefined;
  /** The consumer's bytes, without the enhanced word; at most `privateDataMaxBytes`. */
  readonly privateData: Uint8Array;
}

/** Why bytes are not a valid startup frame. Always: close, report, send nothing (MPA-8-06). */
export type StartupFrameError =
  /** Not MPA at all. */
  | 'wrong-key'
  /** The key of the other frame: both ends took the same role (MPA-7.1.2-15). */
  | 'other-key'
  /** A revision that we cannot speak. */
  | 'revision'
  /** PD_Length above 512. */
  | 'private-data-length'
  /** S is set and PD_Length leaves no room for the enhanced word. */
  | 'enhanced-length';

/** Maximum length of consumer Private Data in a frame. */
// EMPA-9-02: the enhanced word takes 4 of the 512 bytes.
export function privateDataMaxBytes(enhanced: boolean): number {
  return enhanced ? PRIVATE_DATA_MAX_BYTES - ENHANCED_BYTES : PRIVATE_DATA_MAX_BYTES;
}

/**
 * Total length in bytes of the frame at the start of `bytes[0, length)`, as far as known: at least
 * the header's 20 until that is complete. An error is found at its first byte, so nothing is awaited
 * or buffered for a frame that cannot become valid.
 */
export function startupFrameBytesNeeded(
  bytes: Uint8Array,
  length: number,
  kind: StartupFrameKind,
): number | StartupFrameError {
  const keyError = checkKey(bytes, Math.min(length, KEY_BYTES), kind);
  if (keyError !== undefined) return keyError;
  if (length <= REVISION_AT) return STARTUP_HEADER_BYTES;
  const revision = readUint8(bytes, REVISION_AT);
  // MPA-7.1.1-16: revision 0 is the RDMAC's, which we do not speak or answer (MPA-C.2-01,
  // MPA-C.2.1-01); above 2 is unknown.
  if (revision < 1 || revision > 2) return 'revision';
  if (length < STARTUP_HEADER_BYTES) return STARTUP_HEADER_BYTES;
  const privateDataLength = readUint16(bytes, PD_LENGTH_AT);
  // MPA-7.1.1-20: before waiting for a single byte of it.
  if (privateDataLength > PRIVATE_DATA_MAX_BYTES) return 'private-data-length';
  // EMPA-6-08
  if (isEnhanced(bytes) && privateDataLength < ENHANCED_BYTES) return 'enhanced-length';
  return STARTUP_HEADER_BYTES + privateDataLength;
}

// MPA-7.1.1-03, MPA-7.1.1-05
function checkKey(
  bytes: Uint8Array,
  length: number,
  kind: StartupFrameKind,
): StartupFrameError | undefined {
  const key = KEYS[kind];
  const otherKey = KEYS[kind === 'request' ? 'reply' : 'request'];
  for (let at = 0; at < length; at++) {
    const byte = bytes[at];
    if (byte === key[at]) continue;
    // MPA-7.1.2-15
    return byte === otherKey[at] ? 'other-key' : 'wrong-key';
  }
  return undefined;
}

// EMPA-6-05, EMPA-6-09: S counts from revision 2 on; in revision 1 the bit is reserved.
function isEnhanced(bytes: Uint8Array): boolean {
  return readUint8(bytes, REVISION_AT) >= 2 && (readUint8(bytes, FLAGS_AT) & FLAG_S) !== 0;
}

/**
 * Reads a whole startup frame: `bytes` must have exactly the needed length. `privateData` borrows
 * `bytes`.
 */
export function parseStartupFrame(
  bytes: Uint8Array,
  kind: StartupFrameKind,
): StartupFrame | StartupFrameError {
  const needed = startupFrameBytesNeeded(bytes, bytes.length, kind);
  if (typeof needed === 'string') return needed;
  assert(bytes.length === needed, 'startup frame is incomplete');
  const flags = readUint8(bytes, FLAGS_AT);
  const enhanced = isEnhanced(bytes);
  // MPA-7.1.1-14, EMPA-6-04: reserved bits are ignored.
  return {
    kind,
    markers: (flags & FLAG_M) !== 0,
    crc: (flags & FLAG_C) !== 0,
    // MPA-7.1.1-11: R means nothing in a Request.
    rejected: kind === 'reply' && (flags & FLAG_R) !== 0,
    revision: readUint8(bytes, REVISION_AT),
    enhanced: enhanced ? parseEnhancedWord(readUint32(bytes, STARTUP_HEADER_BYTES)) : undefined,
    // EMPA-6-07: the consumer gets the bytes after the enhanced word.
    privateData: bytes.subarray(STARTUP_HEADER_BYTES + (enhanced ? ENHANCED_BYTES : 0)),
  };
}

/** Bytes of the frame that `emitStartupFrame` writes. */
export function startupFrameSizeBytes(frame: StartupFrame): number {
  const enhancedBytes = frame.enhanced === undefined ? 0 : ENHANCED_BYTES;
  return STARTUP_HEADER_BYTES + enhancedBytes + frame.privateData.length;
}

/**
 * Writes `frame` into `target`, which must be exactly `startupFrameSizeBytes` bytes long. Throws
 * `RangeError`, with nothing written, when the Private Data is longer than `privateDataMaxBytes`.
 */
export function emitStartupFrame(frame: StartupFrame, target: Uint8Array): void {
  const enhanced = frame.enhanced;
  const limit = privateDataMaxBytes(enhanced !== undefined);
  // MPA-7.1.1-19, EMPA-9-02
  if (frame.privateData.length > limit) {
    throw new RangeError(`Private Data of ${frame.privateData.length} bytes; at most ${limit}`);
  }
  assert(target.length === startupFrameSizeBytes(frame), 'wrong length of the target');
  assert(frame.revision === 2 || frame.revision === 1, 'unsupported revision');
  assert(enhanced === undefined || frame.revision === 2, 'enhanced data in revision 1');
  target.set(KEYS[frame.kind], 0);
  // MPA-7.1.1-13, EMPA-6-04: reserved bits are zero. EMPA-6-02: S marks the enhanced word.
  writeUint8(
    target,
    FLAGS_AT,
    (frame.markers ? FLAG_M : 0) |
      (frame.crc ? FLAG_C : 0) |
      (frame.rejected ? FLAG_R : 0) |
      (enhanced === undefined ? 0 : FLAG_S),
  );
  writeUint8(target, REVISION_AT, frame.revision);
  // MPA-7.1.1-18
  writeUint16(target, PD_LENGTH_AT, target.length - STARTUP_HEADER_BYTES);
  if (enhanced !== undefined) writeUint32(target, STARTUP_HEADER_BYTES, enhancedWord(enhanced));
  target.set(frame.privateData, target.length - frame.privateData.length);
}
