/** Serves an `RpcService` over RDMA. */
import {
  FUNCTION,
  objectWith,
  optional,
  options as optionsOf,
  PORT,
  takes,
  wholeNumber,
} from '#contract/verbs/arguments';
import { CMEventType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { CMEvent, ConnectionId, Provider, SocketAddress } from '#contract/verbs/provider';
import { PROVIDER } from '#contract/verbs/signatures';
import { addressOf } from '../host-name/host-name.ts';
import { NFS_RDMA_PORT } from './core/nfs-port.ts';
import {
  type ConnectionTerms,
  emitPrivateData,
  encodableSizeBytes,
  inlineThresholds,
  parsePrivateData,
} from './core/private-data.ts';
import type { ResponderOptions } from './core/responder-types.ts';
import { RdmaChannel } from './rdma-channel.ts';
import { textOf } from './rpc-error.ts';

import type { RpcService } from './rpc-service.ts';
import { ServerConnection } from './server-connection.ts';
import { HOST, RESPONDER } from './signatures.ts';

/** Options of `listenRpc`. */
export interface RpcServerOptions {
  /** Name or address to listen on, which also selects the device. Default: all IPv4 addresses. */
  readonly host?: string;
  /** Default: the NFS over RDMA port; 0 selects a free one. */
  readonly port?: number;
  /** Maximum concurrent connections; more are rejected. Default 64. */
  readonly connectionsMax?: number;
  /**
   * Bytes of a Send and of a receive, including the header, rounded down to a KiB. Default 4096.
   */
  readonly inlineBytes?: number;
  /** Maximum bytes of buffers for calls and replies per connection. Default 128 MiB. */
  readonly bufferBytesMax?: number;
  /** Credits, limits, RFC 5666 features. */
  readonly responder?: ResponderOptions;
  /** Called when a connection opens or closes, with the reason; for logs. */
  readonly onConnection?: (address: string, state: 'open' | 'closed', text: string) => void;
}

/** A listening server. */
export interface RpcServer extends AsyncDisposable {
  /** The listening address, including the port. */
  readonly address: SocketAddress;
  /** Number of open connections. */
  readonly connectionCount: number;
  /** Stops listening and ends all connections once the running handlers have ended. */
  close(): Promise<void>;
}

const DEFAULT_INLINE_BYTES = 4096;
const DEFAULT_CREDITS = 32;
const DEFAULT_CONNECTIONS_MAX = 64;
const DEFAULT_BUFFER_BYTES_MAX = 128 << 20;
/** Queue slots for RDMA Reads and Writes, besides a reply for each credit. */
const SPARE_DEPTH = 96;

const SOME = optional(wholeNumber(0));
const SERVER = optionsOf<RpcServerOptions>({
  host: optional(HOST),
  port: optional(PORT),
  connectionsMax: SOME,
  inlineBytes: SOME,
  bufferBytesMax: SOME,
  responder: optional(RESPONDER),
  onConnection: optional(FUNCTION),
});

const check = takes('listenRpc', {
  provider: PROVIDER,
  service: objectWith('an RpcService', 'register', 'answer'),
  options: optional(SERVER),
});

/**
 * Listens for clients of `service`.
 *
 * Resolves once clients can connect. Rejects with `VerbsError` like `ConnectionId.bindAddr` and
 * `listen`; RangeError for contradictory options.
 */
export async function listenRpc(
  provider: Provider,
  service: RpcService,
  options: RpcServerOptions = {},
): Promise<RpcServer> {
  check(provider, service, options);
  const { readListReplies = false, credits = DEFAULT_CREDITS } = options.responder ?? {};
  // RPCR-3.8-05 A client that reserves credits for RDMA_DONE also needs one for its calls.
  if (credits < (readListReplies ? 2 : 1)) throw new RangeError(`${credits} credits are too few`);
  const address = await addressOf(options.host ?? '0.0.0.0');
  const port = options.port ?? NFS_RDMA_PORT;
  const id = await provider.createId();
  try {
    await id.bindAddr({ address, port });
    await id.listen();
  } catch (error) {
    await id.close();
    throw error;
  }
  return new RdmaRpcServer(id, id.localAddress ?? { address, port }, service, options);
}

class RdmaRpcServer implements RpcServer {
  readonly address: SocketAddress;
  readonly #id: ConnectionId;
  readonly #service: RpcService;
  readonly #options: RpcServerOptions;
  readonly #terms: ConnectionTerms;
  readonly #connections = new Set<ServerConnection>();
  /**
   * Connections being established, oldest first, by their ids: at most as many as connections. Honest
   * clients confirm at once, so a new one replaces the oldest.
   */
  readonly #accepting = new Map<ConnectionId, Promise<void>>();
  #closing: Promise<void> | undefined;

  constructor(
    id: ConnectionId,
    address: SocketAddress,
    service: RpcService,
    options: RpcServerOptions,
  ) {
    this.#id = id;
    this.address = address;
    this.#service = service;
    this.#options = options;
    const inlineBytes = encodableSizeBytes(options.inlineBytes ?? DEFAULT_INLINE_BYTES);
    // CMPD-4.1-02 Replies are plain Sends, so offer nothing.
    this.#terms = {
      remoteInvalidation: false,
      sendBytes: inlineBytes,
      receiveBytes: inlineBytes,
    };
    void this.#listen();
  }

  get connectionCount(): number {
    return this.#connections.size;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.#id.close();
    const accepting = [...this.#accepting.values()];
    for (const id of this.#accepting.keys()) void id.close().catch(() => {});
    await Promise.all(accepting);
    await Promise.all([...this.#connections].map((connection) => connection.close()));
  }

  async #listen(): Promise<void> {
    try {
      for await (const event of this.#id.events()) {
        if (event.type !== CMEventType.connectRequest) continue;
        const { id } = event;
        this.#makeRoom();
        const accepting = this.#accept(event).finally(() => this.#accepting.delete(id));
        this.#accepting.set(id, accepting);
      }
    } catch (error) {
      this.#report('', 'closed', textOf(error));
    }
  }

  get #connectionsMax(): number {
    return this.#options.connectionsMax ?? DEFAULT_CONNECTIONS_MAX;
  }

  /** Gives up the oldest connection being established, if there are too many. */
  #makeRoom(): void {
    if (this.#accepting.size < this.#connectionsMax) return;
    const [oldest] = this.#accepting.keys();
    if (oldest === undefined) return;
    this.#accepting.delete(oldest);
    void oldest.close().catch(() => {});
  }

  async #accept(event: CMEvent): Promise<void> {
    const { id } = event;
    const address = id.peerAddress?.address ?? '';
    const { responder = {} } = this.#options;
    try {
      if (this.#closing !== undefined || this.#connections.size >= this.#connectionsMax) {
        await id.reject();
        await id.close();
        return;
      }
      const credits = responder.credits ?? DEFAULT_CREDITS;
      // RPCR-3.3-01 Receives must be posted before the client may send.
      const channel = await RdmaChannel.create(id, {
        receives: credits,
        inlineBytes: this.#terms.receiveBytes,
        sendDepth: credits + SPARE_DEPTH,
      });
      await this.#establish(channel, event, address);
    } catch (error) {
      this.#report(address, 'closed', textOf(error));
    }
  }

  async #establish(channel: RdmaChannel, request: CMEvent, address: string): Promise<void> {
    const { responder = {}, bufferBytesMax = DEFAULT_BUFFER_BYTES_MAX } = this.#options;
    let established: CMEvent;
    try {
      established = await channel.id.accept({ privateData: emitPrivateData(this.#terms) });
    } catch (error) {
      await channel.close();
      throw error;
    }
    if (this.#connections.size >= this.#connectionsMax) {
      await channel.close();
      throw new VerbsError(
        'EBUSY',
        `the server has its ${this.#connectionsMax} connections; raise connectionsMax`,
      );
    }
    const client = parsePrivateData(request.privateData);
    const connection = new ServerConnection({
      channel,
      service: this.#service,
      thresholds: inlineThresholds(client, this.#terms),
      options: responder,
      canRead: established.initiatorDepth !== 0,
      bufferBytesMax,
      address,
      onEnd: (text) => {
        this.#connections.delete(connection);
        this.#report(address, 'closed', text);
      },
    });
    this.#connections.add(connection);
    this.#report(address, 'open', '');
  }

  #report(address: string, state: 'open' | 'closed', text: string): void {
    this.#options.onConnection?.(address, state, text);
  }
}
