/** MPA frames and FPDUs written out by hand for raw peers: revision 2 or 1, CRC on, no markers. */
import { bytesOf } from './hex.ts';
import { rawCrc32c } from './raw-fpdu.ts';

/** The fields of a raw peer's startup frame. */
interface FrameWords {
  readonly revision?: 1 | 2;
  readonly privateData?: Uint8Array;
  readonly crc?: boolean;
  readonly markers?: boolean;
  readonly reject?: boolean;
  readonly ird?: number;
  readonly ord?: number;
}

/** An MPA Request: by default revision 2, CRC, IRD and ORD 8, client-server model. */
export function mpaRequest(words: FrameWords = {}): Uint8Array {
  return frame('MPA ID Req Frame', words);
}

export function mpaReply(words: FrameWords = {}): Uint8Array {
  return frame('MPA ID Rep Frame', words);
}

function frame(key: string, words: FrameWords): Uint8Array {
  const revision = words.revision ?? 2;
  const privateData = words.privateData ?? new Uint8Array(0);
  const enhanced = revision === 2 ? 4 : 0;
  const bytes = Buffer.alloc(20 + enhanced + privateData.length);
  bytes.write(key, 'latin1');
  let flags = revision === 2 ? 0x10 : 0;
  if (words.markers === true) flags |= 0x80;
  if (words.crc !== false) flags |= 0x40;
  if (words.reject === true) flags |= 0x20;
  bytes.writeUInt8(flags, 16);
  bytes.writeUInt8(revision, 17);
  bytes.writeUInt16BE(enhanced + privateData.length, 18);
  if (revision === 2) {
    bytes.writeUInt16BE(words.ird ?? 8, 20);
    bytes.writeUInt16BE(words.ord ?? 8, 22);
  }
  bytes.set(privateData, 20 + enhanced);
  return bytes;
}

/** An FPDU around a ULPDU (RFC 5044 §4): length, ULPDU, PAD, CRC. */
export function emitFpdu(ulpdu: Uint8Array): Uint8Array {
  const padded = 2 + ulpdu.length + ((4 - ((2 + ulpdu.length) % 4)) % 4);
  const bytes = Buffer.alloc(padded + 4);
  bytes.writeUInt16BE(ulpdu.length, 0);
  bytes.set(ulpdu, 2);
  bytes.writeUInt32LE(rawCrc32c(bytes.subarray(0, padded)), padded);
  return bytes;
}

/** A whole Send of one segment, MSN given: DDP untagged, QN 0, MO 0 (RFC 5040 §4). */
export function sendUlpdu(msn: number, payload: Uint8Array): Uint8Array {
  const header = bytesOf('41 43 00000000 00000000 00000000 00000000');
  Buffer.from(header.buffer).writeUInt32BE(msn, 10);
  return Buffer.concat([header, payload]);
}

/** A Read Request (RFC 5040 §4.4), MSN given: `size` bytes of the peer's memory at `stag`, `to`. */
export function readRequestUlpdu(msn: number, stag: number, to: bigint, size: number): Uint8Array {
  const ulpdu = Buffer.from(bytesOf('41 41 00000000 00000001 00000000 00000000 00*28'));
  ulpdu.writeUInt32BE(msn, 10);
  ulpdu.writeUInt32BE(size, 30);
  ulpdu.writeUInt32BE(stag, 34);
  ulpdu.writeBigUInt64BE(to, 38);
  return ulpdu;
}
