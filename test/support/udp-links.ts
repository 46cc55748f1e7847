/** Parts of tests of the link of RoCE devices to other hosts. */
import { gidBytes } from '#daemon/host/host-addresses';
import { KERNEL_UDP } from '#daemon/host/roce/kernel-udp';
import type { PacketPort } from '#daemon/host/roce/packet-port';
import { RoceCounters } from '#daemon/host/roce/roce-counters';
import { type LinkPath, type PacketArrival, UdpLink } from '#daemon/host/roce/udp-link';
import type { UdpNetwork } from '#daemon/host/roce/udp-network';
import { crc32 } from '#daemon/roce/wire/crc32';
import { Datagram, datagramHeaderBytes, writeDatagramHeaders } from '#daemon/roce/wire/datagram';
import { ICRC_BYTES, icrcOf, writeIcrc } from '#daemon/roce/wire/icrc';
import { hexOf } from './hex.ts';
import { PEER } from './program-steps.ts';

export function portOf(...gids: readonly Uint8Array[]): PacketPort {
  return {
    name: 'roce0',
    gid: (index) => gids[index],
    ownGids: () => gids,
    has: (gid) => gids.some((own) => hexOf(own) === hexOf(gid)),
    peer: () => undefined,
    down: false,
    counters: new RoceCounters(),
  };
}

/** A packet of `length` bytes: invalid, which the link does not check. */
export function packetOf(length: number, seed = 1): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => (index * 7 * seed + seed) & 0xff);
}

/** The payload of a UDP datagram with this packet, and the ICRC that these fields give it. */
export function sealedDatagram(
  packet: Uint8Array,
  fields: Pick<Datagram, 'sourceGid' | 'destGid' | 'identification' | 'sourcePort'>,
): Uint8Array {
  const datagram = Object.assign(new Datagram(), fields, { packetLength: packet.length });
  const bytes = new Uint8Array(datagramHeaderBytes(datagram) + packet.length + ICRC_BYTES);
  const start = writeDatagramHeaders(bytes, 0, datagram);
  bytes.set(packet, start);
  const end = start + packet.length;
  writeIcrc(bytes, end, icrcOf(crc32, bytes, 0, start, end));
  return bytes.subarray(start);
}

/** A link at an address, with what has arrived. */
export class LinkEnd implements Disposable {
  readonly gid: Uint8Array;
  readonly port: PacketPort;
  readonly link: UdpLink;
  readonly arrivals: { readonly packet: string; readonly arrival: PacketArrival }[] = [];

  /** `network`: default the kernel's. */
  constructor(address: string, network: UdpNetwork = KERNEL_UDP) {
    this.gid = gidBytes(address);
    this.port = portOf(this.gid);
    this.link = new UdpLink(network, {
      handleArrival: (_ports, arrival, bytes) => {
        const { start, length } = arrival;
        const packet = hexOf(bytes.subarray(start, start + length));
        this.arrivals.push({ packet, arrival: { ...arrival } });
      },
      handleArrivalsEnd: () => undefined,
      handleInputEnd: () => undefined,
      note: () => undefined,
    });
    this.link.listen(this.port, this.gid);
  }

  /** The path of packets to an address. */
  to(address: string): LinkPath {
    const vector = { ...PEER, dgid: gidBytes(address), sgidIndex: 0, trafficClass: 8, hopLimit: 9 };
    const path = this.link.path(this.port, this.gid, vector);
    if (path === undefined) throw new Error(`no path to ${address}`);
    return path;
  }

  /** Adds a packet to the batch. */
  add(packet: Uint8Array, path: LinkPath): void {
    this.link.bytes.set(packet, this.link.nextStart);
    this.link.add(packet.length, path);
  }

  [Symbol.dispose](): void {
    this.link.close();
  }
}
