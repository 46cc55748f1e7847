/** The real system of a host: this process's clock and the kernel's TCP and UDP. */
import { randomInt } from 'node:crypto';
import type { Alarm, HostClock, HostSystem, LinkPort, Network } from './network.ts';
import { type LinkEnvironment, READ_BUFFER_BYTES } from './tcp-link.ts';
import { sourceAddress, TcpPort } from './tcp-port.ts';

const MICROS_PER_MILLISECOND = 1000;

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
  now: () => performance.now() * MICROS_PER_MILLISECOND,
  after: (delayMicros, run) => new SystemAlarm(delayMicros, run),
  soon: (run) => {
    setImmediate(run);
  },
  random32: () => randomInt(2 ** 32),
};

/** The kernel's TCP. */
class TcpNetwork implements Network {
  readonly #environment: LinkEnvironment = { readBuffer: new Uint8Array(READ_BUFFER_BYTES) };
  /** Source addresses found in this turn. */
  readonly #routes = new Map<string, string>();

  hold(address: string, port: number, v6Only?: boolean): LinkPort {
    return new TcpPort(address, port, this.#environment, v6Only);
  }

  /** Many connections that start in one turn of the event loop ask for the same route. */
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

/** The clock and the network of this process. */
export function hostSystem(): HostSystem {
  return { clock: CLOCK, network: new TcpNetwork(), kernelUdp: true };
}
