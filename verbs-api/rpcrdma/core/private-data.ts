/**
 * The parameters exchanged in the private data of connection setup (RFC 8797 §4):
 *
 * ```
 * | format identifier 0xf6ab0e18 |
 * | version 1 | flags, R = 0x01 | Send Size | Receive Size |
 * ```
 *
 * A size n stands for (n + 1) × 1024 bytes.
 */

/** The format identifier. */
const PRIVATE_DATA_FORMAT = 0xf6ab0e18;
const PRIVATE_DATA_BYTES = 8;
/** The inline threshold that every peer supports (RFC 8166 §3.3.3). */
const DEFAULT_INLINE_BYTES = 1024;
/** The largest threshold that the format can express. */
const INLINE_MAX_BYTES = 256 * 1024;

const VERSION = 1;
const FLAG_REMOTE_INVALIDATION = 0x01;
const SIZE_UNIT_BYTES = 1024;

export interface ConnectionTerms {
  /** Whether a Send may invalidate its memory. */
  readonly remoteInvalidation: boolean;
  /** Bytes of its largest Send, including the header: a multiple of 1024. */
  readonly sendBytes: number;
  readonly receiveBytes: number;
}

/** The terms of a peer that sends none. CMPD-5.1-01 */
export const DEFAULT_TERMS: ConnectionTerms = {
  remoteInvalidation: false,
  sendBytes: DEFAULT_INLINE_BYTES,
  receiveBytes: DEFAULT_INLINE_BYTES,
};

/** The largest Sends of a connection, including the header. */
export interface InlineThresholds {
  readonly callBytes: number;
  readonly replyBytes: number;
}

/** `sizeBytes` as the format can express it: rounded down, clamped to its range. CMPD-4.2-01 */
export function encodableSizeBytes(sizeBytes: number): number {
  const units = Math.floor(sizeBytes / SIZE_UNIT_BYTES);
  return Math.min(Math.max(units, 1) * SIZE_UNIT_BYTES, INLINE_MAX_BYTES);
}

export function emitPrivateData(terms: ConnectionTerms): Uint8Array {
  const bytes = new Uint8Array(PRIVATE_DATA_BYTES);
  new DataView(bytes.buffer).setUint32(0, PRIVATE_DATA_FORMAT);
  bytes[4] = VERSION;
  bytes[5] = terms.remoteInvalidation ? FLAG_REMOTE_INVALIDATION : 0;
  bytes[6] = encodableSizeBytes(terms.sendBytes) / SIZE_UNIT_BYTES - 1;
  bytes[7] = encodableSizeBytes(terms.receiveBytes) / SIZE_UNIT_BYTES - 1;
  return bytes;
}

/**
 * Finds terms in private data after whatever other layers put before them (RFC 8797 §5.2). Returns
 * the default terms if there are none.
 */
export function parsePrivateData(bytes: Uint8Array): ConnectionTerms {
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at + PRIVATE_DATA_BYTES <= bytes.length; at++) {
    if (fields.getUint32(at) !== PRIVATE_DATA_FORMAT || bytes[at + 4] !== VERSION) continue;
    return {
      // CMPD-4-02 The other bits are ignored.
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
