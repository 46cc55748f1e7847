/** The RoCE part of a connection id: addresses, path and connection. */
import { IdLifecycle } from '#contract/verbs/id-lifecycle';
import type { SocketAddress } from '#contract/verbs/provider';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import type { CmListener } from '#daemon/roce/cm/cm-listener';
import type { CmPath } from '#daemon/roce/cm/cm-path';
import type { RocePort } from './roce-port.ts';

/** Only `HostCm` changes it. */
export class RoceId extends IdLifecycle {
  /** The device's port, once an address has determined it. */
  port: RocePort | undefined;
  localAddress: SocketAddress | undefined;
  peerAddress: SocketAddress | undefined;
  /**
   * The path record, from the resolved address on, and on the id of a request. On a datagram's id, after
   * 'established', its address vector leads to the service.
   */
  path: CmPath | undefined;
  listener: CmListener | undefined;
  /** From connect, or from the request, on. */
  connection: CmConnection | undefined;
  /** Set if the host moves the queue pair instead of its program. */
  qp: QP | undefined;
  /** True for the id of a connect request. */
  passive = false;
  /** The owner was notified that the connection is established. */
  established = false;
  /** The owner was notified that the connection has ended. */
  endReported = false;

  /** Name of the device, once an address has determined it. */
  get device(): string | undefined {
    return this.port?.name;
  }
}
