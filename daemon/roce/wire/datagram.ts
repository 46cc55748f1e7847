/**
 * The datagram around a RoCEv2 packet: IPv4 or IPv6, and UDP to port 4791 (IBTA annex A17).
 *
 * Addresses are GIDs of 16 bytes: an IPv6 address, or an IPv4 address after ::ffff. The GRH area before a
 * received UD message holds the same headers: an IPv6 header in place of the global route header, or 20 zero
 * bytes and an IPv4 header.
 *
 * `parseDatagram` reads a datagram from the network and rejects everything that is not RoCEv2;
 * `writeDatagramHeaders` (of `datagramHeaderBytes`) and `writeGrhArea` write from a `Datagram`.
 */
import { readUint16, writeUint16, writeUint32 } from '#base/unchecked-bytes';
import { GID_BYTES, ICRC_BYTES, IPV4_BYTES, IPV6_BYTES, ROCE_PORT, UDP_BYTES } from './icrc.ts';
import { BTH_BYTES } from './opcode.ts';

/** Bytes before a received UD message, for IPv4 and IPv6. */
export const GRH_AREA_BYTES = 40;

const UDP_PROTOCOL = 17;
const DONT_FRAGMENT = 0x4000;
/** The more-fragments flag and the fragment offset. */
const FRAGMENT_MASK = 0x3fff;
const FLOW_LABEL_MASK = 0xf_ffff;

/** Headers of one datagram. Mutable, so that one record can be reused. */
export class Datagram {
  /** Owned by the record. */
  readonly sourceGid: Uint8Array = new Uint8Array(GID_BYTES);
  /** Owned by the record. */
  readonly destGid: Uint8Array = new Uint8Array(GID_BYTES);
  /** IPv4: type of service. */
  trafficClass = 0;
  /** IPv6 only. */
  flowLabel = 0;
  /** IPv4: time to live. */
  hopLimit = 64;
  /** IPv4 only. Linux's UDP sockets send 0 with "don't fragment"; rxe sends any value. */
  identification = 0;
  sourcePort = 0xc000;
  /** Where the base transport header starts in the parsed bytes. */
  packetStart = 0;
  /** Bytes of the packet from the base header to the end of the padding, without ICRC. */
  packetLength = 0;
}

export const DatagramRefusal = {
  none: 0,
  /** Shorter than its headers, a base transport header and an ICRC, or than its own lengths. */
  truncated: 1,
  /** Neither IPv4 nor IPv6. */
  version: 2,
  /** IPv4 options or IPv6 extension headers, which RoCEv2 does not use. */
  options: 3,
  /** A fragment. */
  fragment: 4,
  /** Not UDP, or another port. */
  notRoce: 5,
  /** The lengths in the IP and UDP headers contradict each other. */
  length: 6,
  /** An IPv6 header with an IPv4-mapped address (::ffff:0:0/96), which a GID uses for IPv4. */
  address: 7,
} as const;
export type DatagramRefusal = (typeof DatagramRefusal)[keyof typeof DatagramRefusal];

/** True for a GID that stands for an IPv4 address. */
export function isIpv4Gid(gid: Uint8Array): boolean {
  for (let i = 0; i < 10; i += 1) if (gid[i] !== 0) return false;
  return gid[10] === 0xff && gid[11] === 0xff;
}

/**
 * Parses the datagram at `start`, of which `length` bytes are available. Ignores bytes after its own length,
 * since Ethernet pads. Checks no checksum.
 */
export function parseDatagram(
  bytes: Uint8Array,
  start: number,
  length: number,
  datagram: Datagram,
): DatagramRefusal {
  if (length < IPV4_BYTES || start < 0 || start + length > bytes.length) {
    return DatagramRefusal.truncated;
  }
  const version = (bytes[start] as number) >> 4;
  if (version === 4) return parseIpv4(bytes, start, length, datagram);
  if (version === 6) return parseIpv6(bytes, start, length, datagram);
  return DatagramRefusal.version;
}

function parseIpv4(
  bytes: Uint8Array,
  start: number,
  length: number,
  datagram: Datagram,
): DatagramRefusal {
  if (((bytes[start] as number) & 0x0f) !== 5) return DatagramRefusal.options;
  const total = readUint16(bytes, start + 2);
  if (total > length) return DatagramRefusal.truncated;
  if ((readUint16(bytes, start + 6) & FRAGMENT_MASK) !== 0) return DatagramRefusal.fragment;
  if (bytes[start + 9] !== UDP_PROTOCOL) return DatagramRefusal.notRoce;
  datagram.trafficClass = bytes[start + 1] as number;
  datagram.flowLabel = 0;
  datagram.identification = readUint16(bytes, start + 4);
  datagram.hopLimit = bytes[start + 8] as number;
  readIpv4Gid(bytes, start + 12, datagram.sourceGid);
  readIpv4Gid(bytes, start + 16, datagram.destGid);
  return parseUdp(bytes, start + IPV4_BYTES, total - IPV4_BYTES, datagram);
}

function parseIpv6(
  bytes: Uint8Array,
  start: number,
  length: number,
  datagram: Datagram,
): DatagramRefusal {
  if (length < IPV6_BYTES) return DatagramRefusal.truncated;
  const payload = readUint16(bytes, start + 4);
  if (payload > length - IPV6_BYTES) return DatagramRefusal.truncated;
  const next = bytes[start + 6] as number;
  // Hop-by-hop, routing, fragment, authentication and destination options.
  if (next === 0 || next === 43 || next === 51 || next === 60) return DatagramRefusal.options;
  if (next === 44) return DatagramRefusal.fragment;
  if (next !== UDP_PROTOCOL) return DatagramRefusal.notRoce;
  const word = readUint16(bytes, start);
  datagram.trafficClass = (word >> 4) & 0xff;
  datagram.flowLabel = ((word & 0x0f) << 16) | readUint16(bytes, start + 2);
  datagram.identification = 0;
  datagram.hopLimit = bytes[start + 7] as number;
  for (let i = 0; i < GID_BYTES; i += 1) {
    datagram.sourceGid[i] = bytes[start + 8 + i] as number;
    datagram.destGid[i] = bytes[start + 24 + i] as number;
  }
  if (isIpv4Gid(datagram.sourceGid) || isIpv4Gid(datagram.destGid)) return DatagramRefusal.address;
  return parseUdp(bytes, start + IPV6_BYTES, payload, datagram);
}

/** `length`: bytes after the IP header, all available. */
function parseUdp(
  bytes: Uint8Array,
  start: number,
  length: number,
  datagram: Datagram,
): DatagramRefusal {
  if (length < UDP_BYTES) return DatagramRefusal.truncated;
  if (readUint16(bytes, start + 2) !== ROCE_PORT) return DatagramRefusal.notRoce;
  if (readUint16(bytes, start + 4) !== length) return DatagramRefusal.length;
  if (length < UDP_BYTES + BTH_BYTES + ICRC_BYTES) return DatagramRefusal.truncated;
  datagram.sourcePort = readUint16(bytes, start);
  datagram.packetStart = start + UDP_BYTES;
  datagram.packetLength = length - UDP_BYTES - ICRC_BYTES;
  return DatagramRefusal.none;
}

function readIpv4Gid(bytes: Uint8Array, at: number, gid: Uint8Array): void {
  gid.fill(0, 0, 10);
  gid[10] = 0xff;
  gid[11] = 0xff;
  for (let i = 0; i < 4; i += 1) gid[12 + i] = bytes[at + i] as number;
}

/** Length of the IP and UDP headers between these addresses. */
export function datagramHeaderBytes(datagram: Readonly<Datagram>): number {
  return (isIpv4Gid(datagram.destGid) ? IPV4_BYTES : IPV6_BYTES) + UDP_BYTES;
}

/**
 * Writes IP and UDP headers for `packetLength` bytes of packet and an ICRC. Returns where the packet starts.
 * The UDP checksum is 0, as rxe sends it: the ICRC protects the datagram. Over IPv6, call `writeUdpChecksum`
 * at the end unless the receiver is known to accept 0.
 */
export function writeDatagramHeaders(
  target: Uint8Array,
  at: number,
  datagram: Readonly<Datagram>,
): number {
  const udpBytes = UDP_BYTES + datagram.packetLength + ICRC_BYTES;
  const udp = isIpv4Gid(datagram.destGid)
    ? writeIpv4Header(target, at, datagram, udpBytes)
    : writeIpv6Header(target, at, datagram, udpBytes);
  writeUint16(target, udp, datagram.sourcePort);
  writeUint16(target, udp + 2, ROCE_PORT);
  writeUint16(target, udp + 4, udpBytes);
  writeUint16(target, udp + 6, 0);
  return udp + UDP_BYTES;
}

/**
 * Writes the UDP checksum of a whole datagram over IPv6, which ends with its ICRC at `end`. The ICRC does not
 * depend on it.
 */
export function writeUdpChecksum(datagram: Uint8Array, ipStart: number, end: number): void {
  const udp = ipStart + IPV6_BYTES;
  writeUint16(datagram, udp + 6, 0);
  // The pseudo header: both addresses, length and protocol (RFC 8200 §8.1).
  let sum = end - udp + UDP_PROTOCOL;
  // The length is a multiple of 4: packets are padded, and so are their headers.
  for (let at = ipStart + 8; at < end; at += 2) sum += readUint16(datagram, at);
  while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x1_0000);
  // 0 would mean "no checksum".
  writeUint16(datagram, udp + 6, sum === 0xffff ? 0xffff : ~sum & 0xffff);
}

/** Writes the `GRH_AREA_BYTES` before a received UD message at `at`. */
export function writeGrhArea(target: Uint8Array, at: number, datagram: Readonly<Datagram>): void {
  const udpBytes = UDP_BYTES + datagram.packetLength + ICRC_BYTES;
  if (isIpv4Gid(datagram.destGid)) {
    target.fill(0, at, at + GRH_AREA_BYTES - IPV4_BYTES);
    writeIpv4Header(target, at + GRH_AREA_BYTES - IPV4_BYTES, datagram, udpBytes);
  } else {
    writeIpv6Header(target, at, datagram, udpBytes);
  }
}

function writeIpv4Header(
  target: Uint8Array,
  at: number,
  datagram: Readonly<Datagram>,
  udpBytes: number,
): number {
  target[at] = 0x45;
  target[at + 1] = datagram.trafficClass;
  writeUint16(target, at + 2, IPV4_BYTES + udpBytes);
  writeUint16(target, at + 4, datagram.identification);
  writeUint16(target, at + 6, DONT_FRAGMENT);
  target[at + 8] = datagram.hopLimit;
  target[at + 9] = UDP_PROTOCOL;
  writeUint16(target, at + 10, 0);
  for (let i = 0; i < 4; i += 1) {
    target[at + 12 + i] = datagram.sourceGid[12 + i] as number;
    target[at + 16 + i] = datagram.destGid[12 + i] as number;
  }
  writeUint16(target, at + 10, headerChecksum(target, at));
  return at + IPV4_BYTES;
}

/** Checksum of an IPv4 header whose checksum field is 0 (RFC 1071). */
function headerChecksum(bytes: Uint8Array, start: number): number {
  let sum = 0;
  for (let at = start; at < start + IPV4_BYTES; at += 2) sum += readUint16(bytes, at);
  sum = (sum & 0xffff) + (sum >>> 16);
  return ~(sum + (sum >>> 16)) & 0xffff;
}

function writeIpv6Header(
  target: Uint8Array,
  at: number,
  datagram: Readonly<Datagram>,
  udpBytes: number,
): number {
  const { trafficClass, flowLabel } = datagram;
  writeUint32(target, at, (6 << 28) | (trafficClass << 20) | (flowLabel & FLOW_LABEL_MASK));
  writeUint16(target, at + 4, udpBytes);
  target[at + 6] = UDP_PROTOCOL;
  target[at + 7] = datagram.hopLimit;
  for (let i = 0; i < GID_BYTES; i += 1) {
    target[at + 8 + i] = datagram.sourceGid[i] as number;
    target[at + 24 + i] = datagram.destGid[i] as number;
  }
  return at + IPV6_BYTES;
}
