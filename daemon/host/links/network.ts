/** The system of a host: a network, a clock and randomness. */
import type { IdAccount } from '#daemon/iwarp/cm/cm-id';
import type { Dial, Link } from './link.ts';

/** An error of the system; `code` is the errno name. */
export class NetworkError extends Error {
  override readonly name = 'NetworkError';
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** A held local address and port: first unused, then used by a listener or by one dial. */
export interface LinkPort {
  readonly address: string;
  /** The port; the one that the system picked if 0 was given. */
  readonly port: number;
  /** True once connections are accepted here, whether or not they are delivered. */
  readonly listens: boolean;
  /**
   * Another socket listened there when the port was held. `listen` and `dial` fail with EADDRINUSE unless it
   * has closed by then.
   */
  readonly taken?: boolean;
  /**
   * Delivers connections from now on, starting with those that arrived since `suspend`. `onLink` must set the
   * user of its link at once. Throws `NetworkError` (EADDRINUSE, EINVAL if not held).
   */
  listen(onLink: (link: Link) => void, onError: (error: Error) => void): void;
  /** Leaves later connections in the system, until `listen` or `release`. */
  suspend(): void;
  /**
   * Connects from here; `onFailed` gets the errno name. Never calls back from inside. Connections of one
   * `program` may share a carrier. Throws `NetworkError`: EINVAL if not held, or if listening; EADDRINUSE
   * (see `taken`).
   */
  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: Link) => void,
    onFailed: (errorCode: string) => void,
    program?: object,
  ): Dial;
  /** For a port of several networks: only the port of `address`. Releases the others. */
  narrow?(address: string): LinkPort;
  /**
   * Releases the port; a listener stops. Accepted and outgoing connections stay, waiting ones are
   * reset.
   */
  release(): void;
}

/** The network of a host. */
export interface Network {
  /**
   * Holds `address` and `port`, 0 for a free one. `v6Only` determines whether `::` leaves the IPv4 addresses
   * to others; by default the system decides. `account` is charged for the associations of the port. Throws
   * `NetworkError`: EADDRNOTAVAIL and others, but no EADDRINUSE for a given port of TCP (`LinkPort.taken`).
   */
  hold(address: string, port: number, v6Only?: boolean, account?: IdAccount): LinkPort;
  /**
   * The local address from which the host reaches `destination`; with `source`, only that address
   * is tried. Throws `NetworkError`: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL.
   */
  sourceAddress(destination: string, source: string | undefined): string;
}

/** A scheduled call. */
export interface Alarm {
  cancel(): void;
}

/** Time and randomness. A simulation replaces both, so that a seed determines the whole run. */
export interface HostClock {
  /** Microseconds from an arbitrary start; monotonic. */
  now(): number;
  /** The last result of `now`, without reading the clock: for work whose start has called `now`. */
  recent(): number;
  /**
   * Calls `run` once, `delayMicros` from now or a little later. Does not keep the process alive.
   */
  after(delayMicros: number, run: () => void): Alarm;
  /** Calls `run` in a later turn, after input of links was handled. */
  soon(run: () => void): void;
  /** A number from 0 to 2^32 - 1 that no peer can guess. */
  random32(): number;
}

/** The system of a host. */
export interface HostSystem {
  readonly clock: HostClock;
  readonly network: Network;
  /** RoCE devices reach other hosts. */
  readonly outward?: boolean;
  /** Lists the addresses of the machine, which RoCE devices may use. Default: the kernel's. */
  readonly addresses?: () => readonly {
    readonly address: string;
    readonly interfaceName: string;
  }[];
  /** Nothing leaves the host: see `isolatedSystem`. */
  readonly isolated?: boolean;
}
