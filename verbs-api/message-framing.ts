/**
 * The additions of two ends with credits to the wire: a trailer after the private data, in which
 * they agree on credits, and a header of 4 bytes before each message. Both are validated as
 * untrusted input.
 *
 * ```
 *  trailer  "iwM1" | u16 window | u32 message bytes    big endian, 10 bytes
 *  header   u8 kind (0 message, 1 credits alone) | u8 0 | u16 credits
 * ```
 */
import { VerbsError } from '#contract/verbs/errors';

/** The offer of one end to the other. */
export interface MessageOffer {
  /** Messages that may be in flight or waiting at this end. */
  readonly window: number;
  /** Longest message that this end accepts. */
  readonly bytes: number;
}

const TRAILER_BYTES = 10;
export const HEADER_BYTES = 4;
export const WINDOW_MAX = 4096;
export const MESSAGE_MAX_BYTES = 2 ** 30;

const MAGIC = [0x69, 0x77, 0x4d, 0x31];

/** Private data with the offer appended. */
export function withOffer(privateData: Uint8Array | undefined, offer: MessageOffer): Uint8Array {
  const length = privateData?.length ?? 0;
  const bytes = new Uint8Array(length + TRAILER_BYTES);
  if (privateData !== undefined) bytes.set(privateData);
  bytes.set(MAGIC, length);
  const view = new DataView(bytes.buffer);
  view.setUint16(length + 4, offer.window);
  view.setUint32(length + 6, offer.bytes);
  return bytes;
}

/**
 * The peer's offer, and its private data without the offer; undefined offer if there is no valid one.
 */
export function takeOffer(privateData: Uint8Array): {
  readonly offer: MessageOffer | undefined;
  readonly privateData: Uint8Array;
} {
  const start = trailerStart(privateData);
  if (start === undefined) return { offer: undefined, privateData };
  const view = new DataView(privateData.buffer, privateData.byteOffset + start, TRAILER_BYTES);
  const offer = { window: view.getUint16(4), bytes: view.getUint32(6) };
  if (offer.window < 1 || offer.window > WINDOW_MAX || offer.bytes > MESSAGE_MAX_BYTES) {
    return { offer: undefined, privateData };
  }
  return { offer, privateData: privateData.subarray(0, start) };
}

/**
 * Where the offer is: at the end, or in front of zeros, up to which InfiniBand fills private data.
 * The offer itself may end in zeros.
 */
function trailerStart(privateData: Uint8Array): number | undefined {
  const end = privateData.findLastIndex((byte) => byte !== 0) + 1;
  for (let start = Math.max(end - TRAILER_BYTES, 0); start + MAGIC.length <= end; start += 1) {
    if (start + TRAILER_BYTES > privateData.length) return undefined;
    if (MAGIC.every((byte, index) => privateData[start + index] === byte)) return start;
  }
  return undefined;
}

/** Writes a header: of a message, or of credits only. */
export function putHeader(bytes: Uint8Array, carriesMessage: boolean, credits: number): void {
  bytes[0] = carriesMessage ? 0 : 1;
  bytes[1] = 0;
  bytes[2] = credits >>> 8;
  bytes[3] = credits & 0xff;
}

/** Reads a header. Throws EPROTO for a malformed one. */
export function parseHeader(bytes: Uint8Array): {
  readonly carriesMessage: boolean;
  readonly credits: number;
} {
  const [kind = 255, reserved, high = 0, low = 0] = bytes;
  const sound =
    bytes.length >= HEADER_BYTES &&
    reserved === 0 &&
    (kind === 0 || (kind === 1 && bytes.length === HEADER_BYTES));
  if (!sound) throw new VerbsError('EPROTO', 'the peer sent a message without a valid header');
  return { carriesMessage: kind === 0, credits: (high << 8) | low };
}
