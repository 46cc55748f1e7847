/**
 * A TCP connection that is tried again for a while when it is refused. Programs connect to one
 * another in step with what they exchange, and count on the time that a path takes to resolve:
 * perftest's server starts to listen for its queue pairs while its client connects them already.
 */
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import type { Dial, LinkEnvironment, TcpLink } from '../transport/tcp-link.ts';
import { TcpPort, TransportError } from '../transport/tcp-port.ts';

/** The first pause between two attempts; each is twice as long as the one before, up to the last. */
const PAUSE_FIRST_MS = 5;
const PAUSE_LAST_MS = 80;

/** What a dial is made with. */
export interface PatientDialOptions {
  readonly port: TcpPort;
  readonly remote: SocketAddress;
  readonly environment: LinkEnvironment;
  /** How long refusals are answered by another attempt, in milliseconds; 0: never. */
  readonly patienceMs: number;
  readonly onConnected: (link: TcpLink) => void;
  /** With the errno name of the last attempt. */
  readonly onFailed: (errorCode: string) => void;
}

/** See the module's comment. */
export class PatientDial implements Dial {
  readonly #options: PatientDialOptions;
  readonly #deadline: number;
  #pauseMs = PAUSE_FIRST_MS;
  #attempt: Dial;
  #timer: NodeJS.Timeout | undefined;

  /** Starts to connect. Throws `TransportError` EINVAL when the port is not held. */
  constructor(options: PatientDialOptions) {
    this.#options = options;
    this.#deadline = performance.now() + options.patienceMs;
    this.#attempt = this.#dial(options.port);
  }

  /** See `Dial`: nothing is called any more. */
  cancel(): void {
    clearTimeout(this.#timer);
    this.#attempt.cancel();
  }

  #dial(port: TcpPort): Dial {
    const { remote, environment, onConnected } = this.#options;
    return port.dial(remote, environment, onConnected, (errorCode) => this.#failed(errorCode));
  }

  #failed(errorCode: string): void {
    if (errorCode !== 'ECONNREFUSED' || performance.now() + this.#pauseMs > this.#deadline) {
      this.#options.onFailed(errorCode);
      return;
    }
    this.#timer = setTimeout(() => this.#again(), this.#pauseMs);
    this.#pauseMs = Math.min(2 * this.#pauseMs, PAUSE_LAST_MS);
  }

  /** The attempt that failed gave the local port back; it is the one that the program was told. */
  #again(): void {
    const { address, port } = this.#options.port;
    let held: TcpPort | undefined;
    try {
      held = new TcpPort(address, port);
      this.#attempt = this.#dial(held);
    } catch (error) {
      held?.release();
      if (!(error instanceof TransportError)) throw error;
      this.#options.onFailed(error.code);
    }
  }
}
