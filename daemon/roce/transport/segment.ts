/** Packets of Sends and Writes: opcode, headers and payload of each one. */
import { AccessRefusal, type DeferringUser, OutboundKind } from '#daemon/rnic/wire-port';
import { PacketOperation, type Service } from '../wire/opcode.ts';
import { type Packet, packetBytes, paddingBytes, writeHeaders } from '../wire/packet.ts';
import type { OutgoingMessage } from './outgoing-messages.ts';

/** Operations of the first, middle, last and only packet of a kind of message. */
type Operations = readonly [number, number, number, number];

const SEND: Operations = [
  PacketOperation.sendFirst,
  PacketOperation.sendMiddle,
  PacketOperation.sendLast,
  PacketOperation.sendOnly,
];
const SEND_IMMEDIATE: Operations = [
  PacketOperation.sendFirst,
  PacketOperation.sendMiddle,
  PacketOperation.sendLastImmediate,
  PacketOperation.sendOnlyImmediate,
];
const SEND_INVALIDATE: Operations = [
  PacketOperation.sendFirst,
  PacketOperation.sendMiddle,
  PacketOperation.sendLastInvalidate,
  PacketOperation.sendOnlyInvalidate,
];
const WRITE: Operations = [
  PacketOperation.writeFirst,
  PacketOperation.writeMiddle,
  PacketOperation.writeLast,
  PacketOperation.writeOnly,
];
const WRITE_IMMEDIATE: Operations = [
  PacketOperation.writeFirst,
  PacketOperation.writeMiddle,
  PacketOperation.writeLastImmediate,
  PacketOperation.writeOnlyImmediate,
];

/** By `OutboundKind`; undefined for other kinds than Send and Write. */
const OPERATIONS: Readonly<Partial<Record<OutboundKind, Operations>>> = {
  [OutboundKind.send]: SEND,
  [OutboundKind.sendWithImmediate]: SEND_IMMEDIATE,
  [OutboundKind.sendWithInvalidate]: SEND_INVALIDATE,
  [OutboundKind.write]: WRITE,
  [OutboundKind.writeWithImmediate]: WRITE_IMMEDIATE,
};

export function isSegmented(kind: OutboundKind): boolean {
  return OPERATIONS[kind] !== undefined;
}

/**
 * Payload of a packet that stands for several, where memory is fetched before it is read: hundreds of queue
 * pairs share the room for fetched bytes, and ranges that do not fit are fetched again and again.
 */
const FETCHED_BYTES_MAX = 16_384;

/**
 * The span of the next packet of a message with `left` packets to send. `wholeBytes`: see
 * `PacketWire.pollPacket`. `fetches`: its memory has to be fetched.
 */
export function spanOf(left: number, wholeBytes: number, mtu: number, fetches: boolean): number {
  const bytes = fetches ? Math.min(wholeBytes, FETCHED_BYTES_MAX) : wholeBytes;
  return bytes <= mtu ? 1 : Math.min(left, Math.floor(bytes / mtu));
}

/**
 * True if the payload has a length that `span` packets have: all but the last are one path MTU long, and this
 * one, too, unless it ends its message.
 */
export function fitsSpan(
  { payloadLength, span }: Readonly<Packet>,
  mtu: number,
  ends: boolean,
): boolean {
  if (!ends) return payloadLength === span * mtu;
  return payloadLength <= span * mtu && (span === 1 || payloadLength > (span - 1) * mtu);
}

/**
 * Fills in `packet` for the payload at `offset` of a Send or Write, at most `sizeMax` bytes: everything except
 * destination, PSN, span and the ACK request bit. A message without payload has one packet.
 */
export function describeSegment(
  packet: Packet,
  message: OutgoingMessage,
  offset: number,
  sizeMax: number,
  service: Service,
): void {
  const left = message.lengthBytes - offset;
  const last = left <= sizeMax;
  const position = offset === 0 ? (last ? 3 : 0) : last ? 2 : 1;
  const operations = OPERATIONS[message.kind];
  packet.opcode = service | (operations === undefined ? 0 : operations[position]);
  packet.solicited = last && message.solicited;
  packet.payloadLength = last ? left : sizeMax;
  packet.vaHi = message.remoteToHi;
  packet.vaLo = message.remoteToLo;
  packet.rkey = message.remoteStag;
  packet.dmaLength = message.lengthBytes;
  packet.immediate = message.immediate;
  packet.invalidateRkey = message.invalidateStag;
}

/**
 * Writes the packet at `start`; its payload may be missing until gathering ends. Returns its length, or -1 if
 * the payload could not be gathered: the queue pair has the reason.
 */
export function writeSegment(
  user: DeferringUser,
  packet: Packet,
  slot: number,
  offset: number,
  target: Uint8Array,
  start: number,
): number {
  const at = writeHeaders(target, start, packet);
  const size = packet.payloadLength;
  if (size > 0 && user.gatherLater(slot, offset, size, target, at) !== AccessRefusal.none)
    return -1;
  padPayload(target, at + size, size);
  return packetBytes(packet);
}

/** Like `writeSegment`, for a packet whose payload is lent. */
export function writeLentSegment(
  user: DeferringUser,
  packet: Packet,
  slot: number,
  offset: number,
  target: Uint8Array,
  start: number,
): number {
  const at = writeHeaders(target, start, packet);
  const size = packet.payloadLength;
  if (user.lend(slot, offset, size, target, at) !== AccessRefusal.none) return -1;
  padPayload(target, at + size, size);
  return packetBytes(packet);
}

export function padPayload(target: Uint8Array, end: number, size: number): void {
  for (let index = 0; index < paddingBytes(size); index += 1) target[end + index] = 0;
}
