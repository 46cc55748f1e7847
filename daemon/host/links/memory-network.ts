/**
 * A network around an inner one: connections to listeners of the same host go through memory, all others
 * through the inner network. Ports belong to the inner network in both cases, so that peers on other hosts
 * reach the listeners, and no other process gets the port of a connection.
 */
import { addressFamily, IPV4_ANY, IPV6_ANY, isWildcard } from '#base/address';
import type { TapLinkEnds } from '#contract/protocol/tap-records';
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import type { Dial, Link } from './link.ts';
import { MemoryCarrier } from './memory-carrier.ts';
import { MemoryLink } from './memory-link.ts';
import { type HostClock, type LinkPort, type Network, NetworkError } from './network.ts';

/**
 * Connections of one listener waiting to be accepted, as in a kernel's backlog. Later ones use the inner
 * network.
 */
const WAITING_MAX = 1024;

/** The addresses of the host. */
export interface OwnAddresses {
  /** True for an address of this host. */
  has(address: string): boolean;
  /** True if `::` accepts IPv4 unless a program says otherwise. */
  readonly anyAcceptsIPv4: boolean;
  /** True if addresses with a zone belong to this network, not the inner one. */
  readonly hasZones?: boolean;
}

export class MemoryNetwork implements Network {
  readonly carrier: MemoryCarrier;
  readonly #inner: Network;
  readonly #clock: HostClock;
  readonly #own: OwnAddresses;
  /** Listening ports, by address and port. */
  readonly #listeners = new Map<string, MemoryPort>();
  /** Both addresses and ports of each connection: at most one connection for each pair. */
  readonly #connections = new Set<string>();

  constructor(inner: Network, clock: HostClock, own: OwnAddresses) {
    this.#inner = inner;
    this.#clock = clock;
    this.#own = own;
    this.carrier = new MemoryCarrier(clock);
  }

  hold(address: string, port: number, v6Only?: boolean, account?: IdAccount): LinkPort {
    const acceptsIPv4 = address === IPV6_ANY && !(v6Only ?? !this.#own.anyAcceptsIPv4);
    return new MemoryPort(this, this.#inner.hold(address, port, v6Only, account), acceptsIPv4);
  }

  sourceAddress(destination: string, source: string | undefined): string {
    return this.#inner.sourceAddress(destination, source);
  }

  // For ports

  soon(run: () => void): void {
    this.#clock.soon(run);
  }

  setListener(port: MemoryPort): void {
    this.#listeners.set(nameOf(port.address, port.port), port);
  }

  dropListener(port: MemoryPort): void {
    const name = nameOf(port.address, port.port);
    if (this.#listeners.get(name) === port) this.#listeners.delete(name);
  }

  /** False if there is a connection between these ends. */
  claim(ends: TapLinkEnds): boolean {
    const name = connectionName(ends);
    if (this.#connections.has(name)) return false;
    this.#connections.add(name);
    return true;
  }

  /** The connection between these ends has ended. */
  disclaim(ends: TapLinkEnds): void {
    this.#connections.delete(connectionName(ends));
  }

  /** The listener of this host that a connection to this address reaches, if any. */
  listenerAt(address: string, port: number): MemoryPort | undefined {
    // Only the system can interpret zones and wildcards.
    if (isWildcard(address)) return undefined;
    if (address.includes('%') && this.#own.hasZones !== true) return undefined;
    const exact = this.#listeners.get(nameOf(address, port));
    if (exact !== undefined) return exact;
    const any = this.#anyListener(addressFamily(address), port);
    return any !== undefined && this.#own.has(address) ? any : undefined;
  }

  /**
   * The local address of a connection from `source`: the system's choice if `source` leaves it open.
   * Undefined if there is none.
   */
  exactSource(source: string, destination: string): string | undefined {
    if (!isWildcard(source)) return source;
    try {
      return this.#inner.sourceAddress(destination, undefined);
    } catch (error) {
      if (error instanceof NetworkError) return undefined;
      throw error;
    }
  }

  #anyListener(family: 4 | 6, port: number): MemoryPort | undefined {
    const ipv6 = this.#listeners.get(nameOf(IPV6_ANY, port));
    if (family === 6) return ipv6;
    const ipv4 = this.#listeners.get(nameOf(IPV4_ANY, port));
    return ipv4 ?? (ipv6?.acceptsIPv4 === true ? ipv6 : undefined);
  }
}

/** A held port: the inner network's, which memory links use as well. */
class MemoryPort implements LinkPort {
  readonly address: string;
  readonly port: number;
  /** A listener at `::` that also accepts IPv4. */
  readonly acceptsIPv4: boolean;
  readonly #network: MemoryNetwork;
  readonly #inner: LinkPort;
  #onLink: ((link: Link) => void) | undefined;
  /** Connections waiting to be accepted. */
  #waiting: MemoryLink[] = [];
  /** A connection has the port, and releases it when it ends. */
  #connected = false;
  #released = false;

  constructor(network: MemoryNetwork, inner: LinkPort, acceptsIPv4: boolean) {
    this.address = inner.address;
    this.port = inner.port;
    this.acceptsIPv4 = acceptsIPv4;
    this.#network = network;
    this.#inner = inner;
  }

  get listens(): boolean {
    return this.#inner.listens;
  }

  get taken(): boolean {
    return this.#inner.taken === true;
  }

  listen(onLink: (link: Link) => void, onError: (error: Error) => void): void {
    if (this.#connected) throw new NetworkError('EINVAL', 'the port is in use');
    this.#inner.listen(onLink, onError);
    this.#onLink = onLink;
    this.#network.setListener(this);
    for (const link of this.#waiting.splice(0)) this.#network.soon(() => this.take(link));
  }

  suspend(): void {
    this.#onLink = undefined;
    this.#inner.suspend();
  }

  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: Link) => void,
    onFailed: (errorCode: string) => void,
  ): Dial {
    if (this.#connected || this.#released) {
      throw new NetworkError('EINVAL', 'the port is in use');
    }
    const { address, port } = remote;
    const listener = this.listens ? undefined : this.#network.listenerAt(address, port);
    const localAddress = listener && this.#network.exactSource(this.address, address);
    if (listener === undefined || listener.full || localAddress === undefined) {
      return this.#inner.dial(remote, onConnected, onFailed);
    }
    const ends = { localAddress, localPort: this.port, remoteAddress: address, remotePort: port };
    this.#connected = true;
    if (this.#network.claim(ends)) return this.#join(listener, ends, onConnected);
    return this.#fail(onFailed);
  }

  /** Refuses a second connection between two ports, as the kernel does. */
  #fail(onFailed: (errorCode: string) => void): Dial {
    let cancelled = false;
    this.#free();
    this.#network.soon(() => {
      if (!cancelled) onFailed('EADDRNOTAVAIL');
    });
    return {
      cancel: () => {
        cancelled = true;
      },
    };
  }

  #join(listener: MemoryPort, ends: TapLinkEnds, onConnected: (link: Link) => void): Dial {
    const network = this.#network;
    let endCount = 2;
    // An end that stays open keeps its ports, as with TCP.
    const gone = (): void => {
      endCount -= 1;
      if (endCount > 0) return;
      network.disclaim(ends);
      this.#free();
    };
    const { dialed, accepted } = MemoryLink.pair(ends, network.carrier, gone);
    let cancelled = false;
    network.soon(() => listener.take(accepted));
    network.soon(() => {
      if (cancelled) return;
      onConnected(dialed);
      dialed.open();
    });
    return {
      cancel: () => {
        cancelled = true;
        dialed.reset();
      },
    };
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#onLink = undefined;
    this.#network.dropListener(this);
    for (const link of this.#waiting.splice(0)) link.reset();
    if (!this.#connected) this.#inner.release();
  }

  /** Releases the port after its connection ended or failed. */
  #free(): void {
    this.#released = true;
    this.#inner.release();
  }

  /** True if too many connections wait. */
  get full(): boolean {
    return this.#waiting.length >= WAITING_MAX;
  }

  /** Queues or accepts a new connection. */
  take(link: MemoryLink): void {
    if (link.dead) return;
    if (this.#released) link.reset();
    else if (this.#onLink === undefined) this.#waiting.push(link);
    else {
      this.#onLink(link);
      link.open();
    }
  }
}

function nameOf(address: string, port: number): string {
  return `${address} ${port}`;
}

function connectionName({
  localAddress,
  localPort,
  remoteAddress,
  remotePort,
}: TapLinkEnds): string {
  return `${nameOf(localAddress, localPort)} ${nameOf(remoteAddress, remotePort)}`;
}
