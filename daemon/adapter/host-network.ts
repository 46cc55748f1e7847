/** The host's TCP as the connection manager asks for it: ports held for ids, and routes. */
import { type ErrnoCode, isErrnoCode } from '../../verbs-api/contract/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import { canonicalAddress } from '../cm/address.ts';
import type { CmId } from '../cm/cm-id.ts';
import type { HostNetwork } from '../cm/cm-types.ts';
import type { LinkEnvironment, TcpLink } from '../transport/tcp-link.ts';
import { sourceAddress, TcpPort, TransportError } from '../transport/tcp-port.ts';

/** What a network needs of its host. */
export interface NetworkUser {
  handleLink(listener: CmId, link: TcpLink): void;
  handleListenerError(listener: CmId, error: Error): void;
}

/**
 * How long a port stays held after a listening id whose `portKeeper` may listen again, in
 * milliseconds. A program that serves connections one by one, as perftest's servers do, destroys its
 * listening id after the first and makes another for the second; its client, which is told in the
 * meantime, can be faster where the commands of the two take a daemon's time.
 */
export const PORT_KEPT_MS = 500;

/** A port without a listening id; its connections wait in the kernel. */
interface KeptPort {
  readonly port: TcpPort;
  readonly keeper: object;
  readonly timer: NodeJS.Timeout;
}

/** See the module's comment. */
export class TcpHostNetwork implements HostNetwork {
  readonly environment: LinkEnvironment;
  readonly #user: NetworkUser;
  readonly #ports = new Map<CmId, TcpPort>();
  readonly #kept = new Set<KeptPort>();

  constructor(environment: LinkEnvironment, user: NetworkUser) {
    this.environment = environment;
    this.#user = user;
  }

  reserve(
    id: CmId,
    address: SocketAddress,
  ): { readonly port: number } | { readonly error: ErrnoCode } {
    // Sockets that do not listen yet may share a port; ids must not.
    for (const held of this.#ports.values()) {
      if (held.port === address.port && held.address === address.address) {
        return { error: 'EADDRINUSE' };
      }
    }
    return answered(() => {
      const port = this.#takeKept(id, address) ?? new TcpPort(address.address, address.port);
      this.#ports.set(id, port);
      return { port: port.port };
    });
  }

  listen(id: CmId): ErrnoCode | undefined {
    const answer = answered(() => {
      const onLink = (link: TcpLink): void => this.#user.handleLink(id, link);
      const onError = (error: Error): void => this.#user.handleListenerError(id, error);
      this.#held(id).listen(this.environment, onLink, onError);
      return {};
    });
    return 'error' in answer ? answer.error : undefined;
  }

  release(id: CmId): void {
    const port = this.#ports.get(id);
    this.#ports.delete(id);
    const keeper = id.portKeeper;
    if (port?.listens === true && keeper !== undefined) this.#keep(port, keeper);
    else port?.release();
  }

  /** Gives up the ports that are kept for `keeper`, or all. */
  releaseKept(keeper?: object): void {
    for (const kept of this.#kept) {
      if (keeper === undefined || kept.keeper === keeper) this.#giveUp(kept);
    }
  }

  sourceAddress(
    destination: string,
    source: string | undefined,
  ): { readonly address: string } | { readonly error: ErrnoCode } {
    return answered(() => {
      const address = sourceAddress(destination, source);
      return { address: canonicalAddress(address) ?? address };
    });
  }

  /** The port held for `id`, if any, for the one connection that it makes. */
  take(id: CmId): TcpPort | undefined {
    const port = this.#ports.get(id);
    this.#ports.delete(id);
    if (port?.listens !== true) return port;
    // It was kept for a listener.
    port.release();
    const bound = answered(() => ({ port: new TcpPort(port.address, port.port) }));
    return 'error' in bound ? undefined : bound.port;
  }

  #keep(port: TcpPort, keeper: object): void {
    port.suspend();
    const timer = setTimeout(() => this.#giveUp(kept), PORT_KEPT_MS);
    timer.unref();
    const kept: KeptPort = { port, keeper, timer };
    this.#kept.add(kept);
  }

  /** The port kept at `address` for the same owner. Others that are in its way are given up. */
  #takeKept(id: CmId, address: SocketAddress): TcpPort | undefined {
    for (const kept of this.#kept) {
      if (kept.port.port !== address.port) continue;
      if (kept.port.address !== address.address || kept.keeper !== id.portKeeper) {
        this.#giveUp(kept);
        continue;
      }
      clearTimeout(kept.timer);
      this.#kept.delete(kept);
      return kept.port;
    }
    return undefined;
  }

  #giveUp(kept: KeptPort): void {
    clearTimeout(kept.timer);
    this.#kept.delete(kept);
    kept.port.release();
  }

  #held(id: CmId): TcpPort {
    const port = this.#ports.get(id);
    if (port === undefined) throw new TransportError('EINVAL', 'no port is held');
    return port;
  }
}

function answered<T extends object>(call: () => T): T | { readonly error: ErrnoCode } {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof TransportError)) throw error;
    return { error: isErrnoCode(error.code) ? error.code : 'EIO' };
  }
}
