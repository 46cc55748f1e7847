/**
 * DDP segment headers (RFC 5041 §4).
 *
 * ```
 *  tagged, 14 bytes                          untagged, 18 bytes
 *  0  T L Rsvd(4) DV(2)                       0  T L Rsvd(4) DV(2)
 *  1  RsvdULP (8 bits)                        1  RsvdULP, bits 0-7
 *  2  STag (32)                               2  RsvdULP, bits 8-39
 *  6  TO (64)                                 6  QN (32)
 *                                             10 MSN (32)
 *                                             14 MO (32)
 * ```
 *
 * The header is read in place: field positions are constants, and the receiver reads what it needs
 * with the getters of `bytes.ts` after one length check. `readDDPHeader` returns an object, for
 * traces and tests.
 */
import { readUint32, writeUint32 } from '#base/checked-bytes';

/** Bytes of a tagged header (DDP-4.2-01). */
export const TAGGED_HEADER_BYTES = 14;
/** Bytes of an untagged header (DDP-4.3-01). */
export const UNTAGGED_HEADER_BYTES = 18;
/** The DDP version of every stream, with MPA revision 1 or 2. */
export const DDP_VERSION = 1;

/** Bits of the control byte (DDP-4.1-01). */
export const DDPControl = { tagged: 0x80, last: 0x40, reserved: 0x3c, version: 0x03 } as const;

/** Byte positions, counted from the start of the segment. */
export const TaggedField = { control: 0, ulp: 1, stag: 2, toHi: 6, toLo: 10 } as const;
/** Byte positions, counted from the start of the segment. */
export const UntaggedField = { control: 0, ulp: 1, ulpWord: 2, qn: 6, msn: 10, mo: 14 } as const;

/** A decoded header. The 64-bit TO is in two unsigned halves. */
export type DDPHeader =
  | {
      readonly tagged: true;
      readonly last: boolean;
      readonly version: number;
      /** The 8 bits that DDP carries for the layer above. */
      readonly ulp: number;
      readonly stag: number;
      readonly toHi: number;
      readonly toLo: number;
    }
  | {
      readonly tagged: false;
      readonly last: boolean;
      readonly version: number;
      /** The first 8 of the 40 bits that DDP carries for the layer above. */
      readonly ulp: number;
      /** The other 32 bits. */
      readonly ulpWord: number;
      readonly qn: number;
      readonly msn: number;
      readonly mo: number;
    };

/** Header length of the segment that starts with `control`, in bytes. */
export function ddpHeaderBytes(control: number): number {
  return (control & DDPControl.tagged) !== 0 ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES;
}

/**
 * The header of the segment of `length` bytes at `start`, or undefined when the segment is shorter
 * than its header. Reserved bits are ignored (DDP-4.1-10).
 */
export function readDDPHeader(
  bytes: Uint8Array,
  start: number,
  length: number,
): DDPHeader | undefined {
  const control = bytes[start];
  if (control === undefined || length < ddpHeaderBytes(control)) return undefined;
  const last = (control & DDPControl.last) !== 0;
  const version = control & DDPControl.version;
  const ulp = bytes[start + TaggedField.ulp] ?? 0;
  if ((control & DDPControl.tagged) !== 0) {
    return {
      tagged: true,
      last,
      version,
      ulp,
      stag: readUint32(bytes, start + TaggedField.stag),
      toHi: readUint32(bytes, start + TaggedField.toHi),
      toLo: readUint32(bytes, start + TaggedField.toLo),
    };
  }
  return {
    tagged: false,
    last,
    version,
    ulp,
    ulpWord: readUint32(bytes, start + UntaggedField.ulpWord),
    qn: readUint32(bytes, start + UntaggedField.qn),
    msn: readUint32(bytes, start + UntaggedField.msn),
    mo: readUint32(bytes, start + UntaggedField.mo),
  };
}

/** A tagged header. Each sender and receiver reuses one. */
export interface TaggedHeader {
  last: boolean;
  /** The RDMAP control byte. */
  ulp: number;
  stag: number;
  toHi: number;
  toLo: number;
}

/** An untagged header. Each sender and receiver reuses one. */
export interface UntaggedHeader {
  last: boolean;
  /** The first 8 and the other 32 of RDMAP's 40 bits. */
  ulp: number;
  ulpWord: number;
  qn: number;
  msn: number;
  mo: number;
}

export function makeTaggedHeader(): TaggedHeader {
  return { last: false, ulp: 0, stag: 0, toHi: 0, toLo: 0 };
}

export function makeUntaggedHeader(): UntaggedHeader {
  return { last: false, ulp: 0, ulpWord: 0, qn: 0, msn: 0, mo: 0 };
}

/** Writes a tagged header of 14 bytes at `at`. */
// DDP-4.1-09 DDP-4.1-11 reserved bits zero, version 1, whatever the buffer contained.
export function writeTaggedHeader(
  target: Uint8Array,
  at: number,
  header: Readonly<TaggedHeader>,
): void {
  target[at] = DDPControl.tagged | (header.last ? DDPControl.last : 0) | DDP_VERSION;
  target[at + TaggedField.ulp] = header.ulp;
  writeUint32(target, at + TaggedField.stag, header.stag);
  writeUint32(target, at + TaggedField.toHi, header.toHi);
  writeUint32(target, at + TaggedField.toLo, header.toLo);
}

/** Writes an untagged header of 18 bytes at `at`. */
export function writeUntaggedHeader(
  target: Uint8Array,
  at: number,
  header: Readonly<UntaggedHeader>,
): void {
  target[at] = (header.last ? DDPControl.last : 0) | DDP_VERSION;
  target[at + UntaggedField.ulp] = header.ulp;
  writeUint32(target, at + UntaggedField.ulpWord, header.ulpWord);
  writeUint32(target, at + UntaggedField.qn, header.qn);
  writeUint32(target, at + UntaggedField.msn, header.msn);
  writeUint32(target, at + UntaggedField.mo, header.mo);
}
