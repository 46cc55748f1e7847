/** What RoCE has of a connection id: addresses, path and connection. */
import type { SocketAddress } from '../../../verbs-api/contract/verbs/provider.ts';
import type { CmConnection } from '../../roce/cm/cm-connection.ts';
import type { CmPath } from '../../roce/cm/cm-path.ts';
import type { HostIdState } from '../host-id-state.ts';

/** See the module's comment. `HostCm` alone changes it. */
export class RoceId {
  state: HostIdState = 'idle';
  /** Name of the device, once an address has decided it. */
  device: string | undefined;
  localAddress: SocketAddress | undefined;
  peerAddress: SocketAddress | undefined;
  /**
   * From the resolved address on, and on the id of a request: what a path record says. On a
   * datagram's id, after 'established', its address vector leads to the service.
   */
  path: CmPath | undefined;
  /** From connect, or from the request, on. */
  connection: CmConnection | undefined;
  /** True for the id of a connect request. */
  passive = false;
}
