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

/** See the module's comment. */
export class TcpHostNetwork implements HostNetwork {
  readonly environment: LinkEnvironment;
  readonly #user: NetworkUser;
  readonly #ports = new Map<CmId, TcpPort>();

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
      const port = new TcpPort(address.address, address.port);
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
    this.#ports.get(id)?.release();
    this.#ports.delete(id);
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
    return port;
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
