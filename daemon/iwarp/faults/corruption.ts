/**
 * Corrupts an outgoing FPDU in place. Recalculates the CRC, except for `corrupt-crc`: the peer must detect
 * the error by the rule for the field.
 *
 * A segment in an SCTP message is corrupted the same way: its two bytes of DDP-SSN are where an FPDU has its
 * length.
 */
import {
  readUint8,
  readUint16,
  readUint32,
  readUint32LE,
  writeUint16,
  writeUint32,
  writeUint32LE,
} from '#base/checked-bytes';
import type { FaultKind } from '#contract/protocol/faults';
import type { Crc32c } from '../wire/crc32c.ts';
import {
  DDPControl,
  TaggedField,
  UNTAGGED_HEADER_BYTES,
  UntaggedField,
} from '../wire/ddp-header.ts';
import { FPDU_CRC_BYTES, fpduSizeBytes, ULPDU_LENGTH_BYTES } from '../wire/fpdu.ts';
import {
  insertMarkers,
  leadingMarkerBytes,
  MARKER_INTERVAL_BYTES,
  stripMarkers,
} from '../wire/marker.ts';
import { ReadRequestField } from '../wire/rdmap-header.ts';
import type { Frame, Framing } from './frame.ts';

/** Bits to flip. Each turns any usual value into one that no peer can accept. */
const Flip = { crc: 0x0000_0001, stag: 0x5a5a_5a00, msn: 0x8000_0000, mo: 0x4000_0000 } as const;
/** Shortens by a word: the peer then takes payload, or the last bytes of the header, for the CRC. */
const LENGTH_CHANGE_BYTES = 4;
/** The low half of a marker is FPDUPTR, and its two low bits are reserved. */
const FPDU_POINTER_FLIP = 0x0000_0104;

type Corruptor = (fpdu: Uint8Array, opcode: Frame['opcode']) => boolean;

/** Kinds that change a header field, with its offset in the FPDU without markers. */
const HEADER_CORRUPTORS: Readonly<Partial<Record<FaultKind, Corruptor>>> = {
  'corrupt-length': (fpdu) => {
    const length = readUint16(fpdu, 0);
    if (length <= LENGTH_CHANGE_BYTES) return false;
    writeUint16(fpdu, 0, length - LENGTH_CHANGE_BYTES);
    return true;
  },
  'corrupt-stag': (fpdu, opcode) => {
    if (isTagged(fpdu)) return flip(fpdu, TaggedField.stag, Flip.stag);
    if (opcode !== 'read-request') return false;
    return flip(fpdu, UNTAGGED_HEADER_BYTES + ReadRequestField.sourceStag, Flip.stag);
  },
  'corrupt-msn': (fpdu) => !isTagged(fpdu) && flip(fpdu, UntaggedField.msn, Flip.msn),
  'corrupt-mo': (fpdu) => !isTagged(fpdu) && flip(fpdu, UntaggedField.mo, Flip.mo),
};

/** True if the frame has the field that this kind corrupts. */
export function canCorrupt(
  kind: FaultKind,
  bytes: Uint8Array,
  frame: Frame,
  framing: Framing,
): boolean {
  if (frame.startup) return false;
  switch (kind) {
    case 'corrupt-crc':
      return framing.crcEnabled;
    case 'corrupt-marker':
      return framing.markers && markerAt(frame) !== undefined;
    case 'corrupt-length':
      return !frame.message;
    case 'corrupt-stag': {
      const control = readUint8(bytes, headerOf(frame, framing) + ULPDU_LENGTH_BYTES);
      return (control & DDPControl.tagged) !== 0 || frame.opcode === 'read-request';
    }
    case 'corrupt-msn':
    case 'corrupt-mo': {
      const control = readUint8(bytes, headerOf(frame, framing) + ULPDU_LENGTH_BYTES);
      return (control & DDPControl.tagged) === 0;
    }
    default:
      return true;
  }
}

/**
 * Corrupts the FPDU in `bytes`, from its leading marker to its CRC, after `canCorrupt` returned true.
 */
export function corrupt(
  kind: FaultKind,
  bytes: Uint8Array,
  frame: Frame,
  framing: Framing,
  crc32c: Crc32c,
): void {
  const crcAt = bytes.length - FPDU_CRC_BYTES;
  if (kind === 'corrupt-crc') {
    writeUint32LE(bytes, crcAt, (readUint32LE(bytes, crcAt) ^ Flip.crc) >>> 0);
    return;
  }
  const marker = kind === 'corrupt-marker' ? markerAt(frame) : undefined;
  if (marker !== undefined) flipWord(bytes, marker, FPDU_POINTER_FLIP);
  else corruptHeader(kind, bytes, frame, framing);
  if (framing.crcEnabled) writeUint32LE(bytes, crcAt, crc32c(bytes.subarray(0, crcAt)));
}

function corruptHeader(kind: FaultKind, bytes: Uint8Array, frame: Frame, framing: Framing): void {
  const corruptor = HEADER_CORRUPTORS[kind];
  if (corruptor === undefined) return;
  if (!framing.markers) {
    corruptor(bytes, frame.opcode);
    return;
  }
  const { phase } = frame;
  const lead = leadingMarkerBytes(phase);
  const plainBytes = fpduSizeBytes(readUint16(bytes, lead));
  const plain = new Uint8Array(plainBytes);
  stripMarkers(bytes, 0, plainBytes, phase, plain, 0);
  corruptor(plain, frame.opcode);
  bytes.set(plain, lead);
  insertMarkers(bytes, 0, plainBytes, phase);
}

/** Offset of the first marker of an FPDU; undefined if it has none. */
function markerAt({ phase, bytes }: Frame): number | undefined {
  if (phase === 0) return 0;
  const at = MARKER_INTERVAL_BYTES - phase;
  return at < bytes ? at : undefined;
}

function headerOf({ phase }: Frame, { markers }: Framing): number {
  return markers ? leadingMarkerBytes(phase) : 0;
}

function isTagged(fpdu: Uint8Array): boolean {
  return (readUint8(fpdu, ULPDU_LENGTH_BYTES) & DDPControl.tagged) !== 0;
}

/** Flips bits of a field of the DDP segment. */
function flip(fpdu: Uint8Array, field: number, bits: number): boolean {
  flipWord(fpdu, ULPDU_LENGTH_BYTES + field, bits);
  return true;
}

function flipWord(bytes: Uint8Array, at: number, bits: number): void {
  writeUint32(bytes, at, (readUint32(bytes, at) ^ bits) >>> 0);
}
