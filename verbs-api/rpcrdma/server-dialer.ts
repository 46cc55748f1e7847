/** How a client gets a connection to its server, with the memory that calls open on it. */
import { VerbsError } from '#contract/verbs/errors';
import type { ConnectionId, Provider } from '#contract/verbs/provider';
import { addressOf } from '../host-name/host-name.ts';
import { type AllocatedMemory, ConnectionRegions } from './allocated-memory.ts';
import type { ConnectionMemory } from './call-memory.ts';
import { NFS_RDMA_PORT } from './core/nfs-port.ts';
import {
  type ConnectionTerms,
  emitPrivateData,
  encodableSizeBytes,
  type InlineThresholds,
  inlineThresholds,
  parsePrivateData,
} from './core/private-data.ts';
import { MemoryExposer, WINDOWED_ACCESS } from './memory-exposer.ts';
import { MemoryPool } from './memory-pool.ts';
import { RdmaChannel } from './rdma-channel.ts';
import type { RpcClientOptions } from './rpc-client-types.ts';

export interface ClientConnection {
  /** Not started yet. */
  readonly channel: RdmaChannel;
  readonly memory: ConnectionMemory;
  readonly thresholds: InlineThresholds;
  /** The server may read this side's memory. */
  readonly readsServed: boolean;
}

const DEFAULT_INLINE_BYTES = 4096;
const DEFAULT_CREDITS = 32;
/** Maximum bytes in a connection's pool: long calls and replies. */
const POOL_BYTES_MAX = 64 << 20;
/** Queue slots for Reads besides the Sends; a client uses them only for RFC 5666 replies. */
const SPARE_DEPTH = 8;
/**
 * Send buffers besides one per credit. Half of all buffers are used before a Send generates a completion, which
 * wakes this process and the device.
 */
const SPARE_SENDS = 96;
/** Send queue requests per call: open its memory, send it, close the memory. */
const REQUESTS_OF_CALL = 3;

export class ServerDialer {
  readonly #provider: Provider;
  readonly #options: RpcClientOptions;
  readonly #terms: ConnectionTerms;
  readonly #allocated: AllocatedMemory;
  /** The id of a connection being established. */
  #connecting: ConnectionId | undefined;
  #cancelled = false;

  /** `allocated`: memory of the program, which connections register when calls use it. */
  constructor(provider: Provider, options: RpcClientOptions, allocated: AllocatedMemory) {
    this.#provider = provider;
    this.#options = options;
    this.#allocated = allocated;
    const inlineBytes = encodableSizeBytes(options.inlineBytes ?? DEFAULT_INLINE_BYTES);
    // CMPD-4.1-02 A peer must not invalidate: its reply to an aborted call, whose memory is closed
    // already, would end the connection.
    this.#terms = {
      remoteInvalidation: false,
      sendBytes: inlineBytes,
      receiveBytes: inlineBytes,
    };
  }

  /** Rejects as `ConnectionId.resolveAddr` and `connect`, and once it is cancelled. */
  async dial(): Promise<ClientConnection> {
    const { host, port = NFS_RDMA_PORT, source, wire, requester } = this.#options;
    const address = await addressOf(host);
    const id = await this.#provider.createId();
    this.#connecting = id;
    let channel: RdmaChannel | undefined;
    try {
      if (this.#cancelled) throw new VerbsError('ECONNABORTED');
      await id.resolveAddr({ address, port }, source === undefined ? {} : { source });
      await id.resolveRoute();
      const credits = requester?.credits ?? DEFAULT_CREDITS;
      channel = await RdmaChannel.create(id, {
        receives: credits,
        inlineBytes: this.#terms.receiveBytes,
        sends: credits + SPARE_SENDS,
        sendDepth: REQUESTS_OF_CALL * credits + SPARE_SENDS + SPARE_DEPTH,
      });
      const memory = await this.#connectionMemory(channel);
      const established = await id.connect({
        privateData: emitPrivateData(this.#terms),
        ...(wire === undefined ? {} : { wire }),
      });
      const server = parsePrivateData(established.privateData);
      return {
        channel,
        memory,
        thresholds: inlineThresholds(this.#terms, server),
        readsServed: established.responderResources !== 0,
      };
    } catch (error) {
      if (channel === undefined) await id.close();
      else await channel.close();
      throw error;
    } finally {
      this.#connecting = undefined;
    }
  }

  /** Does not wait for an unresponsive server: `dial` rejects, now and later. */
  async cancel(): Promise<void> {
    this.#cancelled = true;
    await this.#connecting?.close();
  }

  async #connectionMemory(channel: RdmaChannel): Promise<ConnectionMemory> {
    const { context, pd } = channel;
    const windowed = (await context.queryDevice()).maxMw > 0;
    const exposer = new MemoryExposer(channel, windowed);
    if (!windowed) {
      return { pool: new MemoryPool(pd, POOL_BYTES_MAX), exposer, regionOf: () => undefined };
    }
    const regions = new ConnectionRegions(this.#allocated, pd);
    return {
      pool: new MemoryPool(pd, POOL_BYTES_MAX, WINDOWED_ACCESS),
      exposer,
      regionOf: (bytes) => regions.find(bytes),
    };
  }
}
