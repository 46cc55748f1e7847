/**
 * A packet of RC, UC or UD: base transport header, extended headers, payload (IBTA 9.2, 9.3).
 *
 * ```
 *  BTH, 12 bytes                              RETH, 16             AtomicETH, 28
 *   0  opcode                                  0  VA (64)           0  VA (64)
 *   1  SE M PadCnt(2) TVer(4)                  8  R_Key             8  R_Key
 *   2  P_Key                                   12 DMA length        12 swap or add data (64)
 *   4  FECN BECN reserved (6)                                       20 compare data (64)
 *   5  destination QP (24)                    AETH, 4
 *   8  A reserved (7)                          0  syndrome         DETH, 8
 *   9  PSN (24)                                1  MSN (24)          0  Q_Key
 *                                                                   4  reserved
 *  AtomicAckETH, 8: original value            ImmDt, IETH: 4        5  source QP (24)
 * ```
 *
 * In this order: BTH, DETH, RETH or AtomicETH or AETH, AtomicAckETH, ImmDt or IETH, payload, padding
 * to a multiple of 4. The ICRC follows only on a network, and is not part of a packet here.
 *
 * `parsePacket` fills a `Packet`, which the caller reuses, and rejects packets that are
 * always invalid. The transport checks what depends on the queue pair: path MTU, PSN, keys and order.
 * `writeHeaders` writes everything before the payload.
 */
import {
  readUint16,
  readUint24,
  readUint32,
  writeUint16,
  writeUint24,
  writeUint32,
} from '#base/unchecked-bytes';
import {
  BTH_BYTES,
  HeaderBytes,
  headerBytes,
  opcodeTraits,
  Service,
  serviceOf,
  Trait,
} from './opcode.ts';
import { isPathMtu, PATH_MTU_MAX_BYTES } from './path-mtu.ts';
import { isSyndrome } from './syndrome.ts';

/**
 * One packet. Mutable, so that one record can be reused. The opcode determines which fields are valid; the
 * others keep old values. 64-bit values are unsigned halves.
 */
export class Packet {
  opcode = 0;
  /** SE: the receive completes with a solicited event. */
  solicited = false;
  /** M: the state of path migration. rxe sends 0, adapters 1; receivers here ignore it. */
  migrated = false;
  pkey = 0xffff;
  /** Congestion notifications, set by a switch (FECN) or the peer (BECN). */
  fecn = false;
  becn = false;
  destQpn = 0;
  /** A: the responder acknowledges this packet. */
  ackRequest = false;
  psn = 0;
  /** RETH and AtomicETH. */
  vaHi = 0;
  vaLo = 0;
  rkey = 0;
  /** RETH: bytes of the whole message. The responder rejects more than 2^31. */
  dmaLength = 0;
  /** AtomicETH: the operand to add, or to store after a successful comparison. */
  swapAddHi = 0;
  swapAddLo = 0;
  compareHi = 0;
  compareLo = 0;
  /** AETH. See `syndrome.ts`. */
  syndrome = 0;
  msn = 0;
  /** AtomicAckETH: the value before the atomic. */
  originalHi = 0;
  originalLo = 0;
  immediate = 0;
  /** IETH: the key to invalidate. */
  invalidateRkey = 0;
  /** DETH. */
  qkey = 0;
  sourceQpn = 0;
  /** Where the payload starts in the parsed bytes. */
  payloadStart = 0;
  /** Bytes of payload, without padding. */
  payloadLength = 0;
  /**
   * How many packets of the network, and PSNs, this one stands for: more than 1 only within a host,
   * where a message may stay whole. All but the last of them are one path MTU long.
   */
  span = 1;
}

/** Why `parsePacket` rejected a packet. The receiver drops and counts it. */
export const PacketRefusal = {
  none: 0,
  /** Shorter than the base header, or than the extended headers of its opcode. */
  truncated: 1,
  /** Transport header version is not 0. */
  version: 2,
  /** No opcode of RC, UC or UD. */
  opcode: 3,
  /** The length is not a multiple of 4, or there is more padding than payload. */
  padding: 4,
  /** Payload after headers that allow none. */
  payloadForbidden: 5,
  /** The last packet of a longer message has no payload. */
  payloadMissing: 6,
  /** A packet that is not the last of its message is not exactly one path MTU long. */
  payloadNotPathMtu: 7,
  /** More payload than the largest path MTU. */
  payloadTooLong: 8,
  /** A reserved AETH syndrome. */
  syndrome: 9,
} as const;
export type PacketRefusal = (typeof PacketRefusal)[keyof typeof PacketRefusal];

/** Bits of the second byte of the base header. */
const BthFlag = { solicited: 0x80, migrated: 0x40, padShift: 4, padMask: 0x30, version: 0x0f };
/** Bits of byte 4, which the ICRC ignores. */
const Congestion = { fecn: 0x80, becn: 0x40 };
const ACK_REQUEST = 0x80;

/**
 * True if the packet goes to its queue pair: a valid one, or a request of a reliable connection with an
 * invalid payload length. The responder sends a NAK for that, unless it drops the packet for its PSN (IBTA
 * 9.7.4.1.5).
 */
export function mayBeAnswered(refusal: PacketRefusal, opcode: number): boolean {
  if (refusal === PacketRefusal.none) return true;
  if (refusal < PacketRefusal.payloadForbidden || refusal > PacketRefusal.payloadTooLong) {
    return false;
  }
  return serviceOf(opcode) === Service.rc && (opcodeTraits(opcode) & Trait.request) !== 0;
}

/**
 * Parses the packet of `length` bytes at `start`, from base header to end of padding, into `packet`. The
 * contents of `packet` are undefined after a rejection, unless `mayBeAnswered`. Reserved bits are ignored.
 * `span`: see `Packet.span`.
 */
export function parsePacket(
  bytes: Uint8Array,
  start: number,
  length: number,
  packet: Packet,
  span = 1,
): PacketRefusal {
  if (length < BTH_BYTES || start < 0 || start + length > bytes.length) {
    return PacketRefusal.truncated;
  }
  const opcode = bytes[start] as number;
  const flags = bytes[start + 1] as number;
  if ((flags & BthFlag.version) !== 0) return PacketRefusal.version;
  const traits = opcodeTraits(opcode);
  if (traits === 0) return PacketRefusal.opcode;
  const headers = headerBytes(opcode);
  if (length < headers) return PacketRefusal.truncated;
  const padBytes = (flags & BthFlag.padMask) >> BthFlag.padShift;
  const payloadLength = length - headers - padBytes;
  if ((length & 3) !== 0 || payloadLength < 0) return PacketRefusal.padding;
  const refusal = checkPayload(traits, payloadLength, padBytes, span);
  if (!mayBeAnswered(refusal, opcode)) return refusal;
  readBase(bytes, start, packet);
  readExtended(bytes, start + BTH_BYTES, traits, packet);
  packet.payloadStart = start + headers;
  packet.payloadLength = payloadLength;
  packet.span = span;
  if ((traits & Trait.aeth) !== 0 && !isSyndrome(packet.syndrome)) return PacketRefusal.syndrome;
  return refusal;
}

/** Checks the payload length against the bounds of any path (IBTA 9.6.1.5, 9.8.2.2.5). */
function checkPayload(
  traits: number,
  payloadLength: number,
  padBytes: number,
  span: number,
): PacketRefusal {
  if ((traits & Trait.payload) === 0) {
    return payloadLength + padBytes === 0 ? PacketRefusal.none : PacketRefusal.payloadForbidden;
  }
  if (payloadLength > span * PATH_MTU_MAX_BYTES) return PacketRefusal.payloadTooLong;
  if ((traits & Trait.ends) === 0) {
    return isPathMtu(payloadLength / span) ? PacketRefusal.none : PacketRefusal.payloadNotPathMtu;
  }
  if (payloadLength === 0 && (traits & Trait.starts) === 0) return PacketRefusal.payloadMissing;
  return PacketRefusal.none;
}

function readBase(bytes: Uint8Array, at: number, packet: Packet): void {
  const flags = bytes[at + 1] as number;
  const congestion = bytes[at + 4] as number;
  packet.opcode = bytes[at] as number;
  packet.solicited = (flags & BthFlag.solicited) !== 0;
  packet.migrated = (flags & BthFlag.migrated) !== 0;
  packet.pkey = readUint16(bytes, at + 2);
  packet.fecn = (congestion & Congestion.fecn) !== 0;
  packet.becn = (congestion & Congestion.becn) !== 0;
  packet.destQpn = readUint24(bytes, at + 5);
  packet.ackRequest = ((bytes[at + 8] as number) & ACK_REQUEST) !== 0;
  packet.psn = readUint24(bytes, at + 9);
}

/** Reads the extended headers at `start`. The caller has checked the length. */
function readExtended(bytes: Uint8Array, start: number, traits: number, packet: Packet): void {
  let at = start;
  if ((traits & Trait.deth) !== 0) {
    packet.qkey = readUint32(bytes, at);
    packet.sourceQpn = readUint24(bytes, at + 5);
    at += HeaderBytes.deth;
  }
  if ((traits & (Trait.reth | Trait.atomicEth)) !== 0) {
    packet.vaHi = readUint32(bytes, at);
    packet.vaLo = readUint32(bytes, at + 4);
    packet.rkey = readUint32(bytes, at + 8);
    if ((traits & Trait.reth) !== 0) {
      packet.dmaLength = readUint32(bytes, at + 12);
      at += HeaderBytes.reth;
    } else {
      packet.swapAddHi = readUint32(bytes, at + 12);
      packet.swapAddLo = readUint32(bytes, at + 16);
      packet.compareHi = readUint32(bytes, at + 20);
      packet.compareLo = readUint32(bytes, at + 24);
    }
  }
  if ((traits & Trait.aeth) !== 0) {
    packet.syndrome = bytes[at] as number;
    packet.msn = readUint24(bytes, at + 1);
    at += HeaderBytes.aeth;
  }
  if ((traits & Trait.atomicAckEth) !== 0) {
    packet.originalHi = readUint32(bytes, at);
    packet.originalLo = readUint32(bytes, at + 4);
  }
  if ((traits & Trait.immediate) !== 0) packet.immediate = readUint32(bytes, at);
  if ((traits & Trait.ieth) !== 0) packet.invalidateRkey = readUint32(bytes, at);
}

/** Bytes of padding after a payload of `payloadLength` bytes: 0 to 3. */
export function paddingBytes(payloadLength: number): number {
  return -payloadLength & 3;
}

/** Length of the whole packet with padding. */
export function packetBytes(packet: Readonly<Packet>): number {
  const { payloadLength } = packet;
  return headerBytes(packet.opcode) + payloadLength + paddingBytes(payloadLength);
}

/**
 * Writes base and extended headers of `packet` at `at`; reserved bits are zero. Returns where the caller
 * writes the payload, followed by `paddingBytes` zeros. `target` must have room for `packetBytes`;
 * `payloadStart` is not used.
 */
export function writeHeaders(target: Uint8Array, at: number, packet: Readonly<Packet>): number {
  const traits = opcodeTraits(packet.opcode);
  target[at] = packet.opcode;
  target[at + 1] =
    (packet.solicited ? BthFlag.solicited : 0) |
    (packet.migrated ? BthFlag.migrated : 0) |
    (paddingBytes(packet.payloadLength) << BthFlag.padShift);
  writeUint16(target, at + 2, packet.pkey);
  target[at + 4] = (packet.fecn ? Congestion.fecn : 0) | (packet.becn ? Congestion.becn : 0);
  writeUint24(target, at + 5, packet.destQpn);
  target[at + 8] = packet.ackRequest ? ACK_REQUEST : 0;
  writeUint24(target, at + 9, packet.psn);
  return writeExtended(target, at + BTH_BYTES, traits, packet);
}

function writeExtended(
  target: Uint8Array,
  start: number,
  traits: number,
  packet: Readonly<Packet>,
): number {
  let at = start;
  if ((traits & Trait.deth) !== 0) {
    writeUint32(target, at, packet.qkey);
    target[at + 4] = 0;
    writeUint24(target, at + 5, packet.sourceQpn);
    at += HeaderBytes.deth;
  }
  if ((traits & (Trait.reth | Trait.atomicEth)) !== 0) {
    writeUint32(target, at, packet.vaHi);
    writeUint32(target, at + 4, packet.vaLo);
    writeUint32(target, at + 8, packet.rkey);
    if ((traits & Trait.reth) !== 0) {
      writeUint32(target, at + 12, packet.dmaLength);
      at += HeaderBytes.reth;
    } else {
      writeUint32(target, at + 12, packet.swapAddHi);
      writeUint32(target, at + 16, packet.swapAddLo);
      writeUint32(target, at + 20, packet.compareHi);
      writeUint32(target, at + 24, packet.compareLo);
      at += HeaderBytes.atomicEth;
    }
  }
  if ((traits & Trait.aeth) !== 0) {
    target[at] = packet.syndrome;
    writeUint24(target, at + 1, packet.msn);
    at += HeaderBytes.aeth;
  }
  if ((traits & Trait.atomicAckEth) !== 0) {
    writeUint32(target, at, packet.originalHi);
    writeUint32(target, at + 4, packet.originalLo);
    at += HeaderBytes.atomicAckEth;
  }
  if ((traits & (Trait.immediate | Trait.ieth)) !== 0) {
    const word = (traits & Trait.immediate) !== 0 ? packet.immediate : packet.invalidateRkey;
    writeUint32(target, at, word);
    at += HeaderBytes.immediate;
  }
  return at;
}
