/**
 * A held local address and TCP port: first unused, then used by a listener or by one outgoing
 * connection.
 */
import { closeDescriptor, duplicateDescriptor } from '#native-bridge/libc/descriptor';
import { unreserved } from '#native-bridge/libc/descriptor-limit';
import { SystemCallError } from '#native-bridge/libc/libc';
import { bindTcp, routeSource } from '#native-bridge/libc/tcp-socket';
import type { Dial } from './link.ts';
import { type LinkPort, NetworkError } from './network.ts';
import { dialTcp, type LinkEnvironment, type TcpLink } from './tcp-link.ts';
import { TcpListener } from './tcp-listener.ts';

export class TcpPort implements LinkPort {
  readonly address: string;
  readonly port: number;
  readonly #environment: LinkEnvironment;
  readonly #v6Only: boolean | undefined;
  /** Undefined while the port is taken, and once a connection has it. A listener uses a copy. */
  #fd: number | undefined;
  #taken = false;
  #listener: TcpListener | undefined;
  #listens = false;

  /** See `Network.hold`. Throws `NetworkError`: EADDRNOTAVAIL and so on. */
  constructor(address: string, port: number, environment: LinkEnvironment, v6Only?: boolean) {
    this.address = address;
    this.#environment = environment;
    this.#v6Only = v6Only;
    try {
      this.port = this.#bind(port);
    } catch (error) {
      const taken = error instanceof NetworkError && error.code === 'EADDRINUSE';
      if (port === 0 || !taken) throw error;
      // As with the kernel's drivers: the present owner may be gone when the port is used.
      this.port = port;
      this.#taken = true;
    }
  }

  /** Returns the port: the one that the system picked for 0. */
  #bind(wanted: number): number {
    return translated(() => {
      const { fd, port } = bindTcp(this.address, wanted, this.#v6Only);
      this.#fd = unreserved('socket', fd);
      this.#taken = false;
      return port;
    });
  }

  get taken(): boolean {
    return this.#taken;
  }

  get listens(): boolean {
    return this.#listens;
  }

  listen(onLink: (link: TcpLink) => void, onError: (error: Error) => void): void {
    const held = this.#held();
    translated(() => {
      const fd = duplicateDescriptor(held);
      try {
        this.#listener = new TcpListener(fd, this, this.#environment, onLink, onError);
      } catch (error) {
        closeDescriptor(fd);
        throw error;
      }
    });
    this.#listens = true;
  }

  suspend(): void {
    this.#listener?.close();
    this.#listener = undefined;
  }

  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: TcpLink) => void,
    onFailed: (errorCode: string) => void,
  ): Dial {
    const fd = this.#held();
    if (this.#listens) throw new NetworkError('EINVAL', 'the port listens');
    this.#fd = undefined;
    return dialTcp(fd, this, remote, this.#environment, onConnected, onFailed);
  }

  release(): void {
    this.suspend();
    if (this.#fd !== undefined) closeDescriptor(this.#fd);
    this.#fd = undefined;
    this.#taken = false;
  }

  #held(): number {
    if (this.#taken) this.#bind(this.port);
    if (this.#fd === undefined || this.#listener !== undefined) {
      throw new NetworkError('EINVAL', 'the port is in use');
    }
    return this.#fd;
  }
}

/**
 * The local address from which the host reaches `destination`; with `source`, only that address is
 * tried. Throws `NetworkError`: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL.
 */
export function sourceAddress(destination: string, source: string | undefined): string {
  return translated(() => routeSource(destination, source));
}

function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemCallError) throw new NetworkError(error.code, error.message);
    throw error;
  }
}
