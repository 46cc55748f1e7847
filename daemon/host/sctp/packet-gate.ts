/**
 * Checks an SCTP packet before the library, written in C, parses it: valid lengths, and no
 * chunks of extensions that our associations never negotiate. Also answers packets for
 * no association and no listener (RFC 9260 sections 5.1 and 8.4).
 *
 * ```
 *  0                   1                   2                   3
 *  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
 * |          Source port          |        Destination port       |
 * |                        Verification tag                       |
 * |                     Checksum (little-endian)                  |
 * |   Chunk type  |  Chunk flags  |         Chunk length          |
 * |                     Initiate tag (of INIT)                    |
 * ```
 */

const COMMON_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 4;
/** INIT with its fixed fields. */
const INIT_BYTES = 20;
const PARAMETER_HEADER_BYTES = 4;
/** Adaptation Layer Indication (RFC 5061 section 4.2.6). */
const ADAPTATION_PARAMETER = 0xc006;
const ADAPTATION_PARAMETER_BYTES = 8;
/** Offset of the stream in a DATA chunk. */
const DATA_STREAM_AT = 8;
/** More parameters than any INIT needs. */
const PARAMETERS_MAX = 32;

/** The shortest packet: the common header and one chunk. */
export const PACKET_BYTES_MIN = COMMON_HEADER_BYTES + CHUNK_HEADER_BYTES;
/** Offset of the checksum. */
export const CHECKSUM_AT = 8;
/** Offset of the initiate tag in an INIT. */
const INIT_TAG_AT = COMMON_HEADER_BYTES + CHUNK_HEADER_BYTES;
/** Length of an answer. */
export const ANSWER_BYTES = PACKET_BYTES_MIN;

const Chunk = {
  data: 0,
  init: 1,
  initAck: 2,
  abort: 6,
  shutdownAck: 8,
  error: 9,
  cookieAck: 11,
  shutdownComplete: 14,
} as const;

/**
 * AUTH, NR-SACK, I-DATA, ASCONF-ACK, PKTDROP, RE-CONFIG, FORWARD-TSN, ASCONF, I-FORWARD-TSN: a peer sends
 * these only after both ends have offered the extension, which we do not.
 */
const NEVER_AGREED: ReadonlySet<number> = new Set([
  0x0f, 0x10, 0x40, 0x80, 0x81, 0x82, 0xc0, 0xc1, 0xc2,
]);

/** Results of `judgePacket`. */
export const Verdict = {
  /** May belong to an association. */
  pass: 0,
  /** An INIT that may start an association. */
  init: 1,
  /** Drop it. */
  malformed: 2,
} as const;

/** Checks the packet of `length` bytes at `start`; `length` is at least `PACKET_BYTES_MIN`. */
export function judgePacket(bytes: Uint8Array, start: number, length: number): number {
  const end = start + length;
  if (portAt(bytes, start) === 0 || portAt(bytes, start + 2) === 0) return Verdict.malformed;
  const first = bytes[start + COMMON_HEADER_BYTES] as number;
  if (first === Chunk.init) return judgeInit(bytes, start, end);
  let at = start + COMMON_HEADER_BYTES;
  while (at < end) {
    if (end - at < CHUNK_HEADER_BYTES) return Verdict.malformed;
    const chunkBytes = portAt(bytes, at + 2);
    if (chunkBytes < CHUNK_HEADER_BYTES || chunkBytes > end - at) return Verdict.malformed;
    const type = bytes[at] as number;
    if (NEVER_AGREED.has(type) || type === Chunk.init) return Verdict.malformed;
    if (type === Chunk.initAck && !isWhole(bytes, at + INIT_BYTES, at + chunkBytes)) {
      return Verdict.malformed;
    }
    at += padded(chunkBytes);
  }
  return Verdict.pass;
}

/**
 * An INIT must be the only chunk of its packet, which has verification tag 0 (RFC 9260 section
 * 8.5.1).
 */
function judgeInit(bytes: Uint8Array, start: number, end: number): number {
  const at = start + COMMON_HEADER_BYTES;
  const chunkBytes = portAt(bytes, at + 2);
  const alone = chunkBytes >= INIT_BYTES && padded(chunkBytes) === padded(end - at);
  if (!alone || chunkBytes > end - at || !isZero(bytes, start + 4)) return Verdict.malformed;
  if (isZero(bytes, at + 4)) return Verdict.malformed;
  return isWhole(bytes, at + INIT_BYTES, at + chunkBytes) ? Verdict.init : Verdict.malformed;
}

/** True if the lengths of the parameters between `at` and `end` are valid. */
function isWhole(bytes: Uint8Array, at: number, end: number): boolean {
  let next = at;
  for (let count = 0; next < end; count += 1) {
    if (count === PARAMETERS_MAX || end - next < PARAMETER_HEADER_BYTES) return false;
    const parameterBytes = portAt(bytes, next + 2);
    if (parameterBytes < PARAMETER_HEADER_BYTES || parameterBytes > end - next) return false;
    next += padded(parameterBytes);
  }
  return next >= end;
}

/**
 * The tag that identifies the association of a sent packet: the peer's, or our own for INIT; 0 if `length` is
 * too small.
 */
export function tagOf(bytes: Uint8Array, start: number, length: number): number {
  if (length < CHECKSUM_AT) return 0;
  const tag = wordAt(bytes, start + 4);
  if (tag !== 0 || length < INIT_TAG_AT + 4) return tag;
  return bytes[start + COMMON_HEADER_BYTES] === Chunk.init ? wordAt(bytes, start + INIT_TAG_AT) : 0;
}

/** The adaptation indication of a checked INIT; undefined if it has none. */
export function initAdaptation(bytes: Uint8Array, start: number): number | undefined {
  const chunk = start + COMMON_HEADER_BYTES;
  const end = chunk + portAt(bytes, chunk + 2);
  let at = chunk + INIT_BYTES;
  while (at < end) {
    const parameterBytes = portAt(bytes, at + 2);
    if (portAt(bytes, at) === ADAPTATION_PARAMETER) {
      return parameterBytes === ADAPTATION_PARAMETER_BYTES ? wordAt(bytes, at + 4) : undefined;
    }
    at += padded(parameterBytes);
  }
  return undefined;
}

/** The stream of the first DATA chunk of a packet, if any. */
export function firstStream(packet: Uint8Array): number | undefined {
  let at = COMMON_HEADER_BYTES;
  while (packet.length - at >= CHUNK_HEADER_BYTES) {
    const chunkBytes = portAt(packet, at + 2);
    if (packet[at] === Chunk.data) {
      return packet.length - at >= DATA_STREAM_AT + 2
        ? portAt(packet, at + DATA_STREAM_AT)
        : undefined;
    }
    at += padded(Math.max(chunkBytes, CHUNK_HEADER_BYTES));
  }
  return undefined;
}

/** The destination port of a packet. */
export function destinationPort(bytes: Uint8Array, start: number): number {
  return portAt(bytes, start + 2);
}

/**
 * Writes the answer to a checked packet for no association to `target`, `ANSWER_BYTES` from `at`, without
 * checksum: ABORT, or SHUTDOWN COMPLETE for a SHUTDOWN ACK. False if the packet gets no answer.
 */
export function writeAnswer(
  bytes: Uint8Array,
  start: number,
  length: number,
  target: Uint8Array,
  at: number,
): boolean {
  const chunk = start + COMMON_HEADER_BYTES;
  const type = bytes[chunk] as number;
  const isInit = type === Chunk.init;
  if (!isInit && hasSilentChunk(bytes, start, length)) return false;
  for (let index = 0; index < 2; index += 1) {
    target[at + index] = bytes[start + 2 + index] as number;
    target[at + 2 + index] = bytes[start + index] as number;
  }
  const tag = isInit ? chunk + 4 : start + 4;
  for (let index = 0; index < 4; index += 1) target[at + 4 + index] = bytes[tag + index] as number;
  target.fill(0, at + CHECKSUM_AT, at + COMMON_HEADER_BYTES);
  target[at + 12] = type === Chunk.shutdownAck ? Chunk.shutdownComplete : Chunk.abort;
  // The T bit: the tag was reflected.
  target[at + 13] = isInit ? 0 : 1;
  target[at + 14] = 0;
  target[at + 15] = CHUNK_HEADER_BYTES;
  return true;
}

/** True for chunks that must not be answered, or two ends would answer each other forever. */
function hasSilentChunk(bytes: Uint8Array, start: number, length: number): boolean {
  const end = start + length;
  let at = start + COMMON_HEADER_BYTES;
  while (at < end) {
    const type = bytes[at] as number;
    if (type === Chunk.abort || type === Chunk.shutdownComplete) return true;
    if (type === Chunk.error || type === Chunk.cookieAck) return true;
    at += padded(portAt(bytes, at + 2));
  }
  return false;
}

function padded(length: number): number {
  return (length + 3) & ~3;
}

function portAt(bytes: Uint8Array, at: number): number {
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
}

function wordAt(bytes: Uint8Array, at: number): number {
  return ((portAt(bytes, at) << 16) | portAt(bytes, at + 2)) >>> 0;
}

function isZero(bytes: Uint8Array, at: number): boolean {
  return portAt(bytes, at) === 0 && portAt(bytes, at + 2) === 0;
}
