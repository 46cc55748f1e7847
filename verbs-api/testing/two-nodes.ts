/** Two nodes with a connection between them: what most tests of RDMA code begin with. */
import { type Connection, connect, type EndpointOptions, listen } from '../connect.ts';
import type { DeviceInfo } from '../contract/attributes.ts';
import { Access } from '../contract/enums.ts';
import type { Context, CQ, MR, PD, Provider, QP } from '../contract/provider.ts';
import { type AsyncEventLog, asyncEventLog } from './async-event-log.ts';
import {
  type PrivateDaemon,
  type PrivateDaemonOptions,
  startPrivateDaemon,
} from './private-daemon.ts';

const DEFAULT_MEMORY_BYTES = 65_536;

/** Options of `startTwoNodes`. */
export interface TwoNodesOptions {
  /**
   * The daemon that has both devices: its first two, each with an address. Default: an own one,
   * started as these options tell and stopped with the nodes.
   */
  readonly daemon?: PrivateDaemon | PrivateDaemonOptions;
  /** Octets of each node's `mr`. Default 65536. */
  readonly memoryBytes?: number;
  /** Rights to it. Default: local write, remote write, remote read, remote atomic. */
  readonly access?: number;
  /** How both ends of the connection are made: queue depths, `prepare` and so on. */
  readonly endpoint?: Omit<EndpointOptions, 'pd' | 'cq' | 'srq'>;
}

/** One end. Everything is closed with the nodes. */
export interface RDMANode {
  /** Name of the device. */
  readonly name: string;
  readonly address: string;
  /** A client of its own, as a program on another machine would be. */
  readonly provider: Provider;
  readonly context: Context;
  readonly pd: PD;
  /** Completions of both queues. */
  readonly cq: CQ;
  readonly qp: QP;
  readonly mr: MR;
  readonly connection: Connection;
  /** Asynchronous events of the context. */
  readonly asyncEvents: AsyncEventLog;
}

/** See the module's comment. */
export class TwoNodes implements AsyncDisposable {
  readonly daemon: PrivateDaemon;
  /** Connected to `right`. */
  readonly left: RDMANode;
  /** Accepted the connection. */
  readonly right: RDMANode;
  readonly #close: () => Promise<void>;

  /** Use `startTwoNodes`. `close` gives back everything. */
  constructor(
    daemon: PrivateDaemon,
    nodes: { readonly left: RDMANode; readonly right: RDMANode },
    close: () => Promise<void>,
  ) {
    this.daemon = daemon;
    this.left = nodes.left;
    this.right = nodes.right;
    this.#close = close;
  }

  /** Disconnects and gives back everything; twice does no harm. */
  close(): Promise<void> {
    return this.#close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

type Prepared = Omit<RDMANode, 'connection' | 'cq' | 'qp'>;

/**
 * Connects a queue pair on the daemon's first device with one on its second, each with memory.
 *
 * Rejects with RangeError when the daemon lacks two devices with addresses, else as
 * `startPrivateDaemon`, `connect` and `listen`. Nothing is left behind then.
 */
export async function startTwoNodes(options: TwoNodesOptions = {}): Promise<TwoNodes> {
  const { daemon: given = {} } = options;
  const isOwn = !('socketPath' in given);
  const daemon = isOwn ? await startPrivateDaemon(given) : given;
  const providers: Provider[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(providers.map((provider) => provider.close()));
    if (isOwn) await daemon.stop();
  };
  const prepare = async (device: DeviceInfo | undefined): Promise<Prepared> => {
    const [address] = device?.addresses ?? [];
    if (device === undefined || address === undefined) {
      throw new RangeError('the daemon needs two devices with an address each');
    }
    const provider = await daemon.connect();
    providers.push(provider);
    return await prepared(provider, device.name, address, options);
  };
  try {
    const left = await prepare(daemon.devices[0]);
    const right = await prepare(daemon.devices[1]);
    return new TwoNodes(daemon, await connected(left, right, options), close);
  } catch (error) {
    await close();
    throw error;
  }
}

async function prepared(
  provider: Provider,
  name: string,
  address: string,
  options: TwoNodesOptions,
): Promise<Prepared> {
  const every = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;
  const { memoryBytes = DEFAULT_MEMORY_BYTES, access = every } = options;
  const context = await provider.open(name);
  const asyncEvents = asyncEventLog(context);
  const pd = await context.allocPD();
  const mr = await pd.allocMR(memoryBytes, access);
  return { name, address, provider, context, pd, mr, asyncEvents };
}

async function connected(
  left: Prepared,
  right: Prepared,
  { endpoint = {} }: TwoNodesOptions,
): Promise<{ readonly left: RDMANode; readonly right: RDMANode }> {
  await using listener = await listen(right.provider, { host: right.address });
  const accept = async (): Promise<Connection> => {
    for await (const request of listener)
      return await request.accept({ ...endpoint, pd: right.pd });
    throw new Error('the listener closed before a request came');
  };
  const accepting = accept();
  // The other end may fail first, and tells why.
  accepting.catch(() => undefined);
  const connection = await connect(left.provider, {
    ...endpoint,
    host: right.address,
    port: listener.address.port,
    source: { address: left.address, port: 0 },
    pd: left.pd,
  });
  return { left: nodeOf(left, connection), right: nodeOf(right, await accepting) };
}

function nodeOf(parts: Prepared, connection: Connection): RDMANode {
  return { ...parts, connection, cq: connection.cq, qp: connection.qp };
}
