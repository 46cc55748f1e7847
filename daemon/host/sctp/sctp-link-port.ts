/** A held address and port of SCTP, as ids hold it: its associations become links. */
import type { Dial } from '../links/link.ts';
import { type LinkPort, TransportError } from '../links/network.ts';
import type { Association, SctpPort } from './association.ts';
import { SctpLink, type SctpLinkHost } from './sctp-link.ts';

/** Links that wait between `suspend` and `listen`: more are refused. */
const WAITING_MAX = 128;

/** See the module's comment. */
export class SctpLinkPort implements LinkPort {
  readonly #port: SctpPort;
  readonly #host: SctpLinkHost;
  #onLink: ((link: SctpLink) => void) | undefined;
  #listens = false;
  #waiting: SctpLink[] = [];

  constructor(port: SctpPort, host: SctpLinkHost) {
    this.#port = port;
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
    if (this.#onLink !== undefined) throw new TransportError('EINVAL', 'the port is in use');
    if (!this.#listens) this.#port.listen((association) => this.#arrive(association));
    this.#listens = true;
    this.#onLink = onLink;
    if (this.#waiting.length > 0) this.#host.soon(() => this.#deliverWaiting());
  }

  suspend(): void {
    this.#onLink = undefined;
  }

  dial(
    remote: { readonly address: string; readonly port: number },
    onConnected: (link: SctpLink) => void,
    onFailed: (errorCode: string) => void,
  ): Dial {
    if (this.#listens) throw new TransportError('EINVAL', 'the port listens');
    const port = this.#port;
    const release = (): void => port.release();
    const host = this.#host;
    // The port is the association's until its end.
    const owner: SctpLinkHost = {
      soon: (run) => host.soon(run),
      handleMade: (link) => host.handleMade(link),
      handleGone: (link) => {
        release();
        host.handleGone(link);
      },
    };
    const attempt = port.open(
      remote,
      (association) => onConnected(new SctpLink(association, owner)),
      (errorCode) => {
        release();
        onFailed(errorCode);
      },
    );
    return {
      cancel: () => {
        attempt.cancel();
        release();
      },
    };
  }

  release(): void {
    this.#onLink = undefined;
    for (const link of this.#waiting) link.reset();
    this.#waiting = [];
    this.#port.release();
  }

  #arrive(association: Association): void {
    if (this.#waiting.length === WAITING_MAX) {
      association.abort();
      return;
    }
    const link = new SctpLink(association, this.#host);
    const deliver = this.#onLink;
    if (deliver !== undefined && this.#waiting.length === 0) {
      deliver(link);
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
