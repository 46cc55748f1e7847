/** Provider, client, memory and calls of the workers of RPC and NFS over RDMA. */
import { performance } from 'node:perf_hooks';
import type { Provider } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/index';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import type { RpcClient, RpcClientOptions } from '#verbs-api/rpcrdma/rpc-client-types';

/** Bytes of the largest transfer. */
export const TRANSFER_MAX_BYTES = 1 << 20;

/** `count` calls, `depth` at a time. */
export interface Load {
  readonly count: number;
  readonly depth: number;
}

/** A load whose calls carry this many bytes. */
export interface SizedLoad extends Load {
  readonly sizeBytes: number;
}

let provider: Provider | undefined;
let client: RpcClient | undefined;
/** Memory of each parallel sequence of calls, allocated once. */
const buffers: Uint8Array[] = [];

/** The methods of both workers. */
export const endMethods = {
  /** Uses the devices of a daemon. */
  async open({ socketPath }: { readonly socketPath: string }): Promise<void> {
    provider = await connectDaemon({ socketPath });
  },

  async close(_: undefined): Promise<void> {
    await client?.close();
    await provider?.close();
    provider = undefined;
  },
};

export function opened(): Provider {
  if (provider === undefined) throw new Error('the device is not open');
  return provider;
}

export async function connectEnd(options: RpcClientOptions): Promise<void> {
  client = await connectRpc(opened(), options);
}

export function connected(): RpcClient {
  if (client === undefined) throw new Error('not connected');
  return client;
}

export async function transferBuffers({ depth }: Load): Promise<readonly Uint8Array[]> {
  while (buffers.length < depth) buffers.push(await connected().allocate(TRANSFER_MAX_BYTES));
  return buffers.slice(0, depth);
}

/** Makes the calls of a load, in `depth` parallel sequences. Returns seconds. */
export async function timed(
  load: Load,
  call: (slot: number, index: number) => Promise<void>,
): Promise<number> {
  let next = 0;
  const start = performance.now();
  await Promise.all(
    Array.from({ length: load.depth }, async (_, slot) => {
      while (next < load.count) await call(slot, next++);
    }),
  );
  return (performance.now() - start) / 1000;
}
