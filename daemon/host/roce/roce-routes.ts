/** Finds the RoCE port of an address, and the path to a destination. */
import { addressFamily, isLoopback } from '#base/address';
import type { ErrnoCode } from '#contract/verbs/errors';
import { isVerbsError } from '#contract/verbs/errors';
import type { CmPath } from '#daemon/roce/cm/cm-path';
import { gidAddress, gidBytes } from '../host-addresses.ts';
import { isMulticastGid } from './multicast-groups.ts';
import type { RocePort } from './roce-port.ts';

/** Addresses by which programs name their own host. */
const LOCALHOST = ['127.0.0.1', '::1'];
const DEFAULT_PKEY = 0xffff;
const HOP_LIMIT = 64;
/** `enum ibv_mtu`: the path MTU between devices of this host. */
const PATH_MTU_4096 = 5;
const FLOW_LABEL_MASK = 0xf_ffff;
/** Packet life time on Ethernet; the kernel's value. */
const PACKET_LIFE_TIME = 18;

/** Interface of routes to their host. */
export interface RouteHost {
  random32(): number;
  rocePorts(): readonly RocePort[];
  /** Updates the cached addresses of the host. */
  checkAddresses(): void;
  routeSource(destination: string, source: string | undefined): string | undefined;
  outwardMtu(port: RocePort, sgid: Uint8Array, dgid: Uint8Array): number;
}

/** Both ends of a route, and our port. */
interface RoceRoute {
  readonly port: RocePort;
  readonly source: string;
  readonly destination: string;
}

export class RoceRoutes {
  readonly #host: RouteHost;

  constructor(host: RouteHost) {
    this.#host = host;
  }

  /** The port that has this address. */
  portOf(address: string): RocePort | undefined {
    const gid = gidBytes(address);
    return this.#ports().find((port) => port.has(gid));
  }

  /** The same, but lists the host's addresses again if the address is unknown: it may be new. */
  portNow(address: string): RocePort | undefined {
    const known = this.portOf(address);
    if (known !== undefined || this.#ports().every(({ named }) => named)) return known;
    this.#host.checkAddresses();
    return this.portOf(address);
  }

  /**
   * The route to a destination, from `source` if given. As in the kernel, loopback leads to a device of this
   * host: one with the address, or the first. Other parts of 127.0.0.0/8 may belong to another daemon, if
   * devices have parts of it.
   */
  find(destination: string, source: string | undefined): RoceRoute | { readonly error: ErrnoCode } {
    if (this.#standsForOwn(destination)) return this.#findOwn(destination, source);
    const chosen = source ?? this.#host.routeSource(destination, undefined);
    const port = chosen === undefined ? undefined : this.portNow(chosen);
    if (chosen !== undefined && port !== undefined) return { port, source: chosen, destination };
    if (source !== undefined) return { error: 'ENODEV' };
    for (const candidate of this.#ports()) {
      for (const address of addressesOf(candidate)) {
        if (addressFamily(address) !== addressFamily(destination)) continue;
        if (isLoopback(address) !== isLoopback(destination)) continue;
        if (this.#host.routeSource(destination, address) === undefined) continue;
        return { port: candidate, source: address, destination };
      }
    }
    return { error: chosen === undefined ? 'ENETUNREACH' : 'ENODEV' };
  }

  #standsForOwn(address: string): boolean {
    if (!isLoopback(address) || this.portOf(address) !== undefined) return false;
    return (
      LOCALHOST.includes(address) ||
      !this.#ports().some((port) => addressesOf(port).some(isLoopback))
    );
  }

  /** Finds an address of a device of this host for a loopback address. */
  #findOwn(destination: string, given: string | undefined): ReturnType<RoceRoutes['find']> {
    const family = addressFamily(destination);
    // A host with only IPv4 has ::1, too; a device's link-local GID stands for it.
    for (const candidates of [addressesOf, gidAddresses]) {
      for (const port of this.#ports()) {
        const own = candidates(port).filter((address) => addressFamily(address) === family);
        const source = given === undefined ? own[0] : own.find((address) => address === given);
        if (source !== undefined) return { port, source, destination: source };
      }
    }
    return { error: 'ENODEV' };
  }

  /** The path of a route; an errno if packets cannot take it. */
  path(
    { port, source, destination }: RoceRoute,
    trafficClass: number,
  ): CmPath | { readonly error: ErrnoCode; readonly text: string } {
    const sgid = gidBytes(source);
    const dgid = gidBytes(destination);
    const sgidIndex = port.indexOf(sgid);
    if (sgidIndex === undefined) return { error: 'ENODEV', text: `${source} is gone` };
    let pathMtu = PATH_MTU_4096;
    if (!isMulticastGid(dgid) && port.peer(dgid) === undefined) {
      try {
        pathMtu = this.#host.outwardMtu(port, sgid, dgid);
      } catch (error) {
        if (!isVerbsError(error)) throw error;
        return { error: error.code, text: error.message };
      }
      const text = `no route from ${source} to ${destination}`;
      if (pathMtu === 0) return { error: 'EHOSTUNREACH', text };
    }
    return {
      port,
      sgid,
      sgidIndex,
      dgid,
      flowLabel: this.#host.random32() & FLOW_LABEL_MASK,
      hopLimit: HOP_LIMIT,
      trafficClass,
      pkey: DEFAULT_PKEY,
      pathMtu,
      packetLifeTime: PACKET_LIFE_TIME,
    };
  }

  #ports(): readonly RocePort[] {
    return this.#host.rocePorts();
  }
}

/** Addresses of a port's GIDs, except for its generated link-local one. */
function addressesOf(port: RocePort): readonly string[] {
  return gidAddresses(port).filter((address) => !isLinkLocal(address));
}

function gidAddresses(port: RocePort): readonly string[] {
  return port
    .ownGids()
    .filter((gid) => gid !== undefined)
    .map(gidAddress);
}

function isLinkLocal(address: string): boolean {
  return address.startsWith('fe80:');
}
