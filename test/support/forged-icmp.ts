/** Sends ICMP messages about datagrams that were never sent, as anyone on the network can: by raw sockets. */
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import {
  AF_INET,
  openSocket,
  SocketType,
  socketAddress,
} from '#native-bridge/libc/internet-socket';
import { checked, libc } from '#native-bridge/libc/libc';

const sendto = libc.func(
  'int64_t sendto(int fd, void *bytes, uint64_t length, int flags, void *address, uint32_t addressLength)',
) as (...call: [number, Uint8Array, number, number, Uint8Array, number]) => number;

const IPPROTO_UDP = 17;
const IPPROTO_ICMP = 1;
const IPPROTO_ICMPV6 = 58;
const ICMP_BYTES = 8;
const UDP_BYTES = 8;
const [IPV4_BYTES, IPV6_BYTES] = [20, 40];

/** A UDP datagram of `source`, and what follows its UDP header. */
interface Quoted {
  readonly source: string;
  readonly sourcePort: number;
  readonly destination: string;
  readonly destinationPort: number;
  readonly payload?: Uint8Array;
}

/** "It is too long for the path, which carries `mtuBytes`". */
export function forgeTooBig(quoted: Quoted, mtuBytes: number): void {
  const four = !quoted.source.includes(':');
  forge(quoted, four ? 3 : 2, four ? 4 : 0, mtuBytes);
}

/** "Nothing listens at its port". */
export function forgePortUnreachable(quoted: Quoted): void {
  const four = !quoted.source.includes(':');
  forge(quoted, four ? 3 : 1, four ? 3 : 4, 0);
}

/** "There is no route to its host". */
export function forgeHostUnreachable(quoted: Quoted): void {
  const four = !quoted.source.includes(':');
  forge(quoted, four ? 3 : 1, four ? 1 : 3, 0);
}

function forge(quoted: Quoted, type: number, code: number, mtuBytes: number): void {
  const to = socketAddress(quoted.source, 0);
  const four = to[0] === AF_INET;
  const inner = four ? ipv4Datagram(quoted) : ipv6Datagram(quoted);
  const message = new Uint8Array(ICMP_BYTES + inner.length);
  message.set([type, code]);
  message.set(inner, ICMP_BYTES);
  const fields = new DataView(message.buffer);
  if (four) fields.setUint16(6, mtuBytes);
  else fields.setUint32(4, mtuBytes);
  // The kernel fills in the checksum of ICMPv6.
  if (four) fields.setUint16(2, checksum(message));
  const fd = openSocket(to, SocketType.raw, four ? IPPROTO_ICMP : IPPROTO_ICMPV6);
  try {
    checked('sendto', sendto(fd, message, message.length, 0, to, to.length), quoted.source);
  } finally {
    closeDescriptor(fd);
  }
}

function ipv4Datagram(quoted: Quoted): Uint8Array {
  const udp = udpDatagram(quoted);
  const header = new Uint8Array(IPV4_BYTES);
  const fields = new DataView(header.buffer);
  fields.setUint8(0, 0x45);
  fields.setUint16(2, IPV4_BYTES + udp.length);
  // Don't fragment.
  fields.setUint16(6, 0x4000);
  header.set([64, IPPROTO_UDP], 8);
  header.set(socketAddress(quoted.source, 0).subarray(4, 8), 12);
  header.set(socketAddress(quoted.destination, 0).subarray(4, 8), 16);
  fields.setUint16(10, checksum(header));
  return Uint8Array.from([...header, ...udp]);
}

function ipv6Datagram(quoted: Quoted): Uint8Array {
  const udp = udpDatagram(quoted);
  const header = new Uint8Array(IPV6_BYTES);
  const fields = new DataView(header.buffer);
  fields.setUint8(0, 0x60);
  fields.setUint16(4, udp.length);
  header.set([IPPROTO_UDP, 64], 6);
  header.set(socketAddress(quoted.source, 0).subarray(8, 24), 8);
  header.set(socketAddress(quoted.destination, 0).subarray(8, 24), 24);
  return Uint8Array.from([...header, ...udp]);
}

function udpDatagram(quoted: Quoted): Uint8Array {
  const { sourcePort, destinationPort, payload = new Uint8Array(0) } = quoted;
  const udp = new Uint8Array(UDP_BYTES + payload.length);
  const fields = new DataView(udp.buffer);
  fields.setUint16(0, sourcePort);
  fields.setUint16(2, destinationPort);
  fields.setUint16(4, udp.length);
  udp.set(payload, UDP_BYTES);
  return udp;
}

/** The Internet checksum (RFC 1071). */
function checksum(bytes: Uint8Array): number {
  let sum = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    sum += at % 2 === 0 ? (bytes[at] ?? 0) << 8 : (bytes[at] ?? 0);
  }
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}
