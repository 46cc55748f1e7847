/** Serves an `RpcService` over RDMA. */
import type { SocketAddress } from '../contract/provider.ts';

/** A listening server. */
export interface RpcServer extends AsyncDisposable {
  /** Where it listens, the port included. */
  readonly address: SocketAddress;
  /** Connections open now. */
  readonly connectionCount: number;
  /** Stops to listen and ends all connections, once the handlers that run have ended. */
  close(): Promise<void>;
}
