/** One end of RPC over RDMA, in a separate process, run as a worker of the bench. */
import {
  defineProcedure,
  defineProgram,
  listenRpc,
  RpcService,
  voidCodec,
  type XdrCodec,
} from '#verbs-api/rpcrdma/index';
import { serveCalls } from './channel.ts';
import {
  connectEnd,
  connected,
  endMethods,
  opened,
  type SizedLoad,
  TRANSFER_MAX_BYTES,
  timed,
  transferBuffers,
} from './rpc-end.ts';
import type { Meeting } from './verbs-worker.ts';

const countCodec: XdrCodec<number> = {
  encode: (writer, count) => writer.uint32(count),
  decode: (reader) => reader.uint32(),
};
const bulkCodec: XdrCodec<Uint8Array> = {
  encode: (writer, bytes) => writer.bulk(bytes),
  decode: (reader) => reader.bulk(TRANSFER_MAX_BYTES),
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

const methods = {
  ...endMethods,

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
    await connectEnd({ host: address, port });
  },

  /** Seconds that the calls took. */
  async nulls(load: SizedLoad): Promise<number> {
    const to = connected();
    return await timed(load, () => to.call(BENCH, 'NULL', undefined));
  },

  async fetches(load: SizedLoad): Promise<number> {
    const to = connected();
    const sinks = await buffers(load);
    return await timed(load, async (slot) => {
      const bulkInto = [sinks[slot] ?? new Uint8Array(load.sizeBytes)];
      await to.call(BENCH, 'FETCH', load.sizeBytes, { bulkInto });
    });
  },

  async stores(load: SizedLoad): Promise<number> {
    const to = connected();
    const sources = await buffers(load);
    return await timed(load, async (slot) => {
      const stored = await to.call(BENCH, 'STORE', sources[slot] ?? new Uint8Array(0));
      if (stored !== load.sizeBytes) throw new Error(`${stored} bytes were stored`);
    });
  },
};

export type RpcMethods = typeof methods;

/** The parts of the load's buffers that its calls use. */
async function buffers(load: SizedLoad): Promise<readonly Uint8Array[]> {
  const whole = await transferBuffers(load);
  return whole.map((memory) => memory.subarray(0, load.sizeBytes));
}

serveCalls(methods);
