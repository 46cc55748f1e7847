/**
 * The Terminate message: its header, and every layer/type/code triple that the RFCs define.
 *
 * Read before changing: RFC 5040 §4.8 and §7.1, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8,
 * RFC 7306 §8, and the registries of RFC 6580.
 *
 * ```
 *  0                   1                   2                   3
 * +-------+-------+---------------+-+-+-+-------------------------+
 * | Layer | EType |   Error Code  |M|D|R|         Reserved        |
 * +-------+-------+---------------+-+-+-+-------------------------+
 * |  DDP Segment Length (if any)  |  Terminated DDP Header (if any)
 * +-------------------------------+   14 or 18 bytes, then
 *    Terminated RDMA Header (if any), 28 bytes, no padding between the parts
 * ```
 */
import { readUint16, writeUint16 } from '#base/checked-bytes';
import { TAGGED_HEADER_BYTES, UNTAGGED_HEADER_BYTES } from './ddp-header.ts';
import { READ_REQUEST_BYTES } from './rdmap-header.ts';

/** The layer that found the error (RFC 5040 §4.8). */
export const TerminateLayer = { rdmap: 0, ddp: 1, llp: 2 } as const;
export type TerminateLayer = (typeof TerminateLayer)[keyof typeof TerminateLayer];

/** One defined error: its numbers, where they are defined, and what they mean. */
interface TerminateEntry {
  readonly layer: TerminateLayer;
  readonly etype: number;
  readonly code: number;
  readonly section: string;
  readonly text: string;
  /** False when nothing may be sent: the stream is lost, or not in Full Operation yet. */
  readonly sendable: boolean;
  /** True when the code field has no meaning: any value maps to this entry. */
  readonly anyCode: boolean;
}

function entry(
  triple: number,
  section: string,
  text: string,
  kind: 'plain' | 'unsendable' | 'any-code' = 'plain',
): TerminateEntry {
  const layer = triple >>> 12;
  if (layer > 2) throw new Error(`layer ${layer} is not defined`);
  return Object.freeze({
    layer: layer as TerminateLayer,
    etype: (triple >>> 8) & 0x0f,
    code: triple & 0xff,
    section,
    text,
    sendable: kind !== 'unsendable',
    anyCode: kind === 'any-code',
  });
}

/** Every triple that may be sent or received. A `ProtocolError` can have no other. */
// IANA-3.1-01 IANA-3.2-01 IANA-3.3-01 DDP-7.2-01 the registries, and nothing else.
export const TERMINATE_ERRORS = Object.freeze({
  // RDMAP-4.8-14 the code of a Local Catastrophic Error has no meaning.
  rdmapLocalCatastrophic: entry(0x0000, 'RFC 5040 §4.8', 'local catastrophic error', 'any-code'),
  // RDMAP-4.8-15 to RDMAP-4.8-21 Remote Protection Error.
  rdmapInvalidStag: entry(0x0100, 'RFC 5040 §4.8', 'invalid STag'),
  rdmapBounds: entry(0x0101, 'RFC 5040 §4.8', 'base or bounds violation'),
  rdmapAccess: entry(0x0102, 'RFC 5040 §4.8', 'access rights violation'),
  rdmapNotAssociated: entry(0x0103, 'RFC 5040 §4.8', 'STag not associated with RDMAP stream'),
  rdmapToWrap: entry(0x0104, 'RFC 5040 §4.8', 'TO wrap'),
  rdmapCannotInvalidate: entry(0x0109, 'RFC 5040 §4.8', 'STag cannot be invalidated'),
  rdmapProtectionUnspecified: entry(0x01ff, 'RFC 5040 §4.8', 'unspecified protection error'),
  // RDMAP-4.8-22 to RDMAP-4.8-27 Remote Operation Error.
  rdmapInvalidVersion: entry(0x0205, 'RFC 5040 §4.8', 'invalid RDMAP version'),
  rdmapUnexpectedOpcode: entry(0x0206, 'RFC 5040 §4.8', 'unexpected opcode'),
  rdmapStreamCatastrophic: entry(0x0207, 'RFC 5040 §4.8', 'catastrophic error, this stream only'),
  rdmapGlobalCatastrophic: entry(0x0208, 'RFC 5040 §4.8', 'catastrophic error, global'),
  rdmapOperationCannotInvalidate: entry(0x0209, 'RFC 5040 §4.8', 'STag cannot be invalidated'),
  rdmapOperationUnspecified: entry(0x02ff, 'RFC 5040 §4.8', 'unspecified operation error'),
  // DDP-7.2-02
  ddpLocalCatastrophic: entry(0x1000, 'RFC 5041 §7.2', 'DDP local catastrophic error'),
  // DDP-7.2-03 Tagged Buffer Error.
  ddpInvalidStag: entry(0x1100, 'RFC 5041 §7.2', 'invalid STag'),
  ddpBounds: entry(0x1101, 'RFC 5041 §7.2', 'base or bounds violation'),
  ddpNotAssociated: entry(0x1102, 'RFC 5041 §7.2', 'STag not associated with DDP stream'),
  ddpToWrap: entry(0x1103, 'RFC 5041 §7.2', 'TO wrap'),
  ddpTaggedVersion: entry(0x1104, 'RFC 5041 §7.2', 'invalid DDP version'),
  // DDP-7.2-04 Untagged Buffer Error; there is no code 0.
  ddpInvalidQn: entry(0x1201, 'RFC 5041 §7.2', 'invalid QN'),
  ddpNoBuffer: entry(0x1202, 'RFC 5041 §7.2', 'invalid MSN, no buffer available'),
  ddpInvalidMsn: entry(0x1203, 'RFC 5041 §7.2', 'invalid MSN, range is not valid'),
  ddpInvalidMo: entry(0x1204, 'RFC 5041 §7.2', 'invalid MO'),
  ddpTooLong: entry(0x1205, 'RFC 5041 §7.2', 'DDP message too long for available buffer'),
  ddpUntaggedVersion: entry(0x1206, 'RFC 5041 §7.2', 'invalid DDP version'),
  // MPA: no Terminate when the connection is lost or startup failed (RFC 5044 §8).
  mpaConnectionLost: entry(0x2001, 'RFC 5044 §8', 'connection lost', 'unsendable'),
  mpaCrc: entry(0x2002, 'RFC 5044 §8', 'MPA CRC error'),
  mpaMarker: entry(0x2003, 'RFC 5044 §8', 'MPA marker and ULPDU Length mismatch'),
  mpaInvalidFrame: entry(0x2004, 'RFC 5044 §8', 'invalid MPA Request or Reply', 'unsendable'),
  mpaLocalCatastrophic: entry(0x2005, 'RFC 6581 §8', 'local catastrophic error in startup'),
  mpaInsufficientIrd: entry(0x2006, 'RFC 6581 §8', 'insufficient IRD resources'),
  mpaNoMatchingRtr: entry(0x2007, 'RFC 6581 §8', 'no matching RTR option'),
} as const);

export type TerminateErrorName = keyof typeof TERMINATE_ERRORS;

const TERMINATE_CONTROL_BYTES = 4;
/** Bytes of the longest Terminate Header: control word, length, untagged header, Read Request. */
export const TERMINATE_BYTES_MAX =
  TERMINATE_CONTROL_BYTES + 2 + UNTAGGED_HEADER_BYTES + READ_REQUEST_BYTES;

const M_BIT = 0x80;
const D_BIT = 0x40;
const R_BIT = 0x20;
const TAGGED_BIT = 0x80;

/** The content of a Terminate, built by the sender or read by the receiver. */
export interface TerminateHeader {
  readonly layer: number;
  readonly etype: number;
  readonly code: number;
  /** ULPDU length of the segment in error (M bit), if present. */
  readonly segmentLength: number | undefined;
  /** The DDP header in error as received, 14 or 18 bytes (D bit), if present. */
  readonly ddpHeader: Uint8Array | undefined;
  /** The Read Request Header in error, 28 bytes (R bit), if present. */
  readonly rdmaHeader: Uint8Array | undefined;
}

/** A received Terminate, with its sender's known quirk where one explains it. */
export interface ReceivedTerminate extends TerminateHeader {
  /** Name of the triple, if an RFC defines it. */
  readonly name: TerminateErrorName | undefined;
  /** One line for humans. */
  readonly text: string;
  readonly quirk: string | undefined;
}

const BY_TRIPLE: ReadonlyMap<number, TerminateErrorName> = new Map(
  (Object.keys(TERMINATE_ERRORS) as TerminateErrorName[]).map((name) => {
    const { layer, etype, code } = TERMINATE_ERRORS[name];
    return [(layer << 12) | (etype << 8) | code, name] as const;
  }),
);

/** The name of a triple, or undefined when no RFC defines it. */
export function terminateErrorName(
  layer: number,
  etype: number,
  code: number,
): TerminateErrorName | undefined {
  const exact = BY_TRIPLE.get((layer << 12) | (etype << 8) | code);
  if (exact !== undefined) return exact;
  const withoutCode = BY_TRIPLE.get((layer << 12) | (etype << 8));
  return withoutCode !== undefined && TERMINATE_ERRORS[withoutCode].anyCode
    ? withoutCode
    : undefined;
}

/** A triple as text: the RFC's words, or the numbers when no RFC defines it. */
export function terminateErrorText(layer: number, etype: number, code: number): string {
  const name = terminateErrorName(layer, etype, code);
  const numbers = `${layer}/${etype}/0x${code.toString(16).padStart(2, '0')}`;
  if (name !== undefined) return `${TERMINATE_ERRORS[name].text} (${numbers})`;
  // DDP-7.2-06 layer 1, type 3 is reserved for the lower layer: shown, never sent.
  return layer === 1 && etype === 3
    ? `reserved for the lower layer (${numbers})`
    : `undefined error (${numbers})`;
}

/** Bytes that `emitTerminate` writes for `header`: 4, 20, 24, 34, 48 or 52. */
export function terminateSizeBytes(header: TerminateHeader): number {
  const ddpBytes = header.ddpHeader === undefined ? 0 : 2 + header.ddpHeader.length;
  return TERMINATE_CONTROL_BYTES + ddpBytes + (header.rdmaHeader?.length ?? 0);
}

/**
 * Writes a Terminate Header at `at` and returns its length. A DDP header implies the segment length
 * field; an RDMA header is written only after a DDP header.
 */
export function emitTerminate(header: TerminateHeader, target: Uint8Array, at: number): number {
  const { ddpHeader, rdmaHeader, segmentLength } = header;
  // RDMAP-4.8-02 RDMAP-4.8-03 the control word, its 13 reserved bits zero.
  target[at] = (header.layer << 4) | header.etype;
  target[at + 1] = header.code;
  target[at + 2] =
    (segmentLength === undefined ? 0 : M_BIT) |
    (ddpHeader === undefined ? 0 : D_BIT) |
    (rdmaHeader === undefined ? 0 : R_BIT);
  target[at + 3] = 0;
  if (ddpHeader === undefined) return TERMINATE_CONTROL_BYTES;
  // RDMAP-4.8-05 the length field is present whenever D is set.
  writeUint16(target, at + 4, segmentLength ?? 0);
  target.set(ddpHeader, at + 6);
  if (rdmaHeader === undefined) return 6 + ddpHeader.length;
  target.set(rdmaHeader, at + 6 + ddpHeader.length);
  return 6 + ddpHeader.length + rdmaHeader.length;
}

/** siw fills the first byte from its low half up, and the third one, too. */
const SIW_BIT_ORDER = 'siw-terminate-bit-order';

/**
 * Reads a Terminate Header of `length` bytes at `start`. Missing parts are undefined; trailing
 * bytes are ignored; nothing past `length` is read. Returns undefined when even the control word is
 * incomplete. Header copies do not share memory with `bytes`.
 */
// RDMAP-4.8-13 decoded by M, D, R and by the T bit of the copied header.
export function parseTerminate(
  bytes: Uint8Array,
  start: number,
  length: number,
): ReceivedTerminate | undefined {
  if (length < TERMINATE_CONTROL_BYTES) return undefined;
  const first = bytes[start] ?? 0;
  const code = bytes[start + 1] ?? 0;
  const bits = bytes[start + 2] ?? 0;
  const swapped = isSwapped(first, code, bits, bytes[start + 3] ?? 0);
  const layer = swapped ? first & 0x0f : first >>> 4;
  const etype = swapped ? first >>> 4 : first & 0x0f;
  // RDMAP-4.8-04 every other bit is ignored.
  const m = (bits & (swapped ? 0x01 : M_BIT)) !== 0;
  const d = (bits & (swapped ? 0x02 : D_BIT)) !== 0;
  const r = (bits & (swapped ? 0x04 : R_BIT)) !== 0;
  const name = terminateErrorName(layer, etype, code);
  const copies = parseCopies(bytes, start, start + length, m, d, r);
  const text = terminateErrorText(layer, etype, code);
  return { layer, etype, code, ...copies, name, text, quirk: swapped ? SIW_BIT_ORDER : undefined };
}

/**
 * True when the control word makes sense only in siw's bit order. A word that is valid in both
 * orders is read as the RFC says, since every peer but siw writes it so.
 */
function isSwapped(first: number, code: number, bits: number, last: number): boolean {
  const swappedName = terminateErrorName(first & 0x0f, first >>> 4, code);
  if (swappedName === undefined) return false;
  if (terminateErrorName(first >>> 4, first & 0x0f, code) === undefined) return true;
  return last === 0 && (bits & 0xf8) === 0 && (bits & 0x07) !== 0;
}

function parseCopies(
  bytes: Uint8Array,
  start: number,
  end: number,
  m: boolean,
  d: boolean,
  r: boolean,
): Pick<TerminateHeader, 'segmentLength' | 'ddpHeader' | 'rdmaHeader'> {
  const lengthAt = start + TERMINATE_CONTROL_BYTES;
  const ddpAt = lengthAt + 2;
  // RDMAP-4.8-06 information only: siw counts only the payload.
  const segmentLength = m && ddpAt <= end ? readUint16(bytes, lengthAt) : undefined;
  let rdmaAt = ddpAt;
  let ddpHeader: Uint8Array | undefined;
  if (d && ddpAt < end) {
    const tagged = ((bytes[ddpAt] ?? 0) & TAGGED_BIT) !== 0;
    rdmaAt = ddpAt + (tagged ? TAGGED_HEADER_BYTES : UNTAGGED_HEADER_BYTES);
    if (rdmaAt <= end) ddpHeader = bytes.slice(ddpAt, rdmaAt);
  }
  const rdmaHeader =
    r && ddpHeader !== undefined && rdmaAt + READ_REQUEST_BYTES <= end
      ? bytes.slice(rdmaAt, rdmaAt + READ_REQUEST_BYTES)
      : undefined;
  return { segmentLength, ddpHeader, rdmaHeader };
}
