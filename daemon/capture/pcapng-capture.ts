/**
 * Writes the traffic of a host's links as a pcapng file of whole TCP conversations. The payload is
 * real; Ethernet, IP and TCP headers are synthesized, with correct addresses, ports and sequence
 * numbers, from SYN to FIN or RST, so Wireshark recognizes MPA by its Request and dissects the rest.
 *
 * ```
 *  Ethernet 14   IPv4 20 or IPv6 40   TCP 20 (SYN: 28, with MSS and window scale)   bytes
 * ```
 *
 * Packets between queue pairs are whole datagrams; only Ethernet is synthesized.
 *
 * TCP checksums are 0, as in a recording on a host whose network card fills them in.
 */
import type { CaptureTap, LinkAddresses, LinkTap } from './capture-tap.ts';
import { PcapngWriter } from './pcapng-writer.ts';

interface PcapngCaptureOptions {
  /** Takes the file piece by piece, in order; the bytes are borrowed for the call. */
  readonly write: (bytes: Uint8Array) => void;
  /** Microseconds since 1970. Default: the host's clock. */
  readonly nowMicros?: () => number;
}

const ETHERNET_BYTES = 14;
const TCP_BYTES = 20;
const SYN_OPTION_BYTES = 8;
/** An IPv4 packet has at most 65,535 bytes; this leaves room for headers and some slack. */
const SEGMENT_MAX_BYTES = 65_483;
const FIN = 0x01;
const SYN = 0x02;
const RST = 0x04;
const PSH = 0x08;
const ACK = 0x10;
/** Sequence numbers of the SYNs: arbitrary; small ones are easy to read. */
const DIALER_ISN = 1000;
const LISTENER_ISN = 500_000_000;
const NO_BYTES = new Uint8Array(0);

export class PcapngCapture implements CaptureTap {
  readonly #writer: PcapngWriter;
  readonly #nowMicros: () => number;

  constructor(options: PcapngCaptureOptions) {
    this.#writer = new PcapngWriter(options.write);
    this.#nowMicros = options.nowMicros ?? (() => Date.now() * 1000);
  }

  opened(addresses: LinkAddresses): CapturedLink {
    return new CapturedLink(addresses, (bytes, put) => {
      this.#writer.packet(this.#nowMicros(), bytes, put);
    });
  }

  /** A datagram, from its IP header on. */
  packet(datagram: Uint8Array): void {
    const ipv6 = (datagram[0] ?? 0) >>> 4 === 6;
    this.#writer.packet(this.#nowMicros(), ETHERNET_BYTES + datagram.length, (frame) => {
      putEthernet(frame, 1, 2, ipv6);
      frame.set(datagram, ETHERNET_BYTES);
    });
  }

  /** Writes the end of the file, with the number of packets that could not be recorded. */
  finish(droppedPackets = 0): void {
    this.#writer.statistics(this.#nowMicros(), droppedPackets);
  }
}

/** One direction of a conversation. */
interface Half {
  readonly address: Uint8Array;
  readonly port: number;
  readonly byte: number;
  sequence: number;
  finished: boolean;
}

/** Records a packet of `bytes` bytes, filled in by `put`. */
type RecordPacket = (bytes: number, put: (packet: Uint8Array) => void) => void;

export class CapturedLink implements LinkTap {
  readonly watched = true;
  readonly #us: Half;
  readonly #peer: Half;
  readonly #segmentBytes: number;
  readonly #record: RecordPacket;

  constructor(addresses: LinkAddresses, record: RecordPacket) {
    const { localAddress, localPort, remoteAddress, remotePort, dialed } = addresses;
    this.#us = half(localAddress, localPort, 1, dialed);
    this.#peer = half(remoteAddress, remotePort, 2, !dialed);
    this.#segmentBytes = Math.min(Math.max(addresses.emssBytes, 1), SEGMENT_MAX_BYTES);
    this.#record = record;
    const [dialer, listener] = dialed ? [this.#us, this.#peer] : [this.#peer, this.#us];
    this.#packet(dialer, listener, SYN);
    this.#packet(listener, dialer, SYN | ACK);
    this.#packet(dialer, listener, ACK);
  }

  outbound(bytes: Uint8Array): void {
    this.#segments(this.#us, this.#peer, bytes);
  }

  inbound(bytes: Uint8Array): void {
    this.#segments(this.#peer, this.#us, bytes);
  }

  /** Bytes that were sent but not recorded: a gap in the sequence numbers. */
  lost(by: 'us' | 'peer', bytes: number): void {
    const half = by === 'us' ? this.#us : this.#peer;
    half.sequence = (half.sequence + bytes) >>> 0;
  }

  finished(by: 'us' | 'peer'): void {
    const [from, to] = by === 'us' ? [this.#us, this.#peer] : [this.#peer, this.#us];
    from.finished = true;
    this.#packet(from, to, FIN | ACK);
  }

  closed(reset: boolean): void {
    if (reset) this.#packet(this.#us, this.#peer, RST | ACK);
    else if (!this.#us.finished) this.finished('us');
  }

  #segments(from: Half, to: Half, bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += this.#segmentBytes) {
      this.#packet(from, to, PSH | ACK, bytes.subarray(at, at + this.#segmentBytes));
    }
  }

  #packet(from: Half, to: Half, flags: number, payload: Uint8Array = NO_BYTES): void {
    const options = (flags & SYN) === 0 ? 0 : SYN_OPTION_BYTES;
    const tcpBytes = TCP_BYTES + options + payload.length;
    const ipBytes = from.address.length === 4 ? 20 : 40;
    this.#record(ETHERNET_BYTES + ipBytes + tcpBytes, (packet) => {
      packet.fill(0, 0, packet.length - payload.length);
      putEthernet(packet, from.byte, to.byte, from.address.length === 16);
      putIp(packet, from, to, tcpBytes);
      this.#putTcp(viewFrom(packet, ETHERNET_BYTES + ipBytes), from, to, flags);
      packet.set(payload, packet.length - payload.length);
    });
    const counted = payload.length + ((flags & (SYN | FIN)) === 0 ? 0 : 1);
    from.sequence = (from.sequence + counted) >>> 0;
  }

  #putTcp(tcp: DataView, from: Half, to: Half, flags: number): void {
    const options = (flags & SYN) === 0 ? 0 : SYN_OPTION_BYTES;
    tcp.setUint16(0, from.port);
    tcp.setUint16(2, to.port);
    tcp.setUint32(4, from.sequence);
    tcp.setUint32(8, (flags & ACK) === 0 ? 0 : to.sequence);
    tcp.setUint8(12, ((TCP_BYTES + options) / 4) << 4);
    tcp.setUint8(13, flags);
    tcp.setUint16(14, 0xffff);
    if (options > 0) this.#putSynOptions(tcp);
  }

  /**
   * Maximum segment size, and the largest window scale, so no segment appears to exceed the window.
   */
  #putSynOptions(tcp: DataView): void {
    tcp.setUint32(TCP_BYTES, 0x0204_0000 | this.#segmentBytes);
    tcp.setUint32(TCP_BYTES + 4, 0x0103_030e);
  }
}

function half(address: string, port: number, byte: number, dialer: boolean): Half {
  const sequence = dialer ? DIALER_ISN : LISTENER_ISN;
  return { address: addressBytes(address), port, byte, sequence, finished: false };
}

/** Locally administered MAC addresses, ending in 1 for this side and in 2 for the peer. */
function putEthernet(packet: Uint8Array, from: number, to: number, ipv6: boolean): void {
  packet.set([2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
  packet.set(ipv6 ? [0x86, 0xdd] : [0x08, 0x00], 12);
}

function putIp(packet: Uint8Array, from: Half, to: Half, tcpBytes: number): void {
  const ip = viewFrom(packet, ETHERNET_BYTES);
  const protocol = 6;
  const hops = 64;
  if (from.address.length === 16) {
    ip.setUint8(0, 0x60);
    ip.setUint16(4, tcpBytes);
    ip.setUint8(6, protocol);
    ip.setUint8(7, hops);
    packet.set(from.address, ETHERNET_BYTES + 8);
    packet.set(to.address, ETHERNET_BYTES + 24);
    return;
  }
  ip.setUint8(0, 0x45);
  ip.setUint16(2, 20 + tcpBytes);
  ip.setUint16(6, 0x4000);
  ip.setUint8(8, hops);
  ip.setUint8(9, protocol);
  packet.set(from.address, ETHERNET_BYTES + 12);
  packet.set(to.address, ETHERNET_BYTES + 16);
  let sum = 0;
  for (let at = 0; at < 20; at += 2) sum += ip.getUint16(at);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  ip.setUint16(10, ~sum & 0xffff);
}

function viewFrom(packet: Uint8Array, at: number): DataView {
  return new DataView(packet.buffer, packet.byteOffset + at, packet.length - at);
}

/** The 4 or 16 bytes of an address printed by Node; an IPv4-mapped one counts as IPv4. */
function addressBytes(text: string): Uint8Array {
  const [address = ''] = text.replace(/^::ffff:(?=\d+\.)/i, '').split('%');
  if (!address.includes(':')) return Uint8Array.from(address.split('.').map(Number));
  const [head = '', tail] = address.split('::');
  const groups = (part: string): number[] =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const front = groups(head);
  const back = tail === undefined ? [] : groups(tail);
  const zeros = new Array<number>(8 - front.length - back.length).fill(0);
  return Uint8Array.from([...front, ...zeros, ...back].flatMap((group) => [group >> 8, group]));
}
