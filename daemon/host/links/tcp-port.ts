/**
 * A held local address and TCP port: first unused, then used by a listener or by one outgoing
 * connection.
 */
import { closeDescriptor, duplicateDescriptor } from '../../../native-bridge/libc/descriptor.ts';
import { unreserved } from '../../../native-bridge/libc/descriptor-limit.ts';
import { SystemCallError } from '../../../native-bridge/libc/libc.ts';
import { bindTcp, routeSource } from '../../../native-bridge/libc/tcp-socket.ts';
import type { Dial } from './link.ts';
import { type LinkPort, TransportError } from './network.ts';
import { dialTcp, type LinkEnvironment, type TcpLink } from './tcp-link.ts';
import { TcpListener } from './tcp-listener.ts';

/** See the module's comment. */
export class TcpPort implements LinkPort {
  readonly address: string;
  /** The port; the one that the host picked if 0 was given. */
  readonly port: number;
  readonly #environment: LinkEnvironment;
  /** Undefined once a connection has taken it. A listener uses a copy. */
  #fd: number | undefined;
  #listener: TcpListener | undefined;
  #listens = false;

  /** See `Network.hold`. Throws `TransportError`: EADDRINUSE and so on. */
  constructor(address: string, port: number, environment: LinkEnvironment, v6Only?: boolean) {
    const bound = translated(() => {
      const { fd, ...rest } = bindTcp(address, port, v6Only);
      return { ...rest, fd: unreserved('socket', fd) };
    });
    this.address = address;
    this.port = bound.port;
    this.#fd = bound.fd;
    this.#environment = environment;
  }

  /** True once the kernel accepts connections here, whether or not they are delivered. */
  get listens(): boolean {
    return this.#listens;
  }

  /**
   * Delivers connections from now on, first those that arrived since `suspend`. Throws
   * `TransportError` (EADDRINUSE, EINVAL if not held).
   */
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

  /** Leaves later connections in the kernel, until `listen` or `release`. */
  suspend(): void {
    this.#listener?.close();
    this.#listener = undefined;
  }

  /**
   * Connects from here; see `dialTcp`. Throws `TransportError` EINVAL if not held, or if listening.
   */
  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: TcpLink) => void,
    onFailed: (errorCode: string) => void,
  ): Dial {
    const fd = this.#held();
    if (this.#listens) throw new TransportError('EINVAL', 'the port listens');
    this.#fd = undefined;
    return dialTcp(fd, this, remote, this.#environment, onConnected, onFailed);
  }

  /**
   * Releases the port; a listener stops. Accepted and outgoing connections stay, waiting ones are
   * reset.
   */
  release(): void {
    this.suspend();
    if (this.#fd !== undefined) closeDescriptor(this.#fd);
    this.#fd = undefined;
  }

  #held(): number {
    if (this.#fd === undefined || this.#listener !== undefined) {
      throw new TransportError('EINVAL', 'the port is in use');
    }
    return this.#fd;
  }
}

/**
 * The local address from which the host reaches `destination`; with `source`, only that address is
 * tried. Throws `TransportError`: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL.
 */
export function sourceAddress(destination: string, source: string | undefined): string {
  return translated(() => routeSource(destination, source));
}

function translated<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemCallError) throw new TransportError(error.code, error.message);
    throw error;
  }
}
