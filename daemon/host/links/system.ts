/**
 * Systems of a host in this process: its clock, with the kernel's TCP and UDP or a network within the host.
 */
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { canonicalAddress, isLoopback } from '#base/address';
import type { Loopback } from '#contract/protocol/ipc-admin';
import { processClock } from '#native-bridge/libc/process-clock';
import { IsolatedAddresses, IsolatedNetwork } from './isolated-network.ts';
import { MemoryNetwork, type OwnAddresses } from './memory-network.ts';
import {
  type Alarm,
  type HostClock,
  type HostSystem,
  type LinkPort,
  type Network,
  NetworkError,
} from './network.ts';
import { ReadingShares } from './reading-share.ts';
import { type LinkEnvironment, READ_BUFFER_BYTES } from './tcp-link.ts';
import { sourceAddress, TcpPort } from './tcp-port.ts';

const MICROS_PER_MILLISECOND = 1000;
/** The longest interval of a timer. */
const FOREVER_MS = 2 ** 31 - 1;

class SystemAlarm implements Alarm {
  readonly #timer: NodeJS.Timeout;

  constructor(delayMicros: number, run: () => void) {
    this.#timer = setTimeout(run, delayMicros / MICROS_PER_MILLISECOND);
    // Sockets keep a process alive; deadlines alone do not.
    this.#timer.unref();
  }

  cancel(): void {
    clearTimeout(this.#timer);
  }
}

const CLOCK: HostClock = {
  now: () => processClock.readMs() * MICROS_PER_MILLISECOND,
  recent: () => processClock.recentMs * MICROS_PER_MILLISECOND,
  after: (delayMicros, run) => new SystemAlarm(delayMicros, run),
  soon: (run) => {
    setImmediate(run);
  },
  random32: () => randomInt(2 ** 32),
};

/** The kernel's TCP. */
class TcpNetwork implements Network {
  readonly #environment: LinkEnvironment = {
    readBuffer: new Uint8Array(READ_BUFFER_BYTES),
    readings: new ReadingShares(setImmediate),
  };
  /** Source addresses found in this turn. */
  readonly #routes = new Map<string, string>();

  hold(address: string, port: number, v6Only?: boolean): LinkPort {
    return new TcpPort(address, port, this.#environment, v6Only);
  }

  /** Cached within a turn, since many connections that start together ask for the same route. */
  sourceAddress(destination: string, source: string | undefined): string {
    const key = `${destination} ${source}`;
    const known = this.#routes.get(key);
    if (known !== undefined) return known;
    const address = sourceAddress(destination, source);
    if (this.#routes.size === 0) setImmediate(() => this.#routes.clear());
    this.#routes.set(key, address);
    return address;
  }
}

/** The addresses of this machine. */
class MachineAddresses implements OwnAddresses {
  readonly #network: Network;

  constructor(network: Network) {
    this.#network = network;
  }

  has(address: string): boolean {
    if (isLoopback(address) || this.#isOwnSource(address)) return true;
    // An address in the subnet of another one is reached from that one.
    return Object.values(networkInterfaces()).some((addresses) =>
      addresses?.some((each) => canonicalAddress(each.address) === address),
    );
  }

  get anyAcceptsIPv4(): boolean {
    try {
      return readFileSync('/proc/sys/net/ipv6/bindv6only', 'utf8').trim() === '0';
    } catch {
      return false;
    }
  }

  /** True for nearly every address of the machine; cached within a turn. */
  #isOwnSource(address: string): boolean {
    try {
      return this.#network.sourceAddress(address, undefined) === address;
    } catch (error) {
      if (error instanceof NetworkError) return false;
      throw error;
    }
  }
}

/** The clock and the network of this process. */
export function hostSystem(loopback: Loopback = 'memory'): HostSystem {
  const tcp = new TcpNetwork();
  const own = new MachineAddresses(tcp);
  const network = loopback === 'tcp' ? tcp : new MemoryNetwork(tcp, CLOCK, own);
  return { clock: CLOCK, network, outward: true };
}

/**
 * The system of an isolated host of devices with these addresses: this process's clock, and a network within
 * the host.
 */
export function isolatedSystem(
  devices: readonly { readonly addresses: readonly string[] }[],
): HostSystem {
  const named = devices.flatMap(({ addresses }) => addresses.map(canonical));
  const own = new IsolatedAddresses(new Set(named));
  const network = new MemoryNetwork(new IsolatedNetwork(CLOCK, own, stayAlive), CLOCK, own);
  return { clock: CLOCK, network, isolated: true };
}

/** The canonical address. The host reports invalid ones. */
function canonical(address: string): string {
  return canonicalAddress(address.trim()) ?? address;
}

/** A timer that never fires, like a socket without a peer. */
function stayAlive(): () => void {
  const timer = setInterval(() => {}, FOREVER_MS);
  return () => clearInterval(timer);
}
