/**
 * The connection manager for the owners of ids: commands take effect at once, errors are
 * `VerbsError`s, outcomes arrive as events.
 */
import type { CMParameters } from '../../verbs-api/contract/protocol/commands.ts';
import type { QPState } from '../../verbs-api/contract/verbs/enums.ts';
import { VerbsError } from '../../verbs-api/contract/verbs/errors.ts';
import type { SocketAddress } from '../../verbs-api/contract/verbs/provider.ts';
import type { CmEvent } from '../iwarp/cm/cm-host.ts';
import type { CmId } from '../iwarp/cm/cm-id.ts';
import type { ConnectionManager } from '../iwarp/cm/connection-manager.ts';
import type { QPModification } from '../rnic/qp-attributes.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { Micros } from '../rnic/wire-port.ts';
import { type HostCmEvent, HostId, PortSpace } from './host-id.ts';

/** What the facade uses of its host. */
export interface HostCmUser {
  now(): Micros;
  drain(): void;
  /** Name of the device that created this QP, if it belongs to the host. */
  deviceOf(qp: QP): string | undefined;
}

/** What a program that moves its queue pair itself says of it, to connect or to accept. */
interface ProgramParameters {
  readonly qpn: number;
  readonly srq: boolean;
  /** At most 56 bytes to connect, 196 to accept; for datagrams 180 and 136. EINVAL for more. */
  readonly privateData: Uint8Array;
  readonly responderResources: number;
  readonly initiatorDepth: number;
  readonly flowControl: boolean;
  /** Values above 7 count as 7. */
  readonly retryCount: number;
  readonly rnrRetry: number;
  /** Datagrams, to accept: the queue pair's key; 0 for rdma_cm's own. */
  readonly qkey: number;
}

/**
 * See the module's comment. The errno codes are those of `ConnectionManager`'s methods.
 *
 * On iWARP, and for programs that give their `QP`, the connection manager moves the queue pair.
 * Programs that move it themselves, as on InfiniBand's verbs, use `request`, `qpAttributes`,
 * `answer` and `establish` with its number; EINVAL on an id that is not RoCE's.
 */
export class HostCm {
  readonly #manager: ConnectionManager;
  readonly #user: HostCmUser;
  #nextNumber = 0;

  constructor(manager: ConnectionManager, user: HostCmUser) {
    this.#manager = manager;
    this.#user = user;
  }

  /**
   * A new id. Its events, and the connect requests of its listener, carry `tag`. ENOMEM.
   * `portSpace` is a `PortSpace`; `datagram` is true for ids of UD queue pairs.
   */
  createId(tag: unknown, portSpace: number = PortSpace.tcp, datagram = false): HostId {
    const id = this.#newId(tag, portSpace, datagram);
    id.iwarp = this.#manager.createId(id);
    return id;
  }

  /** Binds to a local address, port 0 for a free one; `id.localAddress` then has the port. */
  bindAddr(id: HostId, address: SocketAddress): void {
    this.#manager.bindAddr(ofIwarp(id), address);
  }

  /** Whether `::` leaves the IPv4 addresses of its port to others (RDMA_OPTION_ID_AFONLY). */
  setAfOnly(id: HostId, afOnly: boolean): void {
    this.#manager.setAfOnly(ofIwarp(id), afOnly);
  }

  /**
   * Determines device and source address. The outcome arrives as an event before this returns. A
   * destination that a RoCE device of this host alone has is RoCE's; else an iWARP device that
   * has the source address comes first.
   */
  resolveAddr(id: HostId, destination: SocketAddress, source: SocketAddress | undefined): void {
    this.#manager.resolveAddr(ofIwarp(id), destination, source);
    this.#user.drain();
  }

  /** For symmetry with rdma_cm; the event follows at once. `id.roce.path` is known then. */
  resolveRoute(id: HostId): void {
    this.#manager.resolveRoute(ofIwarp(id));
    this.#user.drain();
  }

  /** Listens; connect requests arrive as events with new ids. A wildcard hears both wires. */
  listen(id: HostId, backlog: number): void {
    this.#manager.listen(ofIwarp(id), backlog);
  }

  /** Starts to connect; the outcome arrives as an event. EINVAL for a QP of another device. */
  connect(id: HostId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    this.#manager.connect(ofIwarp(id), qp, parameters, this.#user.now());
    this.#user.drain();
  }

  /**
   * Accepts a connect request; 'established' arrives as an event. EINVAL for a QP of another
   * device.
   */
  accept(id: HostId, qp: QP, parameters: CMParameters): void {
    this.#sameDevice(id, qp);
    this.#manager.accept(ofIwarp(id), qp, parameters, this.#user.now());
    this.#user.drain();
  }

  /**
   * Rejects a connect request. `reason` is InfiniBand's: 28, the program's own, by default. A
   * program that moves its queue pair also rejects a connect response by it.
   */
  reject(id: HostId, privateData: Uint8Array, _reason?: number): void {
    this.#manager.reject(ofIwarp(id), privateData, this.#user.now());
    this.#user.drain();
  }

  /**
   * Closes gracefully; 'disconnected' arrives as an event. A program that moves its queue pair
   * itself hears it once its peer has disconnected, too.
   */
  disconnect(id: HostId): void {
    this.#manager.disconnect(ofIwarp(id), this.#user.now());
    this.#user.drain();
  }

  /** Destroys an id in any state; it gets no further events. */
  destroy(id: HostId): void {
    if (id.iwarp !== undefined) this.#manager.destroy(id.iwarp, this.#user.now());
    this.#user.drain();
  }

  // For programs that move their queue pair themselves

  /**
   * Starts to connect queue pair `parameters.qpn`; 'connectResponse' arrives as an event, or for
   * datagrams 'established'.
   */
  request(id: HostId, _parameters: ProgramParameters): void {
    throw notRoce(id);
  }

  /** Accepts a connect request; 'established' arrives as an event, except for datagrams. */
  answer(id: HostId, _parameters: ProgramParameters): void {
    throw notRoce(id);
  }

  /** After a connect response: the queue pair is in RTS. No event follows. */
  establish(id: HostId): void {
    throw notRoce(id);
  }

  /** Data came to the queue pair before the peer said that it is ready (RDMA_USER_CM_CMD_NOTIFY). */
  noteCommunication(id: HostId): void {
    throw notRoce(id);
  }

  /**
   * How the id's queue pair enters `state` (RDMA_USER_CM_CMD_INIT_QP_ATTR). Before the path is
   * known every state is answered like INIT.
   */
  qpAttributes(id: HostId, _state: QPState): QPModification {
    throw notRoce(id);
  }

  // For the host

  /** The event of an id of iWARP's manager, as its owner gets it. */
  eventOf(event: CmEvent): HostCmEvent | undefined {
    const { tag } = event.id;
    if (!(tag instanceof HostId)) return undefined;
    if (event.listener === undefined) return { ...event, id: tag, listener: undefined };
    const id = this.#newId(tag.tag, tag.portSpace, tag.datagram);
    id.iwarp = event.id;
    event.id.tag = id;
    return { ...event, id, listener: tag };
  }

  #newId(tag: unknown, portSpace: number, datagram: boolean): HostId {
    return new HostId(this.#nextNumber++, tag, portSpace, datagram);
  }

  #sameDevice(id: HostId, qp: QP): void {
    if (id.device !== undefined && this.#user.deviceOf(qp) !== id.device) {
      throw new VerbsError(
        'EINVAL',
        `the queue pair belongs to another device than the id, which uses ${id.device}`,
      );
    }
  }
}

function ofIwarp({ iwarp }: HostId): CmId {
  if (iwarp === undefined) throw new VerbsError('EINVAL', 'the id is not of an iWARP device');
  return iwarp;
}

function notRoce({ device }: HostId): VerbsError {
  return new VerbsError('EINVAL', `${device ?? 'the id'} is not a RoCE device`);
}
