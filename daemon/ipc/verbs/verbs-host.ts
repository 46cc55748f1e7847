/**
 * What the verbs of a client need of the host of the devices. `RnicHost` of daemon/adapter is it;
 * this is the part that this folder uses.
 */
import type {
  DeviceAttributes,
  DeviceInfo,
  PortAttributes,
} from '../../../verbs-api/contract/attributes.ts';
import type { CMParameters } from '../../../verbs-api/contract/commands.ts';
import type { AsyncEventType } from '../../../verbs-api/contract/enums.ts';
import type { SocketAddress } from '../../../verbs-api/contract/provider.ts';
import type { CmId } from '../../cm/cm-id.ts';
import type { CmEvent } from '../../cm/cm-types.ts';
import type { CQ } from '../../rnic/completion-queue.ts';
import type { Nic } from '../../rnic/nic.ts';
import type { QP } from '../../rnic/queue-pair.ts';
import type { SRQ } from '../../rnic/shared-receive-queue.ts';

/** A device of the host. */
export interface VerbsDevice {
  readonly name: string;
  readonly info: DeviceInfo;
  readonly nic: Nic;
  attributes(): DeviceAttributes;
  port(): PortAttributes;
}

/** The connection manager's commands. All throw `VerbsError`. */
export interface VerbsConnections {
  createId(tag: unknown): CmId;
  bindAddr(id: CmId, address: SocketAddress): void;
  /** Throws, or rejects, when no device reaches the destination. */
  resolveAddr(
    id: CmId,
    destination: SocketAddress,
    source: SocketAddress | undefined,
  ): void | Promise<void>;
  resolveRoute(id: CmId): void;
  listen(id: CmId, backlog: number): void;
  connect(id: CmId, qp: QP, parameters: CMParameters): void;
  accept(id: CmId, qp: QP, parameters: CMParameters): void;
  reject(id: CmId, privateData: Uint8Array): void;
  disconnect(id: CmId): void;
  destroy(id: CmId): void;
}

/** An asynchronous event of a device. */
export interface VerbsAsyncEvent {
  readonly event: AsyncEventType;
  /** undefined for events of the device or its port. */
  readonly element: QP | CQ | SRQ | undefined;
  readonly text: string;
}

/** The host of the devices. */
export interface VerbsHost {
  readonly devices: readonly VerbsDevice[];
  readonly cm: VerbsConnections;
  /** Set once, by whoever routes events to clients. */
  onCompletion: (cq: CQ) => void;
  // A method, since the host's own callback is told more of the device than this interface has.
  onAsync(device: VerbsDevice, event: VerbsAsyncEvent): void;
  onCmEvent: (id: CmId, event: CmEvent) => void;
  /** The QP's send queue has new elements. */
  doorbell(qp: QP): void;
  /** Carries out what calls into a NIC left to do. */
  drain(): void;
  /** Microseconds that never run backwards. */
  now(): number;
}
