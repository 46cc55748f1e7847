/** The host's network for the connection manager: ports held for ids, and routes. */
import { canonicalAddress } from '#base/address';
import { assert } from '#base/assert';
import { type ErrnoCode, isErrnoCode, isVerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import type { HostNetwork, NoRoute, PortInUse } from '../iwarp/cm/cm-host.ts';
import type { CmId, IdAccount } from '../iwarp/cm/cm-id.ts';
import { isolatedText } from './links/isolated-text.ts';
import type { Link } from './links/link.ts';
import { type LinkPort, type Network, NetworkError } from './links/network.ts';
import { portClash } from './port-clash.ts';

/** The network's interface to its host. */
export interface NetworkUser {
  handleLink(listener: CmId, link: Link): void;
  handleListenerError(listener: CmId, error: Error): void;
}

/** A port held for an id. */
interface HeldPort {
  readonly port: LinkPort;
  /** The id's option when the port was opened. */
  readonly afOnly: boolean | undefined;
}

export class IdNetwork implements HostNetwork {
  readonly #network: Network;
  readonly #isolated: boolean;
  readonly #user: NetworkUser;
  readonly #ports = new Map<CmId, HeldPort>();
  /** Ids by the port from which they connect or have connected. They keep it until they are destroyed. */
  readonly #dialed = new Map<number, CmId | Set<CmId>>();

  /** `isolated`: the network reaches only this host. */
  constructor(network: Network, user: NetworkUser, isolated = false) {
    this.#network = network;
    this.#isolated = isolated;
    this.#user = user;
  }

  reserve(
    id: CmId,
    address: SocketAddress,
  ): { readonly port: number } | { readonly error: ErrnoCode } {
    const before = this.#ports.get(id);
    // Sockets that do not listen yet may share a port; ids must not.
    const clash = this.clash(id, address);
    if (clash !== undefined) return { error: clash.error };
    return answered(() => {
      if (before === undefined) charge(id.account);
      try {
        const held = this.#hold(id, address);
        this.#ports.set(id, held);
        before?.port.release();
        return { port: held.port.port };
      } catch (error) {
        if (before === undefined) discharge(id.account, undefined);
        throw error;
      }
    });
  }

  clash(
    id: CmId,
    { address, port }: SocketAddress,
    reuseAddress = id.reuseAddress,
  ): PortInUse | undefined {
    // The system chooses the port, so no other id has it.
    if (port === 0) return undefined;
    const wanted = { address, afOnly: id.afOnly, reuseAddress };
    for (const [other, held] of this.#holders(port)) {
      if (other === id || other.portSpace !== id.portSpace) continue;
      const { afOnly, reuseAddress: shares } = other;
      const error = portClash(wanted, { address: held, afOnly, reuseAddress: shares });
      if (error !== undefined) return { error, address: held };
    }
    return undefined;
  }

  /** Ids that have a port, and their addresses. */
  *#holders(wanted: number): Iterable<readonly [CmId, string]> {
    for (const [id, { port }] of this.#ports) {
      // An id bound to a wildcard has a specific address once it has resolved its destination.
      if (port.port === wanted) yield [id, (id.localAddress ?? port).address];
    }
    for (const id of eachOf(this.#dialed.get(wanted))) {
      if (id.localAddress !== undefined) yield [id, id.localAddress.address];
    }
  }

  isTaken(id: CmId): boolean {
    return this.#ports.get(id)?.port.taken === true;
  }

  listen(id: CmId): ErrnoCode | undefined {
    const held = this.#ports.get(id);
    const clash = held && id.reuseAddress ? this.clash(id, held.port, false) : undefined;
    if (clash !== undefined) return clash.error;
    const answer = answered(() => {
      const onLink = (link: Link): void => this.#user.handleLink(id, link);
      const onError = (error: Error): void => this.#user.handleListenerError(id, error);
      const port = this.#ready(id);
      // A listener uses a copy of the socket.
      if (!port.listens) id.account?.take('descriptors');
      try {
        port.listen(onLink, onError);
      } catch (error) {
        if (!port.listens) id.account?.give('descriptors');
        throw error;
      }
      return {};
    });
    return 'error' in answer ? answer.error : undefined;
  }

  release(id: CmId): void {
    this.#forgetDialed(id);
    const held = this.#ports.get(id);
    if (held === undefined) return;
    this.#ports.delete(id);
    discharge(id.account, held.port);
    held.port.release();
  }

  suspend(id: CmId): boolean {
    const held = this.#ports.get(id);
    if (held?.port.listens !== true) return false;
    held.port.suspend();
    return true;
  }

  handOver(from: CmId, to: CmId): void {
    const held = this.#ports.get(from);
    if (held === undefined) return;
    this.#ports.delete(from);
    this.release(to);
    this.#ports.set(to, held);
  }

  sourceAddress(
    destination: string,
    source: string | undefined,
  ): { readonly address: string } | NoRoute {
    const answer = answered(() => {
      const address = this.#network.sourceAddress(destination, source);
      return { address: canonicalAddress(address) ?? address };
    });
    if (!this.#isolated || !('error' in answer) || answer.error !== 'ENETUNREACH') return answer;
    return { ...answer, text: isolatedText(destination) };
  }

  /** Removes the port held for `id`, if any, for the only connection that it makes. */
  take(id: CmId): LinkPort | undefined {
    const held = this.#ports.get(id)?.port;
    if (held !== undefined) discharge(id.account, held);
    this.#ports.delete(id);
    if (held !== undefined) {
      const others = this.#dialed.get(held.port);
      if (others === undefined) this.#dialed.set(held.port, id);
      else if (others instanceof Set) others.add(id);
      else this.#dialed.set(held.port, new Set([others, id]));
    }
    const port = held?.narrow?.(id.localAddress?.address ?? held.address) ?? held;
    if (port?.listens !== true) return port;
    // It was held for a listener.
    port.release();
    const bound = answered(() => this.#hold(id, port));
    return 'error' in bound ? undefined : bound.port;
  }

  #forgetDialed(id: CmId): void {
    const { port = 0 } = id.localAddress ?? {};
    const others = this.#dialed.get(port);
    const last = others instanceof Set ? others.delete(id) && others.size === 0 : others === id;
    if (last) this.#dialed.delete(port);
  }

  #hold({ afOnly, account }: CmId, { address, port }: SocketAddress): HeldPort {
    return { port: this.#network.hold(address, port, afOnly, account), afOnly };
  }

  /**
   * Checks every port, for tests: `mayHold` returns whether an id may hold one. Throws
   * `InvariantError`.
   */
  assertDeepInvariants(mayHold: (id: CmId) => boolean): void {
    for (const id of this.#ports.keys()) assert(mayHold(id), 'port held for a destroyed id');
    for (const [port, ids] of this.#dialed) {
      assert(!(ids instanceof Set) || ids.size > 0, 'no ids for a dialed port');
      for (const id of eachOf(ids)) {
        assert(mayHold(id), 'dialed port of a destroyed id');
        assert(id.localAddress?.port === port, 'id under a wrong port');
      }
    }
    const ports = new Set([...this.#ports.values()].map(({ port }) => port));
    assert(ports.size === this.#ports.size, 'port held for two ids');
  }

  /** The port held for `id`, reopened if its option has changed. */
  #ready(id: CmId): LinkPort {
    const held = this.#ports.get(id);
    if (held === undefined) throw new NetworkError('EINVAL', 'no port is held');
    if (held.afOnly === id.afOnly) return held.port;
    const renewed = this.#hold(id, held.port);
    this.#ports.set(id, renewed);
    held.port.release();
    return renewed.port;
  }
}

/** The ids of a dialed port. Most ports have one: a set would take 200 bytes more. */
function eachOf(ids: CmId | Set<CmId> | undefined): Iterable<CmId> {
  if (ids === undefined) return [];
  return ids instanceof Set ? ids : [ids];
}

/** Charges a port and its socket. Throws `VerbsError`. */
function charge(account: IdAccount | undefined): void {
  account?.take('descriptors');
  try {
    account?.take('ports');
  } catch (error) {
    account?.give('descriptors');
    throw error;
  }
}

/** Returns a port and its sockets: two of a listener. */
function discharge(account: IdAccount | undefined, port: LinkPort | undefined): void {
  account?.give('descriptors', port?.listens === true ? 2 : 1);
  account?.give('ports');
}

function answered<T extends object>(call: () => T): T | { readonly error: ErrnoCode } {
  try {
    return call();
  } catch (error) {
    if (isVerbsError(error)) return { error: error.code };
    if (!(error instanceof NetworkError)) throw error;
    return { error: isErrnoCode(error.code) ? error.code : 'EIO' };
  }
}
