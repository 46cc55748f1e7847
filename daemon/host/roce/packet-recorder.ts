/**
 * Shows packets to a tap as a network would carry them: with IP and UDP headers and an ICRC, which packets
 * between devices of one host lack.
 */
import type { QueuePairName } from '#contract/protocol/tap-records';
import type { PacketTap } from '#daemon/capture/capture-tap';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { PACKET_BYTES_MAX } from '#daemon/roce/transport/packet-wire';
import type { Crc32 } from '#daemon/roce/wire/crc32';
import {
  Datagram,
  isIpv4Gid,
  writeDatagramHeaders,
  writeUdpChecksum,
} from '#daemon/roce/wire/datagram';
import {
  ICRC_BYTES,
  IPV6_BYTES,
  icrcOf,
  ROCE_PORT,
  UDP_BYTES,
  writeIcrc,
} from '#daemon/roce/wire/icrc';
import { chooseCrc32 } from './crc32-engine.ts';
import type { LinkPath, PacketArrival } from './udp-link.ts';

/** Source and destination of a packet. */
interface RecordedRoute {
  readonly vector: AddressVector;
  readonly sgid: Uint8Array;
  /** Defined if it leaves the host over UDP, from a real source port. */
  readonly path: LinkPath | undefined;
}

/** The queue pairs of a packet. */
interface RecordedEnds {
  readonly sender: QueuePairName | undefined;
  readonly receiver: QueuePairName | undefined;
}

/** UDP source ports of RoCEv2 are taken from the dynamic range (IBTA annex A17). */
const SOURCE_PORT_BASE = 0xc000;
const SOURCE_PORT_MASK = 0x3fff;
/** Programs may set the hop limit to 0, with which no packet passes a network. */
const HOP_LIMIT = 64;
/** XOR mask that corrupts an ICRC. */
const WRONG = 0xffff_ffff;

export class PacketRecorder {
  readonly #tap: PacketTap | undefined;
  readonly #bytes = new Uint8Array(IPV6_BYTES + UDP_BYTES + PACKET_BYTES_MAX + ICRC_BYTES);
  readonly #datagram = new Datagram();
  #crc32: Crc32 | undefined;

  constructor(tap: PacketTap | undefined) {
    this.#tap = tap;
  }

  /** True if a tap is active. */
  get watched(): boolean {
    return this.#tap?.watched === true;
  }

  /** Shows the first `length` bytes of `packet`, from the base header to the padding. */
  show(
    packet: Uint8Array,
    length: number,
    { vector, sgid, path }: RecordedRoute,
    ends: RecordedEnds,
    damaged: boolean,
  ): void {
    const datagram = this.#datagram;
    const pairs = (ends.sender?.qpn ?? 0) ^ ((ends.receiver?.qpn ?? 0) << 3);
    datagram.sourceGid.set(sgid);
    datagram.destGid.set(vector.dgid);
    datagram.trafficClass = vector.trafficClass;
    datagram.flowLabel = vector.flowLabel;
    datagram.hopLimit = vector.hopLimit === 0 ? HOP_LIMIT : vector.hopLimit;
    datagram.identification = 0;
    datagram.sourcePort =
      path === undefined ? SOURCE_PORT_BASE | (pairs & SOURCE_PORT_MASK) : ROCE_PORT;
    this.#show(packet.subarray(0, length), ends, damaged);
  }

  /** Shows a packet of another host. */
  showArrival(packet: Uint8Array, arrival: Readonly<PacketArrival>, ends: RecordedEnds): void {
    const datagram = this.#datagram;
    const { sourceGid, destGid, start, length } = arrival;
    datagram.sourceGid.set(sourceGid);
    datagram.destGid.set(destGid);
    datagram.trafficClass = arrival.trafficClass;
    datagram.flowLabel = 0;
    datagram.hopLimit = arrival.hopLimit;
    datagram.identification = arrival.identification;
    datagram.sourcePort = arrival.sourcePort;
    this.#show(packet.subarray(start, start + length), ends, false);
  }

  #show(packet: Uint8Array, ends: RecordedEnds, damaged: boolean): void {
    const datagram = this.#datagram;
    const target = this.#bytes;
    datagram.packetLength = packet.length;
    const start = writeDatagramHeaders(target, 0, datagram);
    const end = start + packet.length;
    target.set(packet, start);
    this.#crc32 ??= chooseCrc32();
    const icrc = icrcOf(this.#crc32, target, 0, start, end);
    writeIcrc(target, end, damaged ? icrc ^ WRONG : icrc);
    if (!isIpv4Gid(datagram.destGid)) writeUdpChecksum(target, 0, end + ICRC_BYTES);
    this.#tap?.packet({ ...ends, bytes: target.subarray(0, end + ICRC_BYTES) });
  }
}
