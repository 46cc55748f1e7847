/** One end of RPC over RDMA, in a separate process, run as a worker of the bench. */
import { performance } from 'node:perf_hooks';
import type { Provider } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/index';
import {
  connectRpc,
  defineProcedure,
  defineProgram,
  listenRpc,
  type RpcClient,
  RpcService,
  voidCodec,
  type XdrCodec,
} from '#verbs-api/rpcrdma/index';
import { serveCalls } from './channel.ts';
import type { Meeting } from './verbs-worker.ts';

const BULK_MAX_BYTES = 1 << 20;

const countCodec: XdrCodec<number> = {
  encode: (writer, count) => writer.uint32(count),
  decode: (reader) => reader.uint32(),
};
const bulkCodec: XdrCodec<Uint8Array> = {
  encode: (writer, bytes) => writer.bulk(bytes),
  decode: (reader) => reader.bulk(BULK_MAX_BYTES),
};

/** A null procedure, and bulk transfers in either direction. */
const BENCH = defineProgram({
  name: 'bench',
  number: 0x2000_0b00,
  version: 1,
  procedures: {
    NULL: defineProcedure({
      number: 0,
      args: voidCodec,
      result: voidCodec,
      resultMaxBytes: () => 0,
    }),
    FETCH: defineProcedure({
      number: 1,
      args: countCodec,
      result: bulkCodec,
      resultMaxBytes: () => 4,
      writeChunks: (count: number) => [count],
    }),
    STORE: defineProcedure({
      number: 2,
      args: bulkCodec,
      result: countCodec,
      resultMaxBytes: () => 4,
      readChunksMax: 1,
    }),
  },
});

/** Number of calls, how many of them at once, and the bytes of each. */
interface Load {
  readonly count: number;
  readonly depth: number;
  readonly sizeBytes: number;
}

let provider: Provider | undefined;
let client: RpcClient | undefined;

const methods = {
  /** Uses the devices of a daemon. */
  async open({ socketPath }: { readonly socketPath: string }): Promise<void> {
    provider = await connectDaemon({ socketPath });
  },

  /** Serves on a free port; returns it. */
  async serve({ address }: { readonly address: string }): Promise<Meeting> {
    const service = new RpcService();
    service.register(BENCH, {
      FETCH: (count, call) => call.bulkBuffer(count),
      STORE: (bytes) => bytes.length,
    });
    const server = await listenRpc(opened(), service, { host: address, port: 0 });
    return { address, port: server.address.port };
  },

  async connect({ address, port }: Meeting): Promise<void> {
    client = await connectRpc(opened(), { host: address, port });
  },

  /** Seconds that the calls took. */
  async nulls(load: Load): Promise<number> {
    const to = connected();
    return await timed(load, () => to.call(BENCH, 'NULL', undefined));
  },

  async fetches(load: Load): Promise<number> {
    const to = connected();
    const sinks = await buffers(load);
    return await timed(load, async (slot) => {
      const bulkInto = [sinks[slot] ?? new Uint8Array(load.sizeBytes)];
      await to.call(BENCH, 'FETCH', load.sizeBytes, { bulkInto });
    });
  },

  async stores(load: Load): Promise<number> {
    const to = connected();
    const sources = await buffers(load);
    return await timed(load, async (slot) => {
      const stored = await to.call(BENCH, 'STORE', sources[slot] ?? new Uint8Array(0));
      if (stored !== load.sizeBytes) throw new Error(`${stored} bytes were stored`);
    });
  },

  async close(_: undefined): Promise<void> {
    await client?.close();
    await provider?.close();
    provider = undefined;
  },
};

export type RpcMethods = typeof methods;

/** Memory of each parallel sequence of calls, allocated once. */
const made: Uint8Array[] = [];

async function buffers({ depth, sizeBytes }: Load): Promise<readonly Uint8Array[]> {
  while (made.length < depth) made.push(await connected().allocate(BULK_MAX_BYTES));
  return made.map((memory) => memory.subarray(0, sizeBytes));
}

function opened(): Provider {
  if (provider === undefined) throw new Error('the device is not open');
  return provider;
}

function connected(): RpcClient {
  if (client === undefined) throw new Error('not connected');
  return client;
}

/** Makes the calls of a load, `depth` at once: parallel sequences of calls. */
async function timed(load: Load, call: (slot: number) => Promise<void>): Promise<number> {
  let left = load.count;
  const start = performance.now();
  await Promise.all(
    Array.from({ length: load.depth }, async (_, slot) => {
      while (left > 0) {
        left -= 1;
        await call(slot);
      }
    }),
  );
  return (performance.now() - start) / 1000;
}

serveCalls(methods);
