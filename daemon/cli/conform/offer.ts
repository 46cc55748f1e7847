/**
 * The memory that a target offers a tester, described in the private data with which it accepts (28
 * bytes, network order):
 *
 * ```
 *  0  'iwcf'          8  address (64)     16  R_Key or STag    24  longest message that it reads
 *  4  version 1      (of the region)      20  length               and writes back
 *  5  receives
 *  6  reserved (16)
 * ```
 *
 * The tester may read, write and (over RoCE) change the region atomically. Byte `i` of a new region is
 * `regionByte(i)`. A message of 16 bytes is an advert of rping; any other uses up one of the receives.
 */

export interface Offer {
  readonly address: bigint;
  readonly key: number;
  readonly lengthBytes: number;
  /** Number of posted receives. Each message other than an advert uses one up. */
  readonly receives: number;
  /** Longest buffer of an advert. */
  readonly pingBytes: number;
}

const OFFER_BYTES = 28;
/** Length of a target's receives. */
export const RECEIVE_BYTES = 1024;
const MAGIC = Buffer.from('iwcf');
const VERSION = 1;

export function emitOffer(offer: Offer): Uint8Array {
  const bytes = Buffer.alloc(OFFER_BYTES);
  bytes.set(MAGIC);
  bytes.writeUInt8(VERSION, 4);
  bytes.writeUInt8(offer.receives, 5);
  bytes.writeBigUInt64BE(offer.address, 8);
  bytes.writeUInt32BE(offer.key, 16);
  bytes.writeUInt32BE(offer.lengthBytes, 20);
  bytes.writeUInt32BE(offer.pingBytes, 24);
  return bytes;
}

/** Parses an offer at the start of private data, which may be padded; undefined if there is none. */
export function parseOffer(privateData: Uint8Array): Offer | undefined {
  if (privateData.length < OFFER_BYTES) return undefined;
  const bytes = Buffer.from(privateData.buffer, privateData.byteOffset, privateData.length);
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC) || bytes[4] !== VERSION) return undefined;
  return {
    receives: bytes.readUInt8(5),
    address: bytes.readBigUInt64BE(8),
    key: bytes.readUInt32BE(16),
    lengthBytes: bytes.readUInt32BE(20),
    pingBytes: bytes.readUInt32BE(24),
  };
}

/** A byte of a new region. Neighbouring bytes differ, and so do neighbouring blocks. */
function regionByte(index: number): number {
  return (index * 7 + (index >>> 8)) & 0xff;
}

/** `length` bytes of a new region from `start` on. */
export function regionBytes(start: number, length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => regionByte(start + index));
}
