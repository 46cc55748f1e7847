/**
 * Dials associations. Connections of one program to one listener share associations, each on its own DDP
 * stream, so they have one congestion window, one set of timers and one handshake. Programs do not share,
 * since an association has one window and fails as a whole: a program that does not read, or aborts, must not
 * stop another.
 */
import type { Dial } from '../links/link.ts';
import type { Association, AssociationAttempt, SctpAddress, SctpPort } from './association.ts';
import { DdpStreams, type StreamsHost } from './ddp-streams.ts';
import type { SctpLink } from './sctp-link.ts';

/** How long an association without a session stays, for the next connection of its program. */
const IDLE_MICROS = 500_000;

/** Outcomes of a dial. None is called from inside. */
interface DialCallbacks {
  readonly onConnected: (link: SctpLink) => void;
  readonly onFailed: (errorCode: string) => void;
}

/** A dial that waits for an association. */
interface Waiter extends DialCallbacks {
  readonly port: SctpPort;
  readonly remote: SctpAddress;
}

/** An attempt to open an association, from the port of one of its waiters. */
interface Opening {
  readonly attempt: AssociationAttempt;
  readonly port: SctpPort;
}

/** The associations of a program between a local address and a listener. */
interface Bundle {
  readonly up: DdpStreams[];
  waiters: Waiter[];
  opening: Opening | undefined;
}

export class SharedAssociations {
  readonly #host: StreamsHost;
  /** By program, then by the ends. */
  readonly #programs = new WeakMap<object, Map<string, Bundle>>();

  constructor(host: StreamsHost) {
    this.#host = host;
  }

  /** Dials from `port`, which its association keeps until it ends. */
  dialAlone(port: SctpPort, remote: SctpAddress, callbacks: DialCallbacks): Dial {
    const release = (): void => port.release();
    const attempt = port.open(
      remote,
      (association) => {
        const options = { idleMicros: undefined, onGone: release };
        const link = new DdpStreams(association, this.#host, options).begin();
        if (link !== undefined) callbacks.onConnected(link);
      },
      (errorCode) => {
        release();
        callbacks.onFailed(errorCode);
      },
    );
    return {
      cancel: () => {
        attempt.cancel();
        release();
      },
    };
  }

  /**
   * Takes a stream of an association of the program, or dials one from `port`. The port stays held in both
   * cases.
   */
  dialFor(program: object, port: SctpPort, remote: SctpAddress, callbacks: DialCallbacks): Dial {
    const bundle = this.#bundleOf(program, `${port.address} ${remote.address} ${remote.port}`);
    for (const streams of bundle.up) {
      const link = streams.begin(() => port.release());
      if (link !== undefined) return this.#connectSoon(link, callbacks);
    }
    const waiter = { ...callbacks, port, remote };
    this.#wait(bundle, waiter);
    return { cancel: () => this.#cancel(bundle, waiter) };
  }

  /** The program has ended: its associations end with their connections. */
  forget(program: object): void {
    for (const { up } of this.#programs.get(program)?.values() ?? []) {
      for (const streams of [...up]) streams.expire();
    }
  }

  #bundleOf(program: object, key: string): Bundle {
    let bundles = this.#programs.get(program);
    if (bundles === undefined) {
      bundles = new Map();
      this.#programs.set(program, bundles);
    }
    let bundle = bundles.get(key);
    if (bundle === undefined) {
      bundle = { up: [], waiters: [], opening: undefined };
      bundles.set(key, bundle);
    }
    return bundle;
  }

  #connectSoon(link: SctpLink, { onConnected, onFailed }: DialCallbacks): Dial {
    let cancelled = false;
    this.#host.soon(() => {
      if (cancelled) return;
      if (link.ended) onFailed('ECONNRESET');
      else onConnected(link);
    });
    return {
      cancel: () => {
        cancelled = true;
        link.reset();
      },
    };
  }

  #wait(bundle: Bundle, waiter: Waiter): void {
    bundle.waiters.push(waiter);
    if (bundle.opening !== undefined) return;
    const { port, remote } = waiter;
    const attempt = port.open(
      remote,
      (association) => {
        bundle.opening = undefined;
        this.#deliver(bundle, association, port);
      },
      (errorCode) => {
        bundle.opening = undefined;
        port.release();
        for (const failed of bundle.waiters.splice(0)) {
          if (failed.port !== port) failed.port.release();
          failed.onFailed(errorCode);
        }
      },
    );
    bundle.opening = { attempt, port };
  }

  #deliver(bundle: Bundle, association: Association, opener: SctpPort): void {
    const streams: DdpStreams = new DdpStreams(association, this.#host, {
      idleMicros: IDLE_MICROS,
      onGone: () => {
        opener.release();
        const at = bundle.up.indexOf(streams);
        if (at >= 0) bundle.up.splice(at, 1);
      },
    });
    bundle.up.push(streams);
    for (const waiter of bundle.waiters.splice(0)) {
      const { port } = waiter;
      const link = streams.begin(port === opener ? undefined : () => port.release());
      if (link === undefined) this.#wait(bundle, waiter);
      else waiter.onConnected(link);
    }
  }

  #cancel(bundle: Bundle, waiter: Waiter): void {
    const at = bundle.waiters.indexOf(waiter);
    if (at < 0) return;
    bundle.waiters.splice(at, 1);
    const { opening } = bundle;
    // The association that others wait for keeps the port.
    if (opening?.port !== waiter.port) {
      waiter.port.release();
      return;
    }
    if (bundle.waiters.length > 0) return;
    bundle.opening = undefined;
    opening.attempt.cancel();
    waiter.port.release();
  }
}
