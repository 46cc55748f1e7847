/**
 * Writes and reads RoCEv2 packets over IPv4 as a peer does, with code that is independent of the code
 * under test.
 */
import { bytesOf, hexOf } from './hex.ts';

/** The UDP port of RoCEv2. */
export const RAW_PORT = 4791;
const BTH_BYTES = 12;
const ICRC_BYTES = 4;
const IP_UDP_BYTES = 28;

/** Opcodes of reliable connections. Those of UC have 0x20 added. */
export const Op = {
  sendFirst: 0x00,
  sendMiddle: 0x01,
  sendLast: 0x02,
  sendLastImmediate: 0x03,
  sendOnly: 0x04,
  sendOnlyImmediate: 0x05,
  writeFirst: 0x06,
  writeMiddle: 0x07,
  writeLast: 0x08,
  writeLastImmediate: 0x09,
  writeOnly: 0x0a,
  writeOnlyImmediate: 0x0b,
  readRequest: 0x0c,
  readFirst: 0x0d,
  readMiddle: 0x0e,
  readLast: 0x0f,
  readOnly: 0x10,
  acknowledge: 0x11,
  atomicAcknowledge: 0x12,
  compareSwap: 0x13,
  fetchAdd: 0x14,
  sendLastInvalidate: 0x16,
  sendOnlyInvalidate: 0x17,
  udSendOnly: 0x64,
  udSendOnlyImmediate: 0x65,
} as const;
/** Added to an opcode for UC. */
export const UC = 0x20;

/** A base header, and everything after it, up to the ICRC, in hexadecimal. */
export interface RawPacket {
  readonly opcode: number;
  readonly solicited: boolean;
  readonly pad: number;
  readonly version: number;
  readonly pkey: number;
  /** The byte with the congestion bits, which the ICRC does not cover. */
  readonly variant: number;
  readonly destQpn: number;
  readonly ackRequest: boolean;
  readonly psn: number;
  readonly rest: string;
}

/** `value` as this many hexadecimal digits. */
export function digits(value: number | bigint, count: number): string {
  return value.toString(16).padStart(count, '0');
}

/** A packet without its ICRC. Omitted fields have usual values. */
export function writePacket(fields: Partial<RawPacket> & Pick<RawPacket, 'opcode'>): Uint8Array {
  const { opcode, solicited = false, pad = 0, version = 0, pkey = 0xffff, variant = 0 } = fields;
  const { destQpn = 0, ackRequest = false, psn = 0, rest = '' } = fields;
  const second = (solicited ? 0x80 : 0) | (pad << 4) | version;
  return bytesOf(
    `${digits(opcode, 2)}${digits(second, 2)}${digits(pkey, 4)} ${digits(variant, 2)}` +
      `${digits(destQpn, 6)} ${ackRequest ? '80' : '00'}${digits(psn, 6)} ${rest}`,
  );
}

/** Reads a packet without its ICRC. */
export function readPacket(bytes: Uint8Array): RawPacket {
  if (bytes.length < BTH_BYTES) throw new Error(`a packet of ${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const second = view.getUint8(1);
  return {
    opcode: view.getUint8(0),
    solicited: (second & 0x80) !== 0,
    pad: (second >> 4) & 3,
    version: second & 15,
    pkey: view.getUint16(2),
    variant: view.getUint8(4),
    destQpn: view.getUint32(4) & 0xff_ffff,
    ackRequest: (view.getUint8(8) & 0x80) !== 0,
    psn: view.getUint32(8) & 0xff_ffff,
    rest: hexOf(bytes.subarray(BTH_BYTES)),
  };
}

/** Source and destination of a packet. */
export interface RawFlow {
  readonly from: string;
  readonly fromPort: number;
  readonly to: string;
}

/** The ICRC of a packet between these addresses, whose IP header has identification 0 and DF. */
export function rawIcrc({ from, fromPort, to }: RawFlow, packet: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(8 + IP_UDP_BYTES + packet.length);
  const view = new DataView(bytes.buffer);
  const udpBytes = 8 + packet.length + ICRC_BYTES;
  // Fields that routers change count as ones, as do the bytes in place of the local route header.
  bytes.fill(0xff, 0, 8);
  bytes.set([0x45, 0xff], 8);
  view.setUint16(10, 20 + udpBytes);
  view.setUint16(14, 0x4000);
  bytes.set([0xff, 17, 0xff, 0xff], 16);
  bytes.set(from.split('.').map(Number), 20);
  bytes.set(to.split('.').map(Number), 24);
  view.setUint16(28, fromPort);
  view.setUint16(30, RAW_PORT);
  view.setUint16(32, udpBytes);
  view.setUint16(34, 0xffff);
  bytes.set(packet, 8 + IP_UDP_BYTES);
  bytes[8 + IP_UDP_BYTES + 4] = 0xff;
  const icrc = new Uint8Array(ICRC_BYTES);
  new DataView(icrc.buffer).setUint32(0, crc32(bytes), true);
  return icrc;
}

/** The CRC-32 of Ethernet, bit by bit. */
function crc32(bytes: Uint8Array): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ ((crc & 1) === 0 ? 0 : 0xedb8_8320);
  }
  return ~crc >>> 0;
}

/** RETH: address, key, length. */
export function reth(address: bigint, rkey: number, length: number): string {
  return `${digits(address, 16)}${digits(rkey, 8)}${digits(length, 8)}`;
}

/** AtomicETH: address, key, operand to add or store, operand to compare. */
export function atomicEth(address: bigint, rkey: number, operand: bigint, compare = 0n): string {
  return `${digits(address, 16)}${digits(rkey, 8)}${digits(operand, 16)}${digits(compare, 16)}`;
}
