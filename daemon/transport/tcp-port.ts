/**
 * A local address and TCP port that are held: first for nobody, then by a listener or by one
 * outgoing connection.
 */
import { closeDescriptor, duplicateDescriptor } from '../../native-bridge/libc/descriptor.ts';
import { SystemCallError } from '../../native-bridge/libc/libc.ts';
import { bindTcp, routeSource } from '../../native-bridge/libc/tcp-socket.ts';
import { type Dial, dialTcp, type LinkEnvironment, type TcpLink } from './tcp-link.ts';
import { TcpListener } from './tcp-listener.ts';

/** The host refused; `code` is the errno name. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** See the module's comment. */
export class TcpPort {
  readonly address: string;
  /** The port, picked by the host if 0 was asked for. */
  readonly port: number;
  /** Undefined once a connection has it. A listener works on a copy. */
  #fd: number | undefined;
  #listener: TcpListener | undefined;
  #listens = false;

  /** Holds `address` and `port`, 0 for a free one. Throws `TransportError`: EADDRINUSE and so on. */
  constructor(address: string, port: number) {
    const bound = told(() => bindTcp(address, port));
    this.address = address;
    this.port = bound.port;
    this.#fd = bound.fd;
  }

  /** True once the kernel takes connections here, whether or not anybody gets them. */
  get listens(): boolean {
    return this.#listens;
  }

  /**
   * Takes connections from now on, those first that came since `suspend`. Throws `TransportError`
   * (EADDRINUSE, EINVAL if not held).
   */
  listen(
    environment: LinkEnvironment,
    onLink: (link: TcpLink) => void,
    onError: (error: Error) => void,
  ): void {
    const held = this.#held();
    told(() => {
      const fd = duplicateDescriptor(held);
      try {
        this.#listener = new TcpListener(fd, environment, onLink, onError);
      } catch (error) {
        closeDescriptor(fd);
        throw error;
      }
    });
    this.#listens = true;
  }

  /** Leaves the connections that come from now on to the kernel, until `listen` or `release`. */
  suspend(): void {
    this.#listener?.close();
    this.#listener = undefined;
  }

  /** Connects from here; see `dialTcp`. Throws `TransportError` EINVAL if not held, or listening. */
  dial(
    remote: { readonly address: string; readonly port: number },
    environment: LinkEnvironment,
    onConnected: (link: TcpLink) => void,
    onFailed: (errorCode: string) => void,
  ): Dial {
    const fd = this.#held();
    if (this.#listens) throw new TransportError('EINVAL', 'the port listens');
    this.#fd = undefined;
    return dialTcp(fd, remote, environment, onConnected, onFailed);
  }

  /** Lets go; a listener stops. What was accepted or connected lives on, what was not is reset. */
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
 * The local address from which the host reaches `destination`; with `source` only that one is
 * tried. Throws `TransportError`: ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EINVAL.
 */
export function sourceAddress(destination: string, source: string | undefined): string {
  return told(() => routeSource(destination, source));
}

function told<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (error instanceof SystemCallError) throw new TransportError(error.code, error.message);
    throw error;
  }
}
