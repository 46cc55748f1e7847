/** Finds the TCP segment in a captured packet (RFC 791, RFC 8200, RFC 9293). */

/** A TCP segment as recorded. */
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

/** LINKTYPE_ values (https://www.tcpdump.org/linktypes.html) that contain IP packets. */
const LinkType = {
  null: 0,
  ethernet: 1,
  raw: 101,
  loop: 108,
  linuxCooked: 113,
  ipv4: 228,
  ipv6: 229,
  linuxCooked2: 276,
} as const;

const ETHER_TYPE_IPV4 = 0x0800;
const ETHER_TYPE_IPV6 = 0x86dd;
const VLAN_ETHER_TYPES: readonly number[] = [0x8100, 0x88a8, 0x9100];
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

function ipStart(linkType: number, view: DataView): number | undefined {
  switch (linkType) {
    case LinkType.ethernet:
      return behindEtherType(view, 12);
    case LinkType.linuxCooked:
      return behindEtherType(view, 14);
    case LinkType.linuxCooked2:
      return view.byteLength >= 20 && isIp(view.getUint16(0)) ? 20 : undefined;
    case LinkType.null:
    case LinkType.loop:
      return 4;
    case LinkType.raw:
    case LinkType.ipv4:
    case LinkType.ipv6:
      return 0;
    default:
      return undefined;
  }
}

/** Offset of IP after an EtherType and any VLAN tags before it. */
function behindEtherType(view: DataView, typeAt: number): number | undefined {
  let at = typeAt;
  while (at + 2 <= view.byteLength) {
    const type = view.getUint16(at);
    if (isIp(type)) return at + 2;
    if (!VLAN_ETHER_TYPES.includes(type)) return undefined;
    at += 4;
  }
  return undefined;
}

function isIp(etherType: number): boolean {
  return etherType === ETHER_TYPE_IPV4 || etherType === ETHER_TYPE_IPV6;
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

function dotted(view: DataView, at: number): string {
  return [0, 1, 2, 3].map((index) => view.getUint8(at + index)).join('.');
}

/** An IPv6 address in its canonical form (RFC 5952). */
function colons(view: DataView, at: number): string {
  const groups = [0, 2, 4, 6, 8, 10, 12, 14].map((index) => view.getUint16(at + index));
  const text = groups.map((group) => group.toString(16)).join(':');
  const runs = [...text.matchAll(/\b0(?::0\b)+/g)];
  const [longest] = runs.toSorted((one, other) => other[0].length - one[0].length);
  if (longest === undefined) return text;
  const head = text.slice(0, longest.index).replace(/:$/, '');
  return `${head}::${text.slice(longest.index + longest[0].length).replace(/^:/, '')}`;
}
