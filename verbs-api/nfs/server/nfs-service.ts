/** The programs of an NFS server, as RPC services for its two transports. */
import { RpcService, type ServiceObserver } from '#verbs-api/rpcrdma/rpc-service';
import { MOUNT3 } from '../nfs3/mount3-program.ts';
import { NFS3 } from '../nfs3/nfs3-program.ts';
import { directoryHandlers } from './directory-handlers.ts';
import { fileHandlers } from './file-handlers.ts';
import { mountHandlers } from './mount-handlers.ts';
import { nameHandlers } from './name-handlers.ts';
import type { ServedExport } from './served-export.ts';

/** The services of one export. */
interface NfsServices {
  /** NFS and MOUNT, over RDMA. */
  readonly rdma: RpcService;
  // NFSR-8267.5-01
  /** MOUNT alone, over TCP, where clients expect it. */
  readonly tcp: RpcService;
}

/** Creates the services of an export. */
export function nfsServices(served: ServedExport, observer?: ServiceObserver): NfsServices {
  const mount = mountHandlers(served);
  const nfs = { ...fileHandlers(served), ...nameHandlers(served), ...directoryHandlers(served) };
  return {
    rdma: new RpcService(observer).register(NFS3, nfs).register(MOUNT3, mount),
    tcp: new RpcService(observer).register(MOUNT3, mount),
  };
}
