/**
 * The connection manager for the owners of ids: commands take effect at once, errors are
 * `VerbsError`s, outcomes arrive as events.
 */
import type { CMParameters } from '../../verbs-api/contract/protocol/commands.ts';
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/verbs/provider.ts';
import type { CmId } from '../iwarp/cm/cm-id.ts';
import type { ConnectionManager } from '../iwarp/cm/connection-manager.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { Micros } from '../rnic/wire-port.ts';

/** What the facade uses of its host. */
export interface HostCmUser {
  now(): Micros;
  drain(): void;
  /** Name of the device that created this QP, if it belongs to the host. */
  deviceOf(qp: QP): string | undefined;
}

/** See the module's comment. The errno codes are those of `ConnectionManager`'s methods. */
export class HostCm {
  readonly #manager: ConnectionManager;
  readonly #user: HostCmUser;

  constructor(manager: ConnectionManager, user: HostCmUser) {
    this.#manager = manager;
    this.#user = user;
  }

  /** A new id. Its events, and the connect requests of its listener, carry `tag`. ENOMEM. */
  createId(tag: unknown): CmId {
    return this.#manager.createId(tag);
  }

  /** Binds to a local address, port 0 for a free one; `id.localAddress` then has the port. */
  bindAddr(id: CmId, address: SocketAddress): void {
    this.#manager.bindAddr(id, address);
  }

  /** Whether `::` leaves the IPv4 addresses of its port to others (RDMA_OPTION_ID_AFONLY). */
  setAfOnly(id: CmId, afOnly: boolean): void {
    this.#manager.setAfOnly(id, afOnly);
  }

  /** Determines device and source address. The outcome arrives as an event before this returns. */
  resolveAddr(id: CmId, destination: SocketAddress, source: SocketAddress | undefined): void {
    this.#manager.resolveAddr(id, destination, source);
    this.#user.drain();
  }

  /** For symmetry with rdma_cm; the event follows at once. */
  resolveRoute(id: CmId): void {
    this.#manager.resolveRoute(id);
    this.#user.drain();
  }

  /** Listens; connect requests arrive as events with new ids. */
  listen(id: CmId, backlog: number): void {
    this.#manager.listen(id, backlog);
  }

  /** Starts to connect; the outcome arrives as an event. EINVAL for a QP of another device. */
  connect(id: CmId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    this.#manager.connect(id, qp, parameters, this.#user.now());
    this.#user.drain();
  }

  /**
   * Accepts a connect request; 'established' arrives as an event. EINVAL for a QP of another
   * device.
   */
  accept(id: CmId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    this.#manager.accept(id, qp, parameters, this.#user.now());
    this.#user.drain();
  }

  /** Rejects a connect request. */
  reject(id: CmId, privateData: Uint8Array): void {
    this.#manager.reject(id, privateData, this.#user.now());
    this.#user.drain();
  }

  /** Closes gracefully; 'disconnected' arrives as an event. */
  disconnect(id: CmId): void {
    this.#manager.disconnect(id, this.#user.now());
    this.#user.drain();
  }

  /** Destroys an id in any state; it gets no further events. */
  destroy(id: CmId): void {
    this.#manager.destroy(id, this.#user.now());
    this.#user.drain();
  }

  #sameDevice(id: CmId, qp: QP): void {
    if (id.device !== undefined && this.#user.deviceOf(qp) !== id.device) {
      throw new VerbsError(
        'EINVAL',
        `the queue pair belongs to another device than the id, which uses ${id.device}`,
      );
    }
  }
}
