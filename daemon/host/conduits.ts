/** The conduits of a host: dials for endpoints, accepts links, and connects each link to its endpoint. */
import { canonicalAddress } from '#base/address';
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { isVerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { CmEndpoint, CmId, IdAccount } from '../iwarp/cm/cm-id.ts';
import type { ConnectableQP, SocketFacts } from '../iwarp/cm/cm-types.ts';
import type { ConnectionManager } from '../iwarp/cm/connection-manager.ts';
import type { StreamPort } from '../iwarp/engine/stream-api.ts';
import { type Charged, Conduit, type ConduitHost } from './conduit.ts';
import type { EventLoop } from './event-loop.ts';
import type { IdNetwork } from './host-network.ts';
import type { Dial, Link } from './links/link.ts';
import { NetworkError } from './links/network.ts';
import { TappedLink } from './links/tapped-link.ts';
import type { HostObserver } from './observer.ts';
import type { TurnShares } from './turn-share.ts';

/** Interface of conduits to their host. */
export interface ConduitsHost extends ConduitHost {
  /** A conduit was created. No bytes have passed yet. */
  handleJoined(conduit: Conduit): void;
  /** The connection manager refused an incoming link; for the log only. */
  handleRefused(remote: SocketFacts['remote'], text: string): void;
}

const NO_CHARGE: Charged = { account: undefined, descriptors: 0, ports: 0 };

export class Conduits {
  readonly #host: ConduitsHost;
  readonly #manager: ConnectionManager;
  readonly #network: IdNetwork;
  readonly #loop: EventLoop;
  readonly #observer: HostObserver;
  readonly #shares: TurnShares;
  readonly #byStream = new Map<StreamPort, Conduit>();
  /** The latest conduit of each QP, also after the QP has detached its stream. */
  readonly #byQP = new WeakMap<ConnectableQP, Conduit>();
  /** The latest charges, for reuse. */
  #acceptCharge = NO_CHARGE;
  #dialCharge = NO_CHARGE;
  readonly #dials = new Map<CmEndpoint, { readonly dial: Dial; readonly charged: Charged }>();

  /** The tap of `observer` watches every link. */
  constructor(
    host: ConduitsHost,
    manager: ConnectionManager,
    network: IdNetwork,
    loop: EventLoop,
    observer: HostObserver,
    shares: TurnShares,
  ) {
    this.#host = host;
    this.#manager = manager;
    this.#network = network;
    this.#loop = loop;
    this.#observer = observer;
    this.#shares = shares;
  }

  // Getters

  get empty(): boolean {
    return this.#byStream.size === 0;
  }

  /** All conduits. */
  all(): Iterable<Conduit> {
    return this.#byStream.values();
  }

  /** True until the link of this stream has closed. */
  has(stream: StreamPort): boolean {
    return this.#byStream.has(stream);
  }

  /** The latest conduit of a QP. */
  of(qp: ConnectableQP): Conduit | undefined {
    return this.#byQP.get(qp);
  }

  /** Throws `InvariantError` unless endpoints, streams and conduits agree. */
  assertDeepInvariants(): void {
    const endpoints = new Set(this.#manager.endpoints());
    for (const endpoint of this.#dials.keys()) {
      assert(endpoints.has(endpoint), 'dialing for an unknown endpoint');
    }
    for (const [stream, conduit] of this.#byStream) {
      assert(conduit.stream === stream, 'conduit under a wrong stream');
      conduit.assertInvariants();
    }
    this.#shares.assertInvariants();
    for (const { stream, phase, lost } of endpoints) {
      // An unanswered request stays, even if its peer disconnects.
      const joined = stream === undefined || lost || this.#byStream.has(stream);
      assert(joined, `connection without a conduit in phase ${phase}`);
    }
  }

  // Links

  /** Accepts a link for a listener. */
  accept(listener: CmId, incoming: Link): void {
    const facts = factsOf(incoming);
    const link = this.#watched(incoming, false, facts);
    const { account } = listener;
    const endpoint =
      refusalOf(account, incoming) ??
      this.#manager.handleIncoming(listener, facts, this.#host.now());
    if (typeof endpoint === 'string') {
      link.reset();
      this.#host.handleRefused(facts.remote, endpoint);
      return;
    }
    const descriptors = hasSocket(incoming) ? 1 : 0;
    if (descriptors > 0) account?.add('descriptors');
    this.#acceptCharge = chargeOf(this.#acceptCharge, account, descriptors, 0);
    this.#join(endpoint, link, this.#acceptCharge);
  }

  /** Dials `remote` from the port that the endpoint's id holds. */
  dial(endpoint: CmEndpoint, remote: SocketAddress, now: Micros): void {
    const id = endpoint.id;
    if (id === undefined) return;
    this.#dialCharge = chargeOf(this.#dialCharge, id.account, 1, 1);
    const charged = this.#dialCharge;
    const connected = (dialed: Link): void => {
      const facts = factsOf(dialed);
      const link = this.#watched(dialed, true, facts);
      this.#dials.delete(endpoint);
      if (this.#manager.handleDialed(endpoint, facts, this.#host.now())) {
        this.#join(endpoint, link, charged);
      } else {
        discharge(charged);
        link.reset();
        this.#loop.drain();
      }
    };
    const failed = (errorCode: string): void => {
      this.#dials.delete(endpoint);
      discharge(charged);
      this.#manager.handleDialFailed(endpoint, errorCode, this.#host.now());
      this.#loop.drain();
    };
    const port = this.#network.take(id);
    if (port === undefined) {
      this.#manager.handleDialFailed(endpoint, 'EADDRNOTAVAIL', now);
      return;
    }
    let dial: Dial;
    try {
      dial = port.dial(remote, connected, failed, id.program);
    } catch (error) {
      if (!(error instanceof NetworkError)) throw error;
      port.release();
      this.#manager.handleDialFailed(endpoint, error.code, now);
      return;
    }
    // Releasing the id's port has just returned as many, so there is room.
    charged.account?.add('descriptors');
    charged.account?.add('ports');
    this.#dials.set(endpoint, { dial, charged });
  }

  cancelDial(endpoint: CmEndpoint): void {
    const dialing = this.#dials.get(endpoint);
    if (dialing === undefined) return;
    this.#dials.delete(endpoint);
    dialing.dial.cancel();
    discharge(dialing.charged);
  }

  #join(endpoint: CmEndpoint, link: Link, charged: Charged): void {
    const stream = endpoint.stream;
    if (stream === undefined) {
      discharge(charged);
      return;
    }
    const share = this.#shares.of(endpoint.remote.address);
    const conduit = new Conduit(endpoint, stream, link, share, this.#host);
    if (charged.account !== undefined) conduit.charged = charged;
    this.#byStream.set(stream, conduit);
    this.#host.handleJoined(conduit);
    if (endpoint.qp !== undefined) this.#byQP.set(endpoint.qp, conduit);
    this.#loop.enqueue(conduit);
    this.#loop.drain();
  }

  /** Wraps the link in the tap, if there is one. On SCTP the tap watches packets instead. */
  #watched(link: Link, dialed: boolean, { emssBytes }: SocketFacts): Link {
    const { tap } = this.#observer;
    if (tap === undefined || link.carriesMessages === true) return link;
    return new TappedLink(link, tap, dialed, emssBytes);
  }

  // Conduits

  /** The connection manager changed the endpoint: its conduit is settled in this drain. */
  touched({ stream, qp }: CmEndpoint): void {
    const conduit = stream === undefined ? undefined : this.#byStream.get(stream);
    if (conduit === undefined) return;
    if (qp !== undefined) this.#byQP.set(qp, conduit);
    this.#loop.enqueue(conduit);
  }

  /** Settles the conduit of this QP in the next drain, if it has one. */
  enqueue(qp: ConnectableQP): void {
    const conduit = this.#byQP.get(qp);
    if (conduit !== undefined) this.#loop.enqueue(conduit);
  }

  /** The conduit's link has ended. */
  forget(conduit: Conduit): void {
    this.#byStream.delete(conduit.stream);
    if (conduit.charged !== undefined) discharge(conduit.charged);
    conduit.charged = undefined;
    this.#shares.leave(conduit.endpoint.remote.address, conduit);
  }
}

/** The record of a charge; `last` if it is the same, as for connections of one program. */
function chargeOf(
  last: Charged,
  account: IdAccount | undefined,
  descriptors: number,
  ports: number,
): Charged {
  const same = last.account === account && last.descriptors === descriptors && last.ports === ports;
  return same ? last : { account, descriptors, ports };
}

function discharge({ account, descriptors, ports }: Charged): void {
  if (descriptors > 0) account?.give('descriptors', descriptors);
  if (ports > 0) account?.give('ports', ports);
}

/** A link within the host has no socket. */
function hasSocket(link: Link): boolean {
  return link.faithful !== true;
}

/** Why the listener's user may not have the socket of another connection. */
function refusalOf(account: IdAccount | undefined, link: Link): string | undefined {
  if (account === undefined || !hasSocket(link)) return undefined;
  try {
    account.take('descriptors');
    account.give('descriptors');
    return undefined;
  } catch (error) {
    if (!isVerbsError(error)) throw error;
    return error.message;
  }
}

/** A link's addresses in canonical form: an IPv4 peer of an IPv6 socket is shown as IPv4. */
function factsOf(link: Link): SocketFacts {
  const local = canonicalAddress(link.localAddress) ?? link.localAddress;
  const remote = canonicalAddress(link.remoteAddress) ?? link.remoteAddress;
  return {
    local: { address: local, port: link.localPort },
    remote: { address: remote, port: link.remotePort },
    emssBytes: link.emssBytes(),
    lowerLayer: link.lowerLayer ?? 'tcp',
  };
}
