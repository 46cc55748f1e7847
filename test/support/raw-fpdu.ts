/**
 * FPDUs of RFC 5044 §4, built and parsed without any code of the daemon, so a raw peer checks it
 * independently. Markers and CRC follow the connection's settings.
 */
import { bytesOf, compactHex, concat, hexOf } from './hex.ts';

/** The negotiated options of one direction. */
export interface Framing {
  readonly markers: boolean;
  readonly crc: boolean;
}

/** CRC on, no markers: what nearly every peer uses. */
const PLAIN: Framing = { markers: false, crc: true };

/** A marker as it was in the stream. */
interface Marker {
  /** Position in the stream, which begins after the startup frame. */
  readonly at: number;
  readonly reserved: number;
  readonly fpduPointer: number;
}

/** One FPDU as it was in the stream. */
export interface Fpdu {
  /** Position of the first byte of ULPDU_Length. */
  readonly at: number;
  /** In hexadecimal, without markers. */
  readonly ulpdu: string;
  readonly pad: string;
  /** Its markers: one directly before ULPDU_Length, or inside it. */
  readonly markers: readonly Marker[];
  /** True when the CRC field is the CRC32c of the bytes that it covers. */
  readonly crcGood: boolean;
  /** Position after the CRC field. */
  readonly end: number;
}

const MARKER_INTERVAL_BYTES = 512;
const MARKER_BYTES = 4;
const CRC_BYTES = 4;
/** The Castagnoli polynomial, reflected (RFC 3385, RFC 3720). */
const POLYNOMIAL = 0x82f6_3b78;

/** The result of eight shifts of each byte. */
const CRC_OF_BYTE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
  return crc;
});

export function rawCrc32c(bytes: Uint8Array): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ (CRC_OF_BYTE[(crc ^ byte) & 0xff] ?? 0);
  return (crc ^ 0xffff_ffff) >>> 0;
}

function padBytes(ulpduBytes: number): number {
  return (4 - ((2 + ulpduBytes) % 4)) % 4;
}

/** Makes the FPDUs of one direction. */
export class FpduWriter {
  /** The RESERVED value of its markers, and an offset added to their pointers. */
  markerReserved = 0;
  markerSkew = 0;
  readonly #framing: Framing;
  #position = 0;

  constructor(framing: Framing = PLAIN) {
    this.#framing = framing;
  }

  /** Bytes of the stream so far. */
  get position(): number {
    return this.#position;
  }

  /** The stream's next bytes: one FPDU around `ulpdu`. `pad` fills the PAD field. */
  write(ulpdu: Uint8Array, pad = 0): Uint8Array {
    const parts: Uint8Array[] = [];
    const length = Uint8Array.of(ulpdu.length >>> 8, ulpdu.length & 0xff);
    const filler = new Uint8Array(padBytes(ulpdu.length)).fill(pad);
    this.#marker(parts, undefined);
    const start = this.#position;
    this.#put(parts, concat(length, ulpdu, filler), start);
    this.#marker(parts, start);
    const crc = new DataView(new ArrayBuffer(CRC_BYTES));
    crc.setUint32(0, this.#framing.crc ? rawCrc32c(concat(...parts)) : 0xdead_beef, true);
    parts.push(new Uint8Array(crc.buffer));
    this.#position += CRC_BYTES;
    return concat(...parts);
  }

  #put(parts: Uint8Array[], bytes: Uint8Array, start: number): void {
    for (let at = 0; at < bytes.length; at += MARKER_BYTES) {
      if (at > 0) this.#marker(parts, start);
      const piece = bytes.subarray(at, at + MARKER_BYTES);
      parts.push(piece);
      this.#position += piece.length;
    }
  }

  /** A marker if one is due here; `start` is undefined between two FPDUs. */
  #marker(parts: Uint8Array[], start: number | undefined): void {
    if (!this.#framing.markers || this.#position % MARKER_INTERVAL_BYTES !== 0) return;
    const pointer = (start === undefined ? 0 : this.#position - start) + this.markerSkew;
    const reserved = this.markerReserved;
    parts.push(Uint8Array.of(reserved >>> 8, reserved & 0xff, pointer >>> 8, pointer & 0xff));
    this.#position += MARKER_BYTES;
  }
}

/** Takes the whole FPDUs out of a stream that begins after the startup frame. */
export function readFpdus(stream: Uint8Array, framing: Framing = PLAIN): Fpdu[] {
  const fpdus: Fpdu[] = [];
  for (let at = 0; ; ) {
    const fpdu = readFpdu(stream, at, framing);
    if (fpdu === undefined) return fpdus;
    fpdus.push(fpdu);
    at = fpdu.end;
  }
}

/** ULPDU length and L bit of each whole FPDU in a long stream without markers. */
export function skimFpdus(stream: Uint8Array): { ulpduBytes: number; last: boolean }[] {
  const skimmed: { ulpduBytes: number; last: boolean }[] = [];
  for (let at = 0; at + 2 <= stream.length; ) {
    const ulpduBytes = ((stream[at] ?? 0) << 8) | (stream[at + 1] ?? 0);
    const last = ((stream[at + 2] ?? 0) & 0x40) !== 0;
    at += 2 + ulpduBytes + padBytes(ulpduBytes) + CRC_BYTES;
    if (at <= stream.length) skimmed.push({ ulpduBytes, last });
  }
  return skimmed;
}

function readFpdu(stream: Uint8Array, begin: number, framing: Framing): Fpdu | undefined {
  const view = new DataView(stream.buffer, stream.byteOffset, stream.byteLength);
  const markers: Marker[] = [];
  let at = begin;
  const skipMarker = (): void => {
    if (!framing.markers || at % MARKER_INTERVAL_BYTES !== 0) return;
    if (at + MARKER_BYTES <= stream.length) {
      markers.push({ at, reserved: view.getUint16(at), fpduPointer: view.getUint16(at + 2) });
    }
    at += MARKER_BYTES;
  };
  const take = (count: number): Uint8Array => {
    const bytes: number[] = [];
    while (bytes.length < count && at < stream.length) {
      if (bytes.length > 0 || at !== start) skipMarker();
      bytes.push(stream[at] ?? 0);
      at += 1;
    }
    return Uint8Array.from(bytes);
  };
  skipMarker();
  const start = at;
  if (start + 2 > stream.length) return undefined;
  const length = take(2);
  const ulpduBytes = view.getUint16(start);
  const body = take(ulpduBytes + padBytes(ulpduBytes));
  skipMarker();
  const covered = stream.subarray(begin, at);
  if (at + CRC_BYTES > stream.length || length.length < 2) return undefined;
  return {
    at: start,
    ulpdu: hexOf(body.subarray(0, ulpduBytes)),
    pad: hexOf(body.subarray(ulpduBytes)),
    markers,
    crcGood: rawCrc32c(covered) === view.getUint32(at, true),
    end: at + CRC_BYTES,
  };
}

/** Keys of the startup frames (RFC 5044 §7.1.1), in hexadecimal. */
export const REQUEST_KEY = '4d504120494420526571204672616d65';
export const REPLY_KEY = '4d504120494420526570204672616d65';

/** A startup frame from its parts: flags and revision as two bytes, Private Data, all hexadecimal. */
export function startupFrame(key: string, flagsAndRevision: string, privateData = ''): Uint8Array {
  const data = bytesOf(privateData);
  const length = data.length.toString(16).padStart(4, '0');
  return concat(bytesOf(key), bytesOf(flagsAndRevision), bytesOf(length), data);
}

/** The payload of a Terminate with the segment's length and DDP header, followed by `rdmap`. */
export function copying(control: string, ulpdu: string, rdmap = ''): string {
  const bytes = bytesOf(ulpdu);
  const header = hexOf(bytes.subarray(0, (bytes[0] ?? 0) & 0x80 ? 14 : 18));
  return compactHex(`${control} ${bytes.length.toString(16).padStart(4, '0')} ${header} ${rdmap}`);
}
