/** Where packets with an address vector go, and the GRH that their receivers see. */
import type { FaultPeer } from '../../faults/fault.ts';
import type { AddressVector } from '../../rnic/qp-attributes.ts';
import { GRH_AREA_BYTES, makeDatagram, writeGrhArea } from '../../roce/wire/datagram.ts';
import { gidAddress } from '../host-addresses.ts';
import { isMulticastGid } from './multicast-groups.ts';
import type { PacketPort } from './packet-port.ts';

/** The UDP port of RoCEv2, by which a fault may name a peer. */
const ROCE_PORT = 4791;

/** Where the packets with an address vector go. */
export interface Route {
  readonly vector: AddressVector;
  readonly peer: PacketPort;
  readonly sgid: Uint8Array;
  /** Both ends, for scopes of faults. */
  readonly source: FaultPeer;
  readonly destination: FaultPeer;
  /** To the queue pairs of a group instead of one of `peer`. */
  readonly multicast: boolean;
}

/** The end of a connection that has this GID. */
export function endOf(gid: Uint8Array): FaultPeer {
  return { address: gidAddress(gid), port: ROCE_PORT };
}

/** See the module's comment. */
export class PacketRoutes {
  /** By the vectors of address handles, which programs make once and use often. */
  #routes = new WeakMap<AddressVector, Route>();
  /** The GRH of the last datagram, as the receive's buffer gets it. */
  readonly grh = new Uint8Array(GRH_AREA_BYTES);
  readonly #datagram = makeDatagram();

  /** Looked up once, as an address handle of a kernel is when it is made. */
  find(port: PacketPort, vector: AddressVector): Route | undefined {
    const known = this.#routes.get(vector);
    if (known !== undefined) return known;
    const multicast = isMulticastGid(vector.dgid);
    const peer = multicast ? port : port.peer(vector.dgid);
    const sgid = port.gid(vector.sgidIndex);
    if (peer === undefined || sgid === undefined) return undefined;
    const destination = endOf(vector.dgid);
    const route = { vector, peer, sgid, source: endOf(sgid), destination, multicast };
    this.#routes.set(vector, route);
    return route;
  }

  /** The ports have other GIDs: every route is looked up anew. */
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
    datagram.packetLength = bytes;
    writeGrhArea(this.grh, 0, datagram);
  }
}
