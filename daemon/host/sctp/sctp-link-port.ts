/** A held address and port of SCTP for ids: the sessions of its associations become links. */
import type { Dial } from '../links/link.ts';
import { type LinkPort, NetworkError } from '../links/network.ts';
import type { Association, SctpPort } from './association.ts';
import { DdpStreams, type StreamsHost } from './ddp-streams.ts';
import type { SctpLink } from './sctp-link.ts';
import type { SharedAssociations } from './shared-associations.ts';

/** Sessions that wait between `suspend` and `listen`: more are refused. */
const WAITING_MAX = 128;
/**
 * How long an association that a peer opened stays without a session: longer than peers keep theirs
 * (`SharedAssociations`), or their new session would cross our SHUTDOWN.
 */
const IDLE_MICROS = 2_000_000;

/** The port's interface to its network. */
export interface LinkPortHost extends StreamsHost {
  /** Associations that the connections of a program share. */
  readonly shared: SharedAssociations;
  /** The present listener at the address and port. */
  listenerAt(address: string, port: number): SctpLinkPort | undefined;
  handleListening(port: SctpLinkPort): void;
  handleReleased(port: SctpLinkPort): void;
}

export class SctpLinkPort implements LinkPort {
  readonly #port: SctpPort;
  readonly #host: LinkPortHost;
  /** The port was chosen by the system. */
  readonly #isAny: boolean;
  #onLink: ((link: SctpLink) => void) | undefined;
  #listens = false;
  #waiting: SctpLink[] = [];

  constructor(port: SctpPort, isAny: boolean, host: LinkPortHost) {
    this.#port = port;
    this.#isAny = isAny;
    this.#host = host;
  }

  get address(): string {
    return this.#port.address;
  }

  get port(): number {
    return this.#port.port;
  }

  get listens(): boolean {
    return this.#listens;
  }

  listen(onLink: (link: SctpLink) => void): void {
    if (this.#onLink !== undefined) throw new NetworkError('EINVAL', 'the port is in use');
    if (!this.#listens) this.#port.listen((association) => this.#arrive(association));
    this.#listens = true;
    this.#onLink = onLink;
    this.#host.handleListening(this);
    if (this.#waiting.length > 0) this.#host.soon(() => this.#deliverWaiting());
  }

  suspend(): void {
    this.#onLink = undefined;
  }

  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: SctpLink) => void,
    onFailed: (errorCode: string) => void,
    program?: object,
  ): Dial {
    if (this.#listens) throw new NetworkError('EINVAL', 'the port listens');
    const callbacks = { onConnected, onFailed };
    const { shared } = this.#host;
    // A port bound explicitly gets its own association, so the peer sees that port.
    if (program === undefined || !this.#isAny) {
      return shared.dialAlone(this.#port, remote, callbacks);
    }
    return shared.dialFor(program, this.#port, remote, callbacks);
  }

  release(): void {
    this.#onLink = undefined;
    this.#host.handleReleased(this);
    for (const link of this.#waiting) link.reset();
    this.#waiting = [];
    this.#port.release();
  }

  #arrive(association: Association): void {
    const { local } = association;
    const streams = new DdpStreams(association, this.#host, {
      // The listener may have changed by then.
      onSession: (link) => {
        const listener = this.#host.listenerAt(local.address, local.port);
        if (listener === undefined) link.reset();
        else listener.#take(link);
      },
      idleMicros: IDLE_MICROS,
    });
    // The peer is expected to begin its first session soon, on this stream.
    const first = streams.begin();
    if (first === undefined) streams.abort();
    else this.#take(first);
  }

  #take(link: SctpLink): void {
    const deliver = this.#onLink;
    if (deliver !== undefined && this.#waiting.length === 0) {
      deliver(link);
      return;
    }
    if (this.#waiting.length === WAITING_MAX) {
      link.reset();
      return;
    }
    link.pauseReading();
    this.#waiting.push(link);
  }

  #deliverWaiting(): void {
    const deliver = this.#onLink;
    if (deliver === undefined) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const link of waiting) {
      if (link.ended) continue;
      deliver(link);
      link.resumeReading();
    }
  }
}
