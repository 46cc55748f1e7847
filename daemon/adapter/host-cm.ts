/**
 * The connection manager as the owners of ids use it: commands take effect at once, refusals are
 * `VerbsError`s, outcomes come as events.
 */
import type { CMParameters } from '../../verbs-api/contract/commands.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/provider.ts';
import type { CmId } from '../cm/cm-id.ts';
import type { ConnectionManager } from '../cm/connection-manager.ts';
import type { Micros } from '../engine/stream-api.ts';
import type { QP } from '../rnic/queue-pair.ts';

/** What the facade needs of its host. */
export interface HostCmUser {
  now(): Micros;
  drain(): void;
  /** Name of the device that made this QP, if one of the host's did. */
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

  /**
   * Decides device and source address. The outcome comes as an event; a failure is thrown too, with
   * the id back where it was.
   */
  resolveAddr(id: CmId, destination: SocketAddress, source: SocketAddress | undefined): void {
    const error = this.#manager.resolveAddr(id, destination, source);
    this.#user.drain();
    if (error !== undefined) throw new VerbsError(error, `no way to ${destination.address}`);
  }

  /** For symmetry with rdma_cm; the event follows at once. */
  resolveRoute(id: CmId): void {
    this.#manager.resolveRoute(id);
    this.#user.drain();
  }

  /** Listens; connect requests come as events with new ids. */
  listen(id: CmId, backlog: number): void {
    this.#manager.listen(id, backlog);
  }

  /** Starts to connect; the outcome comes as an event. EINVAL for a QP of another device. */
  connect(id: CmId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    this.#manager.connect(id, qp, parameters, this.#user.now());
    this.#user.drain();
  }

  /** Accepts a connect request; 'established' comes as an event. EINVAL for a QP of another device. */
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

  /** Closes gracefully; 'disconnected' comes as an event. */
  disconnect(id: CmId): void {
    this.#manager.disconnect(id, this.#user.now());
    this.#user.drain();
  }

  /** Destroys an id in any state; no event of it follows. */
  destroy(id: CmId): void {
    this.#manager.destroy(id, this.#user.now());
    this.#user.drain();
  }

  #sameDevice(id: CmId, qp: QP): void {
    if (id.device !== undefined && this.#user.deviceOf(qp) !== id.device) {
      throw new VerbsError('EINVAL', `the queue pair is not of device ${id.device}`);
    }
  }
}
