/** An NFS server: one directory, NFS over RDMA, and MOUNT over TCP beside it. */
import type { Provider, SocketAddress } from '../../verbs-api/contract/provider.ts';
import { MOUNT3 } from '../../verbs-api/rpcrdma/nfs3/mount3-program.ts';
import { NFS3 } from '../../verbs-api/rpcrdma/nfs3/nfs3-program.ts';
import { listenRpc, type RpcServer } from '../../verbs-api/rpcrdma/rpc-server.ts';
import type { ServiceObserver } from '../../verbs-api/rpcrdma/rpc-service.ts';
import { nfsServices } from './nfs-service.ts';
import { register } from './rpcbind.ts';
import { type ExportOptions, ServedExport } from './served-export.ts';
import { TcpRpcServer } from './tcp-rpc-server.ts';

/** How a server listens, and what it serves. */
export interface NfsServerOptions extends ExportOptions {
  /** Address to listen at, for both. Default: every IPv4 address. */
  readonly host?: string;
  /** Port of NFS over RDMA; 0 picks a free one. */
  readonly port: number;
  /** TCP port of MOUNT; 0 picks a free one. */
  readonly mountPort: number;
  /** Socket of the rpcbind that is told where both listen. Default: nobody is told. */
  readonly rpcbind?: string;
  /** Told of calls that a fault of the server ended; for logs. */
  readonly observer?: ServiceObserver;
  /** Told of clients that came and went; for logs. */
  readonly onConnection?: (address: string, state: 'open' | 'closed', text: string) => void;
}

const ANY_ADDRESS = '0.0.0.0';

/** A server that listens. */
export class NfsServer implements AsyncDisposable {
  readonly served: ServedExport;
  readonly #rdma: RpcServer;
  readonly #mount: TcpRpcServer;
  /** Takes the server's programs out of rpcbind. */
  #leave: (() => Promise<void>) | undefined;
  #closing: Promise<void> | undefined;

  private constructor(served: ServedExport, rdma: RpcServer, mount: TcpRpcServer) {
    this.served = served;
    this.#rdma = rdma;
    this.#mount = mount;
  }

  /**
   * Serves `directory`. Rejects with the failed system call for a directory that cannot be entered
   * or a TCP port that is taken, with `VerbsError` for what the device refuses, and as `register`
   * does.
   */
  static async listen(
    provider: Provider,
    directory: string,
    options: NfsServerOptions,
  ): Promise<NfsServer> {
    const served = new ServedExport(directory, options);
    const { host = ANY_ADDRESS, port, mountPort, observer, onConnection } = options;
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

  /** Where NFS listens. */
  get address(): SocketAddress {
    return this.#rdma.address;
  }

  /** Where MOUNT listens, on TCP. */
  get mountPort(): number {
    return this.#mount.port;
  }

  /** Ends all connections, once the calls under way have ended, and closes every file. */
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
