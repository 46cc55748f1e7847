/** A listening TCP socket: every connection becomes a link. */
import { createServer, type Server, type Socket } from 'node:net';
import { SystemCallError } from '../../native-bridge/libc/libc.ts';
import { listenTcp } from '../../native-bridge/libc/tcp-socket.ts';
import { adoptAccepted, type LinkEnvironment, type TcpLink } from './tcp-link.ts';

/**
 * Connections that the kernel completes before they are taken. Linux cuts it to
 * `net.core.somaxconn`; a burst of connects between two turns of the event loop has to fit.
 */
const KERNEL_BACKLOG = 1024;

/** See the module's comment. */
export class TcpListener {
  readonly #server: Server;

  /**
   * Listens on the bound socket `fd`, which is the listener's from now on. `onLink` gets each
   * connection, whose user it has to set at once. Throws `SystemCallError` (EADDRINUSE); the
   * descriptor is then still the caller's.
   */
  constructor(
    fd: number,
    environment: LinkEnvironment,
    onLink: (link: TcpLink) => void,
    onError: (error: Error) => void,
  ) {
    // Listening here, and not only in Node, reports a refusal at once.
    listenTcp(fd, KERNEL_BACKLOG);
    this.#server = createServer(
      { allowHalfOpen: true, pauseOnConnect: true, noDelay: true },
      (accepted) => {
        accepted.on('error', () => {});
        const link = adopt(accepted, environment, onError);
        if (link !== undefined) onLink(link);
      },
    );
    this.#server.on('error', onError);
    this.#server.listen({ fd, backlog: KERNEL_BACKLOG });
  }

  /** Stops listening; links that were taken live on. */
  close(): void {
    this.#server.close();
  }
}

/** The link of an accepted socket; undefined when the host is out of descriptors. */
function adopt(
  accepted: Socket,
  environment: LinkEnvironment,
  onError: (error: Error) => void,
): TcpLink | undefined {
  try {
    return adoptAccepted(accepted, environment);
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    accepted.destroy();
    onError(error);
    return undefined;
  }
}
