/**
 * What the ends of a connection tell each other in the private data of its set-up (RFC 8797 §4):
 *
 * ```
 * | format identifier 0xf6ab0e18 |
 * | version 1 | flags, R = 0x01 | Send Size | Receive Size |
 * ```
 *
 * A size n stands for (n + 1) × 1024 octets.
 */

/** The format identifier. */
export const PRIVATE_DATA_FORMAT = 0xf6ab0e18;
/** Octets of the message. */
export const PRIVATE_DATA_BYTES = 8;
/** The inline threshold that every peer supports (RFC 8166 §3.3.3). */
export const DEFAULT_INLINE_BYTES = 1024;
/** The largest threshold that can be told. */
export const INLINE_MAX_BYTES = 256 * 1024;

const VERSION = 1;
const FLAG_REMOTE_INVALIDATION = 0x01;
const SIZE_UNIT_BYTES = 1024;

/** One end's side of a connection. */
export interface ConnectionTerms {
  /** It can have its memory invalidated by a Send. */
  readonly remoteInvalidation: boolean;
  /** Octets of its largest Send, header included: a multiple of 1024. */
  readonly sendBytes: number;
  /** Octets of its receive buffers. */
  readonly receiveBytes: number;
}

/** The terms of a peer that tells none. CMPD-5.1-01 */
export const DEFAULT_TERMS: ConnectionTerms = {
  remoteInvalidation: false,
  sendBytes: DEFAULT_INLINE_BYTES,
  receiveBytes: DEFAULT_INLINE_BYTES,
};

/** The largest sends of a connection, header included. */
export interface InlineThresholds {
  /** Of calls. */
  readonly callBytes: number;
  /** Of replies. */
  readonly replyBytes: number;
}

/** `sizeBytes` as the message can tell it: rounded down, within its range. CMPD-4.2-01 */
export function tellableSizeBytes(sizeBytes: number): number {
  const units = Math.floor(sizeBytes / SIZE_UNIT_BYTES);
  return Math.min(Math.max(units, 1) * SIZE_UNIT_BYTES, INLINE_MAX_BYTES);
}

/** Puts terms into private data. */
export function emitPrivateData(terms: ConnectionTerms): Uint8Array {
  const octets = new Uint8Array(PRIVATE_DATA_BYTES);
  new DataView(octets.buffer).setUint32(0, PRIVATE_DATA_FORMAT);
  octets[4] = VERSION;
  octets[5] = terms.remoteInvalidation ? FLAG_REMOTE_INVALIDATION : 0;
  octets[6] = tellableSizeBytes(terms.sendBytes) / SIZE_UNIT_BYTES - 1;
  octets[7] = tellableSizeBytes(terms.receiveBytes) / SIZE_UNIT_BYTES - 1;
  return octets;
}

/**
 * Finds terms in private data, wherever other layers have left them (RFC 8797 §5.2). Without any
 * the default terms hold.
 */
export function parsePrivateData(octets: Uint8Array): ConnectionTerms {
  const fields = new DataView(octets.buffer, octets.byteOffset, octets.byteLength);
  for (let at = 0; at + PRIVATE_DATA_BYTES <= octets.length; at++) {
    if (fields.getUint32(at) !== PRIVATE_DATA_FORMAT || octets[at + 4] !== VERSION) continue;
    return {
      // CMPD-4-02 The other bits mean nothing.
      remoteInvalidation: (fields.getUint8(at + 5) & FLAG_REMOTE_INVALIDATION) !== 0,
      sendBytes: (fields.getUint8(at + 6) + 1) * SIZE_UNIT_BYTES,
      receiveBytes: (fields.getUint8(at + 7) + 1) * SIZE_UNIT_BYTES,
    };
  }
  return DEFAULT_TERMS;
}

/** The thresholds between two ends. CMPD-4.2-02 */
export function inlineThresholds(
  client: ConnectionTerms,
  server: ConnectionTerms,
): InlineThresholds {
  return {
    callBytes: Math.min(client.sendBytes, server.receiveBytes),
    replyBytes: Math.min(server.sendBytes, client.receiveBytes),
  };
}
