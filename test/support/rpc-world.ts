/** Providers of both kinds with a server of the echo program, and raw peers that can send anything. */
import { CMEventType } from '#contract/verbs/enums';
import type { ConnectionId, ConnectionParameters, Provider } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { emitPrivateData } from '#verbs-api/rpcrdma/core/private-data';
import { type ParsedMessage, parseTransportHeader } from '#verbs-api/rpcrdma/core/transport-header';
import { RdmaChannel } from '#verbs-api/rpcrdma/rdma-channel';
import { RpcError } from '#verbs-api/rpcrdma/rpc-error';
import { RpcService, type ServerCall } from '#verbs-api/rpcrdma/rpc-service';
import { DaemonRig } from './daemon-rig.ts';
import { BULK_MAX_BYTES, ECHO, sumOf } from './echo-program.ts';
import { pattern } from './pattern.ts';

/** A provider and its resources. */
export interface World {
  readonly provider: Provider;
  close(): Promise<void>;
}

/** How a world is made. */
export const WORLDS = {
  embedded: async (): Promise<World> => {
    const provider = await createEmbedded();
    return { provider, close: () => provider.close() };
  },
  daemon: async (): Promise<World> => {
    const rig = await DaemonRig.start();
    const provider = await connectDaemon({ socketPath: rig.socketPath });
    return {
      provider,
      close: async () => {
        await provider.close();
        await rig.stop();
      },
    };
  },
};

/** The recorded calls of the echo service. */
export interface EchoLog {
  /** STOREs carried out, by name. */
  readonly stored: string[];
  readonly calls: ServerCall[];
  /** Handlers of FETCH wait for this before they answer. */
  gate: Promise<void> | undefined;
}

/** The echo program with handlers that behave as its comments describe. */
export function echoService(): { readonly service: RpcService; readonly log: EchoLog } {
  const log: EchoLog = { stored: [], calls: [], gate: undefined };
  const service = new RpcService();
  service.register(ECHO, {
    FETCH: async (count, call) => {
      if (count > BULK_MAX_BYTES) throw new RangeError(`${count} bytes are too many`);
      log.calls.push(call);
      const bytes = await call.bulkBuffer(count);
      bytes.set(pattern(count));
      await log.gate;
      return bytes;
    },
    STORE: (args) => {
      if (args.name === 'fail') throw new Error('asked to fail');
      log.stored.push(args.name);
      return sumOf(args.bytes);
    },
    MIRROR: (bytes) => bytes,
    SPLIT: ({ bytes, at }) => [bytes.subarray(0, at), bytes.subarray(at)] as const,
  });
  return { service, log };
}

export interface RawMessage extends ParsedMessage {
  readonly bytes: Uint8Array;
  /** Bytes after the header. */
  readonly payload: Uint8Array;
}

const SIZES = { receives: 64, inlineBytes: 4096, sendDepth: 64 };

/** One end of a connection that sends a test's bytes and keeps received ones. */
export class RawPeer {
  readonly channel: RdmaChannel;
  /** Why the connection ended; undefined while it is open. */
  ended: string | undefined;
  readonly #received: Uint8Array[] = [];
  #wake: (() => void) | undefined;

  constructor(channel: RdmaChannel) {
    this.channel = channel;
    channel.start({
      handleMessage: (bytes, receive) => {
        this.#received.push(bytes.slice());
        channel.repost(receive);
        this.#wake?.();
      },
      handleBatch: () => undefined,
      handleEnd: (text) => {
        this.ended = text;
        this.#wake?.();
      },
    });
  }

  /**
   * Connects to a server of this host, with terms for 4096 bytes each way unless others are given.
   */
  static async connect(
    provider: Provider,
    port: number,
    parameters: ConnectionParameters = {},
  ): Promise<RawPeer> {
    const terms = { remoteInvalidation: true, sendBytes: 4096, receiveBytes: 4096 };
    const privateData = emitPrivateData(terms);
    const id = await provider.createId();
    await id.resolveAddr({ address: '127.0.0.1', port });
    await id.resolveRoute();
    const channel = await RdmaChannel.create(id, SIZES);
    await id.connect({ privateData, ...parameters });
    return new RawPeer(channel);
  }

  send(bytes: Uint8Array): void {
    this.channel.send(bytes.length, (target) => target.set(bytes), { done: () => undefined });
    this.channel.flush();
  }

  /** The next message; throws when the connection ends first. */
  async next(): Promise<RawMessage> {
    const bytes = await this.nextBytes();
    const parsed = parseTransportHeader(bytes);
    if ('error' in parsed) throw new Error(parsed.text);
    return { ...parsed, bytes, payload: bytes.subarray(parsed.headerBytes) };
  }

  async nextBytes(): Promise<Uint8Array> {
    for (;;) {
      const bytes = this.#received.shift();
      if (bytes !== undefined) return bytes;
      if (this.ended !== undefined) throw new Error(`the connection ended: ${this.ended}`);
      await this.#news();
    }
  }

  /** Waits for the end of the connection; returns the reason. */
  async end(): Promise<string> {
    while (this.ended === undefined) await this.#news();
    return this.ended;
  }

  async close(): Promise<void> {
    await this.channel.close();
  }

  async #news(): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
  }
}

/** A listener that hands out raw peers. */
export class RawServer {
  readonly #id: ConnectionId;
  readonly #privateData: Uint8Array;

  private constructor(id: ConnectionId, privateData: Uint8Array) {
    this.#id = id;
    this.#privateData = privateData;
  }

  static async listen(
    provider: Provider,
    privateData: Uint8Array = new Uint8Array(0),
  ): Promise<RawServer> {
    const id = await provider.createId();
    await id.bindAddr({ address: '127.0.0.1', port: 0 });
    await id.listen();
    return new RawServer(id, privateData);
  }

  get port(): number {
    return this.#id.localAddress?.port ?? 0;
  }

  /** Accepts the next connection. */
  async accept(): Promise<RawPeer> {
    let event = await this.#id.nextEvent();
    while (event.type !== CMEventType.connectRequest) event = await this.#id.nextEvent();
    const channel = await RdmaChannel.create(event.id, SIZES);
    await event.id.accept({ privateData: this.#privateData });
    return new RawPeer(channel);
  }

  async close(): Promise<void> {
    await this.#id.close();
  }
}

/** The code of the error that a call ends with, or 'none'. */
export async function codeOf(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'none';
  } catch (error) {
    if (error instanceof RpcError) return error.code;
    throw error;
  }
}
