/** The network of a simulated world: addresses of hosts, ports, listeners and wires. */
import type { Dial, Link } from '#daemon/host/links/link';
import { type LinkPort, type Network, NetworkError } from '#daemon/host/links/network';
import type { Prng } from '../support/prng.ts';
import { SimLink, type Wire, type WireTraits } from '../support/sim-link.ts';
import type { VirtualTime } from '../support/virtual-time.ts';
import { MessageNetwork } from './sctp/message-network.ts';
import type { MessageTraits, SimAssociation } from './sctp/sim-association.ts';

const FIRST_FREE_PORT = 40_000;

/** All hosts' networks, joined. */
export class SimNetwork {
  readonly time: VirtualTime;
  readonly prng: Prng;
  /** Draws the traits of the next wire. */
  readonly traits: () => WireTraits;
  /** Ends that are not gone. */
  readonly links = new Set<SimLink>();
  /** SCTP between the same hosts. */
  readonly messages: MessageNetwork;
  readonly #hosts: HostNetwork[] = [];

  constructor(
    time: VirtualTime,
    prng: Prng,
    traits: { readonly tcp: () => WireTraits; readonly sctp: () => MessageTraits },
  ) {
    this.time = time;
    this.prng = prng;
    this.traits = traits.tcp;
    this.messages = new MessageNetwork(time, prng, traits.sctp);
  }

  /** Ends of connections and of associations that are not gone. */
  get ends(): readonly (SimLink | SimAssociation)[] {
    return [...this.links, ...this.messages.ends];
  }

  /** Adds a host that owns these addresses. */
  host(addresses: readonly string[]): HostNetwork {
    const host = new HostNetwork(this, addresses);
    this.#hosts.push(host);
    return host;
  }

  /** The listener at an address, if any. */
  listener(address: string, port: number): SimPort | undefined {
    const host = this.#hosts.find(({ addresses }) => addresses.includes(address));
    return host?.listener(address, port);
  }

  knows(address: string): boolean {
    return this.#hosts.some(({ addresses }) => addresses.includes(address));
  }

  /** Two joined ends: the dialing one and the accepted one. */
  wire(
    from: { readonly host: HostNetwork; readonly address: string; readonly port: number },
    to: { readonly host: HostNetwork; readonly address: string; readonly port: number },
  ): [SimLink, SimLink] {
    const wire: Wire = { time: this.time, prng: this.prng, traits: this.traits(), vanished: false };
    const dialed: SimLink = new SimLink(
      wire,
      {
        localAddress: from.address,
        localPort: from.port,
        remoteAddress: to.address,
        remotePort: to.port,
      },
      () => {
        this.links.delete(dialed);
        from.host.free(from.address, from.port);
      },
    );
    const accepted: SimLink = new SimLink(
      wire,
      {
        localAddress: to.address,
        localPort: to.port,
        remoteAddress: from.address,
        remotePort: from.port,
      },
      () => this.links.delete(accepted),
    );
    SimLink.join(dialed, accepted);
    this.links.add(dialed).add(accepted);
    return [dialed, accepted];
  }
}

/** The network of one host. */
export class HostNetwork implements Network {
  readonly world: SimNetwork;
  readonly addresses: readonly string[];
  /** Ports in use, by address and port; a connection keeps its port until it is gone. */
  readonly held = new Map<string, SimPort>();
  #nextPort = FIRST_FREE_PORT;

  constructor(world: SimNetwork, addresses: readonly string[]) {
    this.world = world;
    this.addresses = addresses;
  }

  /** Ports in use, of TCP and of SCTP. */
  get ports(): readonly string[] {
    return [...this.held.keys(), ...this.world.messages.portsOf(this.addresses)];
  }

  hold(address: string, port: number): SimPort {
    const wildcard = address === '0.0.0.0' || address === '::';
    if (!wildcard && !this.addresses.includes(address)) {
      throw new NetworkError('EADDRNOTAVAIL', `${address} belongs to another host`);
    }
    const chosen = port === 0 ? this.#nextPort++ : port;
    if (this.held.has(`${address} ${chosen}`)) {
      throw new NetworkError('EADDRINUSE', `${address} port ${chosen} is in use`);
    }
    const held = new SimPort(this, address, chosen);
    this.held.set(`${address} ${chosen}`, held);
    return held;
  }

  sourceAddress(destination: string, source: string | undefined): string {
    if (source !== undefined && !this.addresses.includes(source)) {
      throw new NetworkError('EADDRNOTAVAIL', `${source} belongs to another host`);
    }
    if (!this.world.knows(destination)) {
      throw new NetworkError('ENETUNREACH', `no route to ${destination}`);
    }
    return source ?? this.addresses[0] ?? '';
  }

  listener(address: string, port: number): SimPort | undefined {
    const exact = this.held.get(`${address} ${port}`);
    const any = this.held.get(`0.0.0.0 ${port}`);
    return [exact, any].find((held) => held?.listens === true);
  }

  free(address: string, port: number): void {
    this.held.delete(`${address} ${port}`);
  }
}

/** A port in use. */
export class SimPort implements LinkPort {
  readonly address: string;
  readonly port: number;
  listens = false;
  readonly #host: HostNetwork;
  #onLink: ((link: Link) => void) | undefined;
  /** Connections that wait to be accepted. */
  #waiting: SimLink[] = [];
  #released = false;
  #dialed = false;

  constructor(host: HostNetwork, address: string, port: number) {
    this.#host = host;
    this.address = address;
    this.port = port;
  }

  listen(onLink: (link: Link) => void): void {
    if (this.#released || this.#onLink !== undefined) {
      throw new NetworkError('EINVAL', 'the port is in use');
    }
    this.listens = true;
    this.#onLink = onLink;
    for (const link of this.#waiting.splice(0)) this.#host.world.time.soon(() => this.take(link));
  }

  suspend(): void {
    this.#onLink = undefined;
  }

  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: Link) => void,
    onFailed: (errorCode: string) => void,
  ): Dial {
    if (this.#released || this.listens || this.#dialed) {
      throw new NetworkError('EINVAL', 'the port is in use');
    }
    this.#dialed = true;
    const { world } = this.#host;
    const { time, prng } = world;
    const { delayMin, delayMax } = world.traits();
    let cancelled = false;
    let dialed: SimLink | undefined;
    time.after(prng.between(delayMin, delayMax), () => {
      if (cancelled) return;
      const listener = world.listener(remote.address, remote.port);
      if (listener === undefined) {
        time.after(prng.between(delayMin, delayMax), () => {
          if (cancelled) return;
          this.release();
          onFailed('ECONNREFUSED');
        });
        return;
      }
      const from = { host: this.#host, address: this.address, port: this.port };
      const [own, accepted] = world.wire(from, { host: listener.#host, ...remote });
      dialed = own;
      time.soon(() => listener.take(accepted));
      time.after(prng.between(0, delayMax), () => {
        if (cancelled) return;
        if (own.dead) {
          onFailed('ECONNRESET');
          return;
        }
        onConnected(own);
        own.open();
      });
    });
    return {
      cancel: () => {
        cancelled = true;
        if (dialed === undefined) this.release();
        else dialed.reset();
      },
    };
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.suspend();
    this.listens = false;
    for (const link of this.#waiting.splice(0)) link.reset();
    this.#host.free(this.address, this.port);
  }

  /** Queues or accepts a new connection. */
  take(link: SimLink): void {
    if (link.dead) return;
    if (this.#released) link.reset();
    else if (this.#onLink === undefined) this.#waiting.push(link);
    else {
      this.#onLink(link);
      link.open();
    }
  }
}
