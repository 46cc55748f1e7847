/**
 * The network of an isolated host: its addresses and ports exist in this process only, and it opens no
 * socket. Connections to its listeners go through memory (`memory-network.ts`); all other dials fail at once.
 */
import { networkInterfaces } from 'node:os';
import {
  addressFamily,
  canonicalAddress,
  IPV4_ANY,
  IPV6_ANY,
  isLoopback,
  isWildcard,
  wildcardAsLoopback,
} from '#base/address';
import { isolatedText } from './isolated-text.ts';
import type { Dial } from './link.ts';
import type { OwnAddresses } from './memory-network.ts';
import { type HostClock, type LinkPort, type Network, NetworkError } from './network.ts';

/** Ephemeral ports: IANA's range, and the kernel's default. */
const FREE_PORT_MIN = 32_768;
const FREE_PORTS = 60_999 - FREE_PORT_MIN + 1;

/** The devices' addresses, those of the machine's interfaces, and all of loopback. */
export class IsolatedAddresses implements OwnAddresses {
  readonly anyAcceptsIPv4 = true;
  readonly hasZones = true;
  readonly #devices: ReadonlySet<string>;

  constructor(devices: ReadonlySet<string>) {
    this.#devices = devices;
  }

  has(address: string): boolean {
    return isLoopback(address) || this.#devices.has(address) || isOfMachine(address);
  }

  /** The source address of multicast: a device's address, or the first that is not loopback. */
  senderTo(family: 4 | 6): string {
    const fits = (address: string) => addressFamily(address) === family;
    const machine = machineAddresses().filter((address) => !isLoopback(address));
    const loopback = family === 4 ? '127.0.0.1' : '::1';
    return [...this.#devices, ...machine].find(fits) ?? loopback;
  }
}

export class IsolatedNetwork implements Network {
  readonly #clock: HostClock;
  readonly #own: IsolatedAddresses;
  readonly #ports = new Map<number, Set<IsolatedPort>>();
  readonly #listening = new Set<IsolatedPort>();
  readonly #stayAlive: () => () => void;
  #rest: (() => void) | undefined;

  /** `stayAlive` keeps the process alive until the returned function is called. */
  constructor(clock: HostClock, own: IsolatedAddresses, stayAlive: () => () => void) {
    this.#clock = clock;
    this.#own = own;
    this.#stayAlive = stayAlive;
  }

  hold(address: string, port: number, v6Only = false): LinkPort {
    if (!isWildcard(address) && !this.#own.has(address)) {
      throw new NetworkError('EADDRNOTAVAIL', `${address} is not an address of these devices`);
    }
    const place = { address, v6Only };
    const number = port === 0 ? this.#freePort(place) : port;
    const held = new IsolatedPort(this, place, number);
    const others = this.#ports.get(number);
    if (others === undefined) this.#ports.set(number, new Set([held]));
    else others.add(held);
    return held;
  }

  sourceAddress(destination: string, source: string | undefined): string {
    const to = wildcardAsLoopback(destination);
    const group = isMulticast(to);
    if (!group && !this.#own.has(to)) {
      throw new NetworkError('ENETUNREACH', isolatedText(destination));
    }
    if (source === undefined) {
      if (group) return this.#own.senderTo(addressFamily(to));
      return addressFamily(to) === 4 && isLoopback(to) ? '127.0.0.1' : to;
    }
    if (addressFamily(source) !== addressFamily(to)) {
      throw new NetworkError('EINVAL', `${source} and ${to} differ in address family`);
    }
    if (!this.#own.has(source)) {
      throw new NetworkError('EADDRNOTAVAIL', `${source} is not an address of these devices`);
    }
    return source;
  }

  // For ports

  /** Why a connection to an address without a listener fails. */
  refusal(address: string): string {
    return this.#own.has(wildcardAsLoopback(address)) ? 'ECONNREFUSED' : 'ENETUNREACH';
  }

  soon(run: () => void): void {
    this.#clock.soon(run);
  }

  /**
   * Throws `NetworkError` EADDRINUSE if a listener has the port. Ports that only hold a connection, or
   * nothing yet, are shared, as with SO_REUSEADDR.
   */
  assertNoListener(place: PortPlace, port: number): void {
    for (const other of this.#ports.get(port) ?? []) {
      if (other.listens && overlap(place, other.place)) {
        throw new NetworkError('EADDRINUSE', `${place.address} port ${port} has a listener`);
      }
    }
  }

  /** Keeps the process alive, as a listening socket does: a program may wait for nothing else. */
  listens(port: IsolatedPort): void {
    this.#listening.add(port);
    this.#rest ??= this.#stayAlive();
  }

  drop(port: IsolatedPort): void {
    const others = this.#ports.get(port.port);
    others?.delete(port);
    if (others?.size === 0) this.#ports.delete(port.port);
    this.#listening.delete(port);
    if (this.#listening.size > 0) return;
    this.#rest?.();
    this.#rest = undefined;
  }

  #freePort(place: PortPlace): number {
    const first = this.#clock.random32() % FREE_PORTS;
    for (let step = 0; step < FREE_PORTS; step += 1) {
      const port = FREE_PORT_MIN + ((first + step) % FREE_PORTS);
      let free = true;
      for (const other of this.#ports.get(port) ?? []) free &&= !overlap(place, other.place);
      if (free) return port;
    }
    throw new NetworkError('EADDRINUSE', `every port of ${place.address} is in use`);
  }
}

/** Where a port is held. */
interface PortPlace {
  readonly address: string;
  /** `::` leaves IPv4 to others. */
  readonly v6Only: boolean;
}

/** A held port. Connections through memory bypass it. */
class IsolatedPort implements LinkPort {
  readonly place: PortPlace;
  readonly port: number;
  listens = false;
  readonly #network: IsolatedNetwork;

  constructor(network: IsolatedNetwork, place: PortPlace, port: number) {
    this.#network = network;
    this.place = place;
    this.port = port;
  }

  get address(): string {
    return this.place.address;
  }

  listen(): void {
    if (this.listens) return;
    this.#network.assertNoListener(this.place, this.port);
    this.listens = true;
    this.#network.listens(this);
  }

  suspend(): void {}

  /** Fails: `MemoryNetwork` has found no listener for the connection. */
  dial(
    { address }: { readonly address: string },
    _onConnected: unknown,
    onFailed: (errorCode: string) => void,
  ): Dial {
    if (this.listens) throw new NetworkError('EINVAL', 'the port listens');
    const code = this.#network.refusal(address);
    let cancelled = false;
    this.release();
    this.#network.soon(() => {
      if (!cancelled) onFailed(code);
    });
    return {
      cancel: () => {
        cancelled = true;
      },
    };
  }

  release(): void {
    this.listens = false;
    this.#network.drop(this);
  }
}

/** True if both places may receive the same connection. */
function overlap(one: PortPlace, other: PortPlace): boolean {
  if (one.address === other.address) return true;
  return covers(one, other) || covers(other, one);
}

function covers(wide: PortPlace, { address, v6Only }: PortPlace): boolean {
  const family = addressFamily(address);
  if (wide.address === IPV4_ANY) return family === 4 || (address === IPV6_ANY && !v6Only);
  return wide.address === IPV6_ANY && (family === 6 || !wide.v6Only);
}

/** True for an address of an interface, with or without its zone. */
function isOfMachine(address: string): boolean {
  const [plain = ''] = address.split('%', 1);
  return machineAddresses().includes(plain);
}

function machineAddresses(): readonly string[] {
  return Object.values(networkInterfaces()).flatMap((addresses = []) => {
    return addresses.flatMap(({ address }) => canonicalAddress(address) ?? []);
  });
}

/** True for 224.0.0.0/4 and ff00::/8. */
function isMulticast(address: string): boolean {
  if (addressFamily(address) === 6) return address.startsWith('ff');
  const first = Number.parseInt(address, 10);
  return first >= 224 && first < 240;
}
