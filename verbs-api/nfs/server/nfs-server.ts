/** An NFS server: one directory over NFS on RDMA, and MOUNT over TCP. */
import type { Provider, SocketAddress } from '#contract/verbs/provider';
import { listenRpc, type RpcServer } from '#verbs-api/rpcrdma/rpc-server';
import { RpcService, type ServiceObserver } from '#verbs-api/rpcrdma/rpc-service';
import { MOUNT3 } from '../nfs3/mount3-program.ts';
import { NFS3 } from '../nfs3/nfs3-program.ts';
import { register } from '../tcp/rpcbind.ts';
import { TcpRpcServer } from '../tcp/tcp-rpc-server.ts';
import { directoryHandlers } from './directory-handlers.ts';
import { fileHandlers } from './file-handlers.ts';
import { mountHandlers } from './mount-handlers.ts';
import { nameHandlers } from './name-handlers.ts';
import { type ExportOptions, ServedExport } from './served-export.ts';

/** How a server listens and what it exports. */
interface NfsServerOptions extends ExportOptions {
  /** Address to listen on, for both. Default: 127.0.0.1. */
  readonly host?: string;
  /** NFS over RDMA port; 0 selects a free one. */
  readonly port: number;
  /** TCP port of MOUNT; 0 selects a free one. */
  readonly mountPort: number;
  /** Socket of the rpcbind to register both with. Default: no registration. */
  readonly rpcbind?: string;
  /** Called when a call fails due to a server fault; for logs. */
  readonly observer?: ServiceObserver;
  /** Called when a client connects or disconnects; for logs. */
  readonly onConnection?: (address: string, state: 'open' | 'closed', text: string) => void;
}

/** The default address: NFS clients are not authenticated. */
const LOOPBACK = '127.0.0.1';

export class NfsServer implements AsyncDisposable {
  readonly served: ServedExport;
  readonly #rdma: RpcServer;
  readonly #mount: TcpRpcServer;
  /** Removes the server's programs from rpcbind. */
  #leave: (() => Promise<void>) | undefined;
  #closing: Promise<void> | undefined;

  private constructor(served: ServedExport, rdma: RpcServer, mount: TcpRpcServer) {
    this.served = served;
    this.#rdma = rdma;
    this.#mount = mount;
  }

  /**
   * Serves `directory`. Rejects with the failed system call for a directory that cannot be entered
   * or a TCP port in use, with `VerbsError` for device errors, and like `register`.
   */
  static async listen(
    provider: Provider,
    directory: string,
    options: NfsServerOptions,
  ): Promise<NfsServer> {
    const served = new ServedExport(directory, options);
    const { host = LOOPBACK, port, mountPort, observer, onConnection } = options;
    const services = nfsServices(served, observer);
    let mount: TcpRpcServer | undefined;
    let server: NfsServer;
    try {
      mount = await TcpRpcServer.listen(services.tcp, host, mountPort);
      const rdma = await listenRpc(provider, services.rdma, {
        host,
        port,
        ...(onConnection === undefined ? {} : { onConnection }),
      });
      server = new NfsServer(served, rdma, mount);
    } catch (error) {
      await mount?.close();
      served.close();
      throw error;
    }
    if (options.rpcbind === undefined) return server;
    try {
      await server.#register(host, options.rpcbind);
      return server;
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  get address(): SocketAddress {
    return this.#rdma.address;
  }

  get mountPort(): number {
    return this.#mount.port;
  }

  /** Ends all connections after pending calls have completed, and closes every file. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #register(address: string, socketPath: string): Promise<void> {
    const { number: program, version } = NFS3;
    const mount = { program: MOUNT3.number, version: MOUNT3.version };
    this.#leave = await register(
      [
        { program, version, transport: 'rdma', address, port: this.address.port },
        { ...mount, transport: 'tcp', address, port: this.mountPort },
      ],
      socketPath,
    );
  }

  async #close(): Promise<void> {
    await this.#leave?.();
    await this.#mount.close();
    await this.#rdma.close();
    this.served.close();
  }
}

interface NfsServices {
  /** NFS and MOUNT, over RDMA. */
  readonly rdma: RpcService;
  // NFSR-8267.5-01
  /** Only MOUNT, over TCP, where clients expect it. */
  readonly tcp: RpcService;
}

export function nfsServices(served: ServedExport, observer?: ServiceObserver): NfsServices {
  const mount = mountHandlers(served);
  const nfs = { ...fileHandlers(served), ...nameHandlers(served), ...directoryHandlers(served) };
  return {
    rdma: new RpcService(observer).register(NFS3, nfs).register(MOUNT3, mount),
    tcp: new RpcService(observer).register(MOUNT3, mount),
  };
}
