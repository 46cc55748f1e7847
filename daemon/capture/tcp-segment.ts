/** Finds the TCP segment in a captured packet (RFC 791, RFC 8200, RFC 9293). */
import { colons, dotted, ipStart } from './ip-header.ts';

export interface TcpSegment {
  /** `address:port`, IPv6 addresses in brackets. */
  readonly source: string;
  readonly destination: string;
  readonly sequence: number;
  readonly syn: boolean;
  readonly ack: boolean;
  readonly fin: boolean;
  readonly rst: boolean;
  /** The recorded bytes; borrowed from the packet. */
  readonly payload: Uint8Array;
  /** Bytes in the original segment; exceeds `payload` if the recorder truncated the packet. */
  readonly payloadBytes: number;
}

const TCP = 6;
const IPV4_MIN_BYTES = 20;
const IPV6_BYTES = 40;
const TCP_MIN_BYTES = 20;
/** Hop-by-hop options, routing and destination options: multiples of 8 bytes. */
const IPV6_EXTENSIONS: readonly number[] = [0, 43, 60];
const FLAGS = { fin: 0x01, syn: 0x02, rst: 0x04, ack: 0x10 } as const;

/** The segment in a packet; undefined if it is not TCP over IP, or a fragment. */
export function findTcpSegment(
  linkType: number,
  bytes: Uint8Array,
  originalBytes: number,
): TcpSegment | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const at = ipStart(linkType, view);
  if (at === undefined || at >= bytes.length) return undefined;
  const packet: Packet = { view, bytes, at, originalBytes };
  switch (view.getUint8(at) >>> 4) {
    case 4:
      return inIpv4(packet);
    case 6:
      return inIpv6(packet);
    default:
      return undefined;
  }
}

interface Packet {
  readonly view: DataView;
  readonly bytes: Uint8Array;
  /** Offset of its IP header. */
  readonly at: number;
  readonly originalBytes: number;
}

function inIpv4(packet: Packet): TcpSegment | undefined {
  const { view, at } = packet;
  if (at + IPV4_MIN_BYTES > view.byteLength) return undefined;
  const headerBytes = (view.getUint8(at) & 0x0f) * 4;
  const fragment = view.getUint16(at + 6) & 0x3fff;
  if (headerBytes < IPV4_MIN_BYTES || fragment !== 0 || view.getUint8(at + 9) !== TCP) {
    return undefined;
  }
  const addresses = [at + 12, at + 16].map((start) => dotted(view, start));
  return tcpAt(packet, at + headerBytes, view.getUint16(at + 2), addresses);
}

function inIpv6(packet: Packet): TcpSegment | undefined {
  const { view, at } = packet;
  if (at + IPV6_BYTES > view.byteLength) return undefined;
  const lengthBytes = view.getUint16(at + 4);
  let next = view.getUint8(at + 6);
  let tcp = at + IPV6_BYTES;
  while (IPV6_EXTENSIONS.includes(next)) {
    if (tcp + 2 > view.byteLength) return undefined;
    next = view.getUint8(tcp);
    tcp += (view.getUint8(tcp + 1) + 1) * 8;
  }
  if (next !== TCP) return undefined;
  const addresses = [at + 8, at + 24].map((start) => `[${colons(view, start)}]`);
  return tcpAt(packet, tcp, lengthBytes === 0 ? 0 : IPV6_BYTES + lengthBytes, addresses);
}

/** `ipBytes`: the length in the IP header; 0 if the kernel left it to the network card. */
function tcpAt(
  packet: Packet,
  tcp: number,
  ipBytes: number,
  [from = '', to = '']: readonly string[],
): TcpSegment | undefined {
  const { view, bytes, at, originalBytes } = packet;
  if (tcp + TCP_MIN_BYTES > bytes.length) return undefined;
  const start = tcp + (view.getUint8(tcp + 12) >>> 4) * 4;
  const wireEnd = ipBytes === 0 ? originalBytes : at + ipBytes;
  if (start < tcp + TCP_MIN_BYTES || wireEnd < start) return undefined;
  const flags = view.getUint8(tcp + 13);
  return {
    source: `${from}:${view.getUint16(tcp)}`,
    destination: `${to}:${view.getUint16(tcp + 2)}`,
    sequence: view.getUint32(tcp + 4),
    syn: (flags & FLAGS.syn) !== 0,
    ack: (flags & FLAGS.ack) !== 0,
    fin: (flags & FLAGS.fin) !== 0,
    rst: (flags & FLAGS.rst) !== 0,
    payload: bytes.subarray(Math.min(start, bytes.length), Math.min(wireEnd, bytes.length)),
    payloadBytes: wireEnd - start,
  };
}
