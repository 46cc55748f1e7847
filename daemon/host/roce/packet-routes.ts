/** The destination of packets with an address vector, and the GRH that their receivers see. */
import type { FaultPeer } from '#daemon/faults/fault';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { Datagram, GRH_AREA_BYTES, writeGrhArea } from '#daemon/roce/wire/datagram';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { gidAddress } from '../host-addresses.ts';
import { isMulticastGid } from './multicast-groups.ts';
import type { OutwardPackets } from './outward-packets.ts';
import type { PacketPort } from './packet-port.ts';
import type { LinkPath, PacketArrival } from './udp-link.ts';

/** The destination of packets with an address vector. */
export interface Route {
  readonly vector: AddressVector;
  /** The port of this host that has the address, or for a group the sender's own; undefined if none does. */
  readonly peer: PacketPort | undefined;
  /** The path to another host; multicast also stays on this host. */
  readonly path: LinkPath | undefined;
  readonly sgid: Uint8Array;
  /** Both ends, for scopes of faults. */
  readonly source: FaultPeer;
  readonly destination: FaultPeer;
  /** True for a multicast group. */
  readonly multicast: boolean;
}

/** The end of a connection that has this GID. */
export function endOf(gid: Uint8Array): FaultPeer {
  return { address: gidAddress(gid), port: ROCE_PORT };
}

export class PacketRoutes {
  /** By the vectors of address handles, which programs make once and use often. */
  #routes = new WeakMap<AddressVector, Route>();
  /** The GRH of the last datagram, as the receive's buffer gets it. */
  readonly grh = new Uint8Array(GRH_AREA_BYTES);
  readonly #datagram = new Datagram();
  readonly #outward: Pick<OutwardPackets, 'path'>;

  /** `outward` finds paths to other hosts. */
  constructor(outward: Pick<OutwardPackets, 'path'>) {
    this.#outward = outward;
  }

  /** Cached per vector, as a kernel resolves an address handle when it is made. */
  find(port: PacketPort, vector: AddressVector): Route | undefined {
    const known = this.#routes.get(vector);
    if (known !== undefined) return known;
    const multicast = isMulticastGid(vector.dgid);
    const peer = multicast ? port : port.peer(vector.dgid);
    const sgid = port.gid(vector.sgidIndex);
    if (sgid === undefined) return undefined;
    const leaves = peer === undefined || multicast;
    const path = leaves ? this.#outward.path(port, sgid, vector) : undefined;
    if (peer === undefined && path === undefined) return undefined;
    const destination = endOf(vector.dgid);
    const route = { vector, peer, path, sgid, source: endOf(sgid), destination, multicast };
    this.#routes.set(vector, route);
    return route;
  }

  /** Drops all routes after GIDs of ports changed. */
  forget(): void {
    this.#routes = new WeakMap();
  }

  /** Writes `grh` for a datagram of `bytes`. */
  writeGrh({ vector, sgid }: Route, bytes: number): void {
    const datagram = this.#datagram;
    datagram.sourceGid.set(sgid);
    datagram.destGid.set(vector.dgid);
    datagram.trafficClass = vector.trafficClass;
    datagram.flowLabel = vector.flowLabel;
    datagram.hopLimit = vector.hopLimit;
    datagram.identification = 0;
    datagram.packetLength = bytes;
    writeGrhArea(this.grh, 0, datagram);
  }

  /** Writes `grh` for a datagram of another host. */
  writeArrivedGrh(arrival: Readonly<PacketArrival>): void {
    const datagram = this.#datagram;
    datagram.sourceGid.set(arrival.sourceGid);
    datagram.destGid.set(arrival.destGid);
    datagram.trafficClass = arrival.trafficClass;
    datagram.flowLabel = 0;
    datagram.hopLimit = arrival.hopLimit;
    datagram.identification = arrival.identification;
    datagram.packetLength = arrival.length;
    writeGrhArea(this.grh, 0, datagram);
  }
}
