/** Two connected nodes: the starting point of most tests of RDMA code. */
import {
  either,
  OBJECT,
  objectWith,
  optional,
  options as optionsOf,
  takes,
  UINT32,
  wholeNumber,
} from '#contract/verbs/arguments';
import type { DeviceInfo } from '#contract/verbs/attributes';
import { Access } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type { Context, CQ, MR, PD, Provider, QP } from '#contract/verbs/provider';
import { connect, type EndpointOptions, listen } from '../connect.ts';
import type { Connection } from '../connection.ts';
import { type AsyncEventLog, asyncEventLog } from './async-event-log.ts';
import {
  DAEMON,
  type PrivateDaemon,
  type PrivateDaemonOptions,
  startPrivateDaemon,
} from './private-daemon.ts';

const DEFAULT_MEMORY_BYTES = 65_536;

/** Options of `startTwoNodes`. */
export interface TwoNodesOptions {
  /**
   * The daemon whose first two iWARP devices are used; each must have an address. Default: a private one,
   * started with these options and stopped with the nodes.
   */
  readonly daemon?: PrivateDaemon | PrivateDaemonOptions | undefined;
  /** Bytes of each node's `mr`. Default 65536. */
  readonly memoryBytes?: number | undefined;
  /** Rights to it. Default: local write, remote write, remote read, remote atomic. */
  readonly access?: number | undefined;
  /** Options of both ends of the connection: queue depths, `prepare` and so on. */
  readonly endpoint?: Omit<EndpointOptions, 'pd' | 'cq' | 'srq'> | undefined;
}

/** One end. Closed with the nodes. */
export interface RDMANode {
  /** Name of the device. */
  readonly name: string;
  /** Address of the device. */
  readonly address: string;
  /** Its own client, like a program on another machine. */
  readonly provider: Provider;
  /** The device, opened. */
  readonly context: Context;
  /** The protection domain of all its objects. */
  readonly pd: PD;
  /** Queue for the completions of both queues. */
  readonly cq: CQ;
  /** The connected queue pair. */
  readonly qp: QP;
  /** Memory that both ends may access; see `TwoNodesOptions`. */
  readonly mr: MR;
  /** Its end of the connection. */
  readonly connection: Connection;
  /** Asynchronous events of the context. */
  readonly asyncEvents: AsyncEventLog;
}

/** Two connected nodes on one daemon. */
export class TwoNodes implements AsyncDisposable {
  /** The daemon whose devices are connected. */
  readonly daemon: PrivateDaemon;
  /** Connected to `right`. */
  readonly left: RDMANode;
  /** The end that accepted the connection. */
  readonly right: RDMANode;
  readonly #close: () => Promise<void>;

  /** Use `startTwoNodes`. `close` releases everything. */
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

  /** Disconnects and releases everything; a second call does nothing. */
  close(): Promise<void> {
    return this.#close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

type Prepared = Omit<RDMANode, 'connection' | 'cq' | 'qp'>;

const check = takes('startTwoNodes', {
  options: optional(
    optionsOf<TwoNodesOptions>({
      daemon: optional(either(objectWith('a PrivateDaemon', 'waitForCounter'), DAEMON)),
      memoryBytes: optional(wholeNumber(1)),
      access: optional(UINT32),
      // `connect` and `accept` check its fields.
      endpoint: optional(OBJECT),
    }),
  ),
});

/**
 * Connects a queue pair on the daemon's first iWARP device with one on its second, each with memory.
 *
 * Rejects with EINVAL if the daemon does not have two such devices with addresses, otherwise as
 * `startPrivateDaemon`, `connect` and `listen`. Leaves nothing behind on failure.
 */
export async function startTwoNodes(options: TwoNodesOptions = {}): Promise<TwoNodes> {
  check(options);
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
      throw invalid('the daemon needs two iWARP devices with an address each');
    }
    const provider = await daemon.connect();
    providers.push(provider);
    return await prepared(provider, device.name, address, options);
  };
  try {
    // Only these have connection ids.
    const devices = daemon.devices.filter(({ transport }) => transport !== 'roce');
    const left = await prepare(devices[0]);
    const right = await prepare(devices[1]);
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
  const accepting = listener.accept({ ...endpoint, pd: right.pd });
  // The other end may fail first; its error has the reason.
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
