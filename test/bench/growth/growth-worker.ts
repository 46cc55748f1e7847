/**
 * A worker of `npm run bench -- growth`: many clients and connections, active or passive. Clients
 * share a process so that the growth measured is the daemon's, not Node's.
 */
import { performance } from 'node:perf_hooks';
import {
  Access,
  CMEventType,
  SendFlag,
  WC_STATUS_TEXT,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { ConnectionId, CQ, MR, PD, Provider, QP } from '#contract/verbs/provider';
import type { SendWR } from '#contract/verbs/work-request';
import { serveCalls } from '#daemon/bench/channel';
import { connectDaemon } from '#verbs-api/index';

/** Where a passive client listens, and its memory. */
export interface GrowthTarget {
  readonly address: string;
  readonly port: number;
  readonly remoteAddr: bigint;
  readonly rkey: number;
}

/** Options of a client. */
interface ClientOptions {
  readonly socketPath: string;
  /** Source and target of writes. */
  readonly regionBytes: number;
  /** Connections that a client will have. */
  readonly connections: number;
}

/** A connection and its remaining load. */
interface Connection {
  readonly qp: QP;
  readonly target: GrowthTarget;
  requests: readonly SendWR[];
  batchesLeft: number;
  batchesPosted: number;
}

interface Client {
  readonly provider: Provider;
  readonly pd: PD;
  readonly cq: CQ;
  readonly region: MR;
  readonly ids: ConnectionId[];
  readonly connections: Connection[];
  listener: ConnectionId | undefined;
}

/** Batches in flight on a connection: while one completes, the next is sent. */
const BATCHES_AHEAD = 2;
const BATCH_MAX = 16;
const CONNECTING_MAX = 50;
const POLL_MAX = 256;

const clients: Client[] = [];

const methods = {
  /** Opens clients until there are `count`; returns the seconds taken. */
  async openClients(argument: ClientOptions & { count: number }): Promise<number> {
    const start = performance.now();
    while (clients.length < argument.count) clients.push(await openClient(argument));
    return (performance.now() - start) / 1000;
  },

  /** Makes a client listen on a free port. */
  async listen({ client, address }: { client: number; address: string }): Promise<GrowthTarget> {
    const { provider, region } = clientAt(client);
    const listener = await provider.createId();
    clientAt(client).listener = listener;
    await listener.bindAddr({ address, port: 0 });
    await listener.listen(1024);
    const port = listener.localAddress?.port ?? 0;
    return { address, port, remoteAddr: region.address, rkey: region.rkey };
  },

  /** Accepts `count` connections of a client. */
  async accept({ client, count }: { client: number; count: number }): Promise<void> {
    const { listener, ids, cq, pd } = clientAt(client);
    if (listener === undefined) throw new Error(`client ${client} does not listen`);
    const accepted: Promise<void>[] = [];
    while (accepted.length < count) {
      const event = await listener.nextEvent();
      if (event.type !== CMEventType.connectRequest) continue;
      const { id } = event;
      ids.push(id);
      accepted.push(acceptOne(id, pd, cq));
    }
    await Promise.all(accepted);
  },

  /** Makes `count` connections of a client to a target; returns the seconds taken. */
  async connect(argument: {
    client: number;
    target: GrowthTarget;
    count: number;
  }): Promise<number> {
    const start = performance.now();
    let left = argument.count;
    const width = Math.min(left, CONNECTING_MAX);
    await Promise.all(
      Array.from({ length: width }, async () => {
        while (left > 0) {
          left -= 1;
          await connectOne(clientAt(argument.client), argument.target);
        }
      }),
    );
    return (performance.now() - start) / 1000;
  },

  /** Writes on all connections at once; returns the seconds until the targets have everything. */
  async write(load: { sizeBytes: number; batch: number; batches: number }): Promise<number> {
    const start = performance.now();
    await Promise.all(clients.map((client) => drive(client, load)));
    return (performance.now() - start) / 1000;
  },
};

/** Methods of this worker, for the type of its calls. */
export type GrowthMethods = typeof methods;

function clientAt(index: number): Client {
  const client = clients[index];
  if (client === undefined) throw new Error(`there is no client ${index}`);
  return client;
}

async function openClient(options: ClientOptions): Promise<Client> {
  const { socketPath, regionBytes, connections } = options;
  const provider = await connectDaemon({ socketPath });
  const context = await provider.open();
  const pd = await context.allocPD();
  return {
    provider,
    pd,
    cq: await context.createCQ({ cqe: connections * BATCHES_AHEAD + 64 }),
    region: await pd.allocMR(
      regionBytes,
      Access.localWrite | Access.remoteWrite | Access.remoteRead,
    ),
    ids: [],
    connections: [],
    listener: undefined,
  };
}

async function createQP(id: ConnectionId, pd: PD, cq: CQ): Promise<QP> {
  const maxSendWr = BATCH_MAX * BATCHES_AHEAD + 1;
  return await id.createQP(pd, { sendCQ: cq, recvCQ: cq, maxSendWr, maxRecvWr: 1 });
}

async function acceptOne(id: ConnectionId, pd: PD, cq: CQ): Promise<void> {
  await createQP(id, pd, cq);
  await id.accept({});
}

async function connectOne(client: Client, target: GrowthTarget): Promise<void> {
  const id = await client.provider.createId();
  client.ids.push(id);
  await id.resolveAddr({ address: target.address, port: target.port });
  const qp = await createQP(id, client.pd, client.cq);
  await id.connect({});
  client.connections.push({ qp, target, requests: [], batchesLeft: 0, batchesPosted: 0 });
}

/** Posts batches on all connections, and at the end of each a read, which proves their arrival. */
async function drive(
  client: Client,
  load: { sizeBytes: number; batch: number; batches: number },
): Promise<void> {
  const { region, cq, connections } = client;
  if (load.batch > BATCH_MAX) throw new RangeError(`a batch has at most ${BATCH_MAX} writes`);
  for (const [index, connection] of connections.entries()) {
    const { remoteAddr, rkey } = connection.target;
    const sgList = [region.sge(0, load.sizeBytes)];
    const write = { wrId: index, opcode: WROpcode.rdmaWrite, sgList, remoteAddr, rkey };
    connection.requests = Array.from({ length: load.batch }, (_, place) => ({
      ...write,
      flags: place === load.batch - 1 ? SendFlag.signaled : 0,
    }));
    connection.batchesPosted = Math.min(BATCHES_AHEAD, load.batches);
    connection.batchesLeft = load.batches - connection.batchesPosted;
    for (let posted = 0; posted < connection.batchesPosted; posted++) {
      connection.qp.postSend(connection.requests);
    }
  }
  let open = connections.length;
  while (open > 0) {
    let completions = cq.poll(POLL_MAX);
    if (completions.length === 0) completions = await cq.wait({ max: POLL_MAX });
    for (const { status, wrId, opcode } of completions) {
      if (status !== WCStatus.success) {
        throw new Error(`a work request failed: ${WC_STATUS_TEXT[status]}`);
      }
      const connection = connections[Number(wrId)];
      if (connection === undefined) throw new Error(`completion of an unknown request ${wrId}`);
      if (opcode === WCOpcode.rdmaRead) open -= 1;
      else resume(connection, region, Number(wrId));
    }
  }
}

/** After a batch has completed, posts the next one or, after the last, the final read. */
function resume(connection: Connection, region: MR, index: number): void {
  if (connection.batchesLeft > 0) {
    connection.batchesLeft -= 1;
    connection.qp.postSend(connection.requests);
    return;
  }
  connection.batchesPosted -= 1;
  if (connection.batchesPosted > 0) return;
  const { remoteAddr, rkey } = connection.target;
  connection.qp.postSend({
    wrId: index,
    opcode: WROpcode.rdmaRead,
    sgList: [region.sge(0, 1)],
    remoteAddr,
    rkey,
    flags: SendFlag.signaled,
  });
}

serveCalls(methods);
