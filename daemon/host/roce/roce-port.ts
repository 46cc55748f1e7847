/** The port of a RoCE device: its GIDs, and the ports that it reaches. */
import type { IBPort, ProgramWire } from '#daemon/rnic/ib-port';
import type { LentPayload } from '#daemon/rnic/memory/lent-payload';
import type { PortAddresses } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import {
  IP_HEADERS_BYTES,
  largestPathMtu,
  PATH_MTU_MAX_BYTES,
  pathMtuBytes,
} from '#daemon/roce/wire/path-mtu';
import { interfaceMtu } from '#native-bridge/libc/internet-socket';
import { SystemCallError } from '#native-bridge/libc/libc';
import { type HostAddress, interfaceOf } from '../host-addresses.ts';
import { type GidSource, GidTable, type GidTableEntry } from './gid-table.ts';
import type { MulticastGroups } from './multicast-groups.ts';
import type { ServicePort } from './packet-port.ts';
import { RoceCounters } from './roce-counters.ts';

/** `enum ibv_mtu`: 256. */
const SMALLEST_MTU = 1;
/** The code of 4096 bytes, for packets between devices of this host. */
const LARGEST_MTU = 5;

/** The port's interface to its host. */
export interface PortHost {
  /** The ports that this one reaches, including itself. */
  rocePorts(): readonly RocePort[];
  /** The addresses of the host, as last listed. */
  readonly addresses: readonly HostAddress[];
  /**
   * The code of the largest path MTU from a GID of `port` to one of another host; 0 without a route. Throws
   * `VerbsError` EADDRINUSE, or ENETUNREACH if packets cannot leave the host.
   */
  outwardMtu(port: RocePort, sgid: Uint8Array, dgid: Uint8Array): number;
  /** Makes the wire of a queue pair of `port`. */
  makeWire(qp: QP, port: RocePort): ProgramWire;
  /** Payload that queue pairs of the host lend to each other. */
  readonly lentPayload: LentPayload;
  /** Membership of queue pairs in groups. */
  readonly multicastGroups: MulticastGroups;
}

export class RocePort implements IBPort<QP>, ServicePort, PortAddresses {
  readonly addresses: PortAddresses = this;
  readonly counters: RoceCounters = new RoceCounters();
  #down = false;
  readonly name: string;
  readonly guid: Uint8Array;
  readonly gids: GidTable;
  readonly lentPayload: LentPayload;
  #known: readonly GidTableEntry[] = [];
  #bytes: readonly (Uint8Array | undefined)[] = [];
  readonly #device: GidSource;
  readonly #host: PortHost;

  constructor(device: GidSource & { readonly name: string }, host: PortHost) {
    this.name = device.name;
    this.guid = bytesOfHex(device.nodeGuid);
    this.gids = new GidTable(device, host.addresses);
    this.lentPayload = host.lentPayload;
    this.#device = device;
    this.#host = host;
  }

  /** True for a device with configured addresses, not for all addresses of the host. */
  get named(): boolean {
    return this.#device.addresses.length > 0;
  }

  /**
   * The path MTU that programs choose, and the limit of datagrams. A device with configured addresses reports
   * what their interface carries, as rxe does. A device for all addresses reports 4096, since most of its
   * packets stay on the host; for others the path MTU is reduced to their route's.
   */
  get activeMtuBytes(): number {
    const [address] = this.#device.addresses;
    if (address === undefined) return PATH_MTU_MAX_BYTES;
    try {
      const code = largestPathMtu(interfaceMtu(interfaceOf(address)) - IP_HEADERS_BYTES);
      return pathMtuBytes(Math.max(code, SMALLEST_MTU)) ?? PATH_MTU_MAX_BYTES;
    } catch (error) {
      // The interface is gone, or there is no free descriptor for the query.
      if (!(error instanceof SystemCallError)) throw error;
      return PATH_MTU_MAX_BYTES;
    }
  }

  get down(): boolean {
    return this.#down;
  }

  /** Takes the port's carrier away, or restores it. */
  set down(down: boolean) {
    if (down && !this.#down) this.counters.linkDowned += 1;
    this.#down = down;
  }

  /** Sets all counters to zero. */
  resetCounters(): void {
    Object.assign(this.counters, new RoceCounters());
  }

  gid(index: number): Uint8Array | undefined {
    return this.ownGids()[index];
  }

  routeMtu(dgid: Uint8Array, sgid: Uint8Array): number {
    return this.peer(dgid) === undefined ? this.#host.outwardMtu(this, sgid, dgid) : LARGEST_MTU;
  }

  peer(dgid: Uint8Array): RocePort | undefined {
    for (const port of this.#host.rocePorts()) if (port.has(dgid)) return port;
    return undefined;
  }

  makeWire(qp: QP): ProgramWire {
    return this.#host.makeWire(qp, this);
  }

  has(gid: Uint8Array): boolean {
    return this.indexOf(gid) !== undefined;
  }

  indexOf(gid: Uint8Array): number | undefined {
    const own = this.ownGids();
    for (let index = 0; index < own.length; index += 1) {
      const each = own[index];
      if (each !== undefined && sameBytes(each, gid)) return index;
    }
    return undefined;
  }

  ownGids(): readonly (Uint8Array | undefined)[] {
    const entries = this.gids.entries();
    if (entries !== this.#known) {
      this.#known = entries;
      this.#bytes = entries.map(({ gid, interfaceName }) => {
        return interfaceName === undefined ? undefined : bytesOfHex(gid.replaceAll(':', ''));
      });
    }
    return this.#bytes;
  }
}

function bytesOfHex(digits: string): Uint8Array {
  return Uint8Array.from({ length: digits.length / 2 }, (_, index) => {
    return Number.parseInt(digits.slice(2 * index, 2 * index + 2), 16);
  });
}

/** True for equal bytes. */
export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let at = 0; at < a.length; at += 1) if (a[at] !== b[at]) return false;
  return true;
}
