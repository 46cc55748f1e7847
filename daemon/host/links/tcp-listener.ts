/** A listening TCP socket: every connection becomes a link. */
import { createServer, type Server, type Socket } from 'node:net';
import { SystemCallError } from '#native-bridge/libc/libc';
import { listenTcp } from '#native-bridge/libc/tcp-socket';
import { adoptAccepted, type LinkEnvironment, type SocketPlace, type TcpLink } from './tcp-link.ts';

/**
 * Connections that the kernel completes before they are accepted. Linux limits it to
 * `net.core.somaxconn`; it must hold a burst of connects between two turns of the event loop.
 */
const KERNEL_BACKLOG = 1024;

export class TcpListener {
  readonly #server: Server;

  /**
   * Listens on the bound socket `fd`, which it takes over; `local` is its address. `onLink` gets each
   * connection and must set its user at once. Throws `SystemCallError` (EADDRINUSE); the caller then still
   * owns the descriptor.
   */
  constructor(
    fd: number,
    local: SocketPlace,
    environment: LinkEnvironment,
    onLink: (link: TcpLink) => void,
    onError: (error: Error) => void,
  ) {
    // Calling listen() here, before Node does, reports an error at once.
    listenTcp(fd, KERNEL_BACKLOG);
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (accepted) => {
      accepted.on('error', () => {});
      const link = adopt(accepted, local, environment, onError);
      if (link !== undefined) onLink(link);
    });
    this.#server.on('error', onError);
    this.#server.listen({ fd, backlog: KERNEL_BACKLOG });
  }

  /** Stops listening; accepted links stay. */
  close(): void {
    this.#server.close();
  }
}

/** The link of an accepted socket; undefined if the host is out of descriptors. */
function adopt(
  accepted: Socket,
  local: SocketPlace,
  environment: LinkEnvironment,
  onError: (error: Error) => void,
): TcpLink | undefined {
  try {
    return adoptAccepted(accepted, local, environment);
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    accepted.destroy();
    onError(error);
    return undefined;
  }
}
