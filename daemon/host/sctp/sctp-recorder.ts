/**
 * Shows the packets of a host's associations to a tap, as on the network: the SCTP packet with its checksum,
 * after IP and UDP headers like those of the kernel, which are written here.
 */
import type { QueuePairName, TapLinkEnds } from '#contract/protocol/tap-records';
import type { PacketTap } from '#daemon/capture/capture-tap';
import { gidAddress, gidBytes } from '../host-addresses.ts';
import { firstStream } from './packet-gate.ts';
import type { PacketObserver, PacketPlace } from './udp-carrier.ts';

const IPV4_BYTES = 20;
const IPV6_BYTES = 40;
const UDP_BYTES = 8;
const UDP_PROTOCOL = 17;
const SCTP_PROTOCOL = 132;
const PACKET_MAX_BYTES = 65_535;
const HOP_LIMIT = 64;
const DONT_FRAGMENT = 0x4000;

/** The recorder's interface to its host. */
interface RecordedHost {
  /** The device that has the address, if it belongs to this host. */
  deviceAt(address: string): string | undefined;
  /** The queue pair of a stream of an association, or of the only stream, from its local end. */
  queuePairOf(ends: TapLinkEnds, streamId: number | undefined): QueuePairName | undefined;
}

export class SctpRecorder implements PacketObserver {
  readonly #tap: PacketTap;
  readonly #host: RecordedHost;
  readonly #bytes = new Uint8Array(IPV6_BYTES + UDP_BYTES + PACKET_MAX_BYTES);
  readonly #fields = new DataView(this.#bytes.buffer);

  constructor(tap: PacketTap, host: RecordedHost) {
    this.#tap = tap;
    this.#host = host;
  }

  /** True if a tap is active. */
  get watched(): boolean {
    return this.#tap.watched;
  }

  /**
   * A packet with its checksum, borrowed, between our end and the peer's address and UDP port, if any. `way`
   * is from our end.
   */
  packet(
    way: 'out' | 'in',
    socket: PacketPlace,
    peer: Uint8Array,
    peerPort: number | undefined,
    sctp: Uint8Array,
  ): void {
    const remoteAddress = gidAddress(peer);
    const device = this.#host.deviceAt(socket.address);
    if (device === undefined) return;
    const far = this.#host.deviceAt(remoteAddress);
    // A packet between two devices of the host is shown when it is sent.
    if (way === 'in' && far !== undefined) return;
    const ports = new DataView(sctp.buffer, sctp.byteOffset);
    const [source, destination] = [ports.getUint16(0), ports.getUint16(2)];
    const [localPort, remotePort] = way === 'out' ? [source, destination] : [destination, source];
    const near: TapLinkEnds = {
      localAddress: socket.address,
      localPort,
      remoteAddress,
      remotePort,
    };
    const stream = firstStream(sctp);
    const us = this.#pairOf(device, near, stream);
    const them = far === undefined ? undefined : this.#pairOf(far, mirrored(near), stream);
    const here = { address: gidBytes(socket.address), port: socket.port };
    const there = { address: peer, port: peerPort };
    const [from, to] = way === 'out' ? [here, there] : [there, here];
    const bytes = this.#datagram(from, to, socket.address.includes(':'), sctp);
    const [sender, receiver] = way === 'out' ? [us, them] : [them, us];
    this.#tap.packet({ sender, receiver, bytes });
  }

  /** While no queue pair uses the association, only the device is known. */
  #pairOf(device: string, ends: TapLinkEnds, stream: number | undefined): QueuePairName {
    return this.#host.queuePairOf(ends, stream) ?? { device, qpn: 0 };
  }

  #datagram(from: PacketEnd, to: PacketEnd, ipv6: boolean, sctp: Uint8Array): Uint8Array {
    const ipBytes = ipv6 ? IPV6_BYTES : IPV4_BYTES;
    const { port } = from;
    const udpBytes = port === undefined ? 0 : UDP_BYTES;
    const [protocol, length] = [
      port === undefined ? SCTP_PROTOCOL : UDP_PROTOCOL,
      udpBytes + sctp.length,
    ];
    this.#bytes.fill(0, 0, ipBytes + udpBytes);
    if (ipv6) this.#putIpv6(from, to, protocol, length);
    else this.#putIpv4(from, to, protocol, length);
    const end = ipBytes + length;
    this.#bytes.set(sctp, end - sctp.length);
    if (port !== undefined) this.#putUdp(ipBytes, [port, to.port ?? 0], end, ipv6);
    return this.#bytes.subarray(0, end);
  }

  #putUdp(udp: number, ports: readonly [number, number], end: number, ipv6: boolean): void {
    const fields = this.#fields;
    fields.setUint16(udp, ports[0]);
    fields.setUint16(udp + 2, ports[1]);
    fields.setUint16(udp + 4, end - udp);
    // Optional over IPv4, and SCTP has a better checksum.
    if (ipv6) {
      // The pseudo header: both addresses, length and protocol (RFC 8200 section 8.1).
      const sum = this.#sum(8, end, end - udp + UDP_PROTOCOL);
      fields.setUint16(udp + 6, sum === 0xffff ? sum : ~sum & 0xffff);
    }
  }

  #putIpv4(from: PacketEnd, to: PacketEnd, protocol: number, length: number): void {
    const fields = this.#fields;
    fields.setUint8(0, 0x45);
    fields.setUint16(2, IPV4_BYTES + length);
    fields.setUint16(6, DONT_FRAGMENT);
    fields.setUint8(8, HOP_LIMIT);
    fields.setUint8(9, protocol);
    this.#bytes.set(from.address.subarray(12), 12);
    this.#bytes.set(to.address.subarray(12), 16);
    fields.setUint16(10, ~this.#sum(0, IPV4_BYTES, 0) & 0xffff);
  }

  #putIpv6(from: PacketEnd, to: PacketEnd, protocol: number, length: number): void {
    const fields = this.#fields;
    fields.setUint8(0, 0x60);
    fields.setUint16(4, length);
    fields.setUint8(6, protocol);
    fields.setUint8(7, HOP_LIMIT);
    this.#bytes.set(from.address, 8);
    this.#bytes.set(to.address, 24);
  }

  /** The one's complement sum of 16-bit words (RFC 1071). SCTP packets have an even length. */
  #sum(start: number, end: number, first: number): number {
    let sum = first;
    for (let at = start; at < end; at += 2) sum += this.#fields.getUint16(at);
    while (sum > 0xffff) sum = (sum & 0xffff) + Math.floor(sum / 0x1_0000);
    return sum;
  }
}

interface PacketEnd {
  /** As 16 bytes. */
  readonly address: Uint8Array;
  /** UDP port. */
  readonly port: number | undefined;
}

function mirrored({
  localAddress,
  localPort,
  remoteAddress,
  remotePort,
}: TapLinkEnds): TapLinkEnds {
  return {
    localAddress: remoteAddress,
    localPort: remotePort,
    remoteAddress: localAddress,
    remotePort: localPort,
  };
}
