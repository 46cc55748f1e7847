/**
 * Connections in few lines, over any provider: what a program otherwise does by hand with a
 * connection id, a device, a protection domain, a completion queue and a queue pair.
 */
import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { cancellable, quiet } from './client/cancellation.ts';
import { CMEventType } from './contract/enums.ts';
import { VerbsError } from './contract/errors.ts';
import type {
  CancelSignal,
  CMEvent,
  ConnectionId,
  ConnectionParameters,
  Context,
  CQ,
  PD,
  Provider,
  QP,
  SocketAddress,
  SRQ,
  WireOptions,
} from './contract/provider.ts';

const DEFAULT_QUEUE_DEPTH = 64;
const DEFAULT_SGES = 4;
const DEFAULT_INLINE_BYTES = 64;
const ANY_ADDRESS = '0.0.0.0';

/** How both ends of a connection are made. */
export interface EndpointOptions {
  /** Registers memory here. Default: an own one on the connection's device, closed with it. */
  readonly pd?: PD;
  /** Completions of both queues come here. Default: an own one, as deep as both queues. */
  readonly cq?: CQ;
  /** Receives come from here instead of the queue pair's own queue. */
  readonly srq?: SRQ;
  /** Work requests that the queues hold. Default 64 each. */
  readonly maxSendWr?: number;
  readonly maxRecvWr?: number;
  /** Scatter/gather elements of a request. Default 4. */
  readonly maxSendSge?: number;
  readonly maxRecvSge?: number;
  /** Octets that a request may carry inline. Default 64. */
  readonly maxInlineData?: number;
  /** Every send request completes, flagged or not. Default true. */
  readonly sqSigAll?: boolean;
  /** What the peer gets with the request or the reply: at most 508 octets. */
  readonly privateData?: Uint8Array;
  /** Outbound and inbound reads wanted. Default: the device's maximum. */
  readonly initiatorDepth?: number;
  readonly responderResources?: number;
  /**
   * Called before the connection is made: the place to post the first receives, since a peer may
   * send as soon as it is connected.
   */
  readonly prepare?: (parts: ConnectionParts) => void | Promise<void>;
}

/** Options of `connect`. */
export interface ConnectOptions extends EndpointOptions {
  /** Name or IPv4 or IPv6 address. */
  readonly host: string;
  readonly port: number;
  /** Local address to connect from; it also picks the device. */
  readonly source?: SocketAddress;
  /** Limit for finding a device that reaches the host. Default 2000. */
  readonly resolveTimeoutMs?: number;
  /** Wire choices for this connection instead of the device's. */
  readonly wire?: WireOptions;
}

/** Options of `listen`. */
export interface ListenOptions {
  /** Address to listen at, which also picks the device. Default: every IPv4 address. */
  readonly host?: string;
  /** Default 0: a free port, told by `Listener.address`. */
  readonly port?: number;
  /** Requests that may wait for an answer. Default 128. */
  readonly backlog?: number;
}

/** What a connection is made of. */
export interface ConnectionParts {
  readonly id: ConnectionId;
  readonly context: Context;
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
}

/** A connected queue pair with everything around it. */
export interface Connection extends ConnectionParts, AsyncDisposable {
  /** The peer's private data and the negotiated depths. */
  readonly established: CMEvent;
  /**
   * Resolves when the connection has ended, whoever closed it. Rejects with EIO when the device is
   * lost, with the signal's reason when that aborts. Takes the id's further events.
   */
  disconnected(options?: { readonly signal?: CancelSignal }): Promise<void>;
  /** Disconnects gracefully and closes what was made for the connection; twice does no harm. */
  close(): Promise<void>;
}

/** A peer that wants to connect. Accept or reject it; it waits in the backlog until then. */
export interface ConnectionRequest {
  readonly id: ConnectionId;
  readonly privateData: Uint8Array;
  readonly peerAddress: SocketAddress | undefined;
  /** Outbound reads that the peer serves, inbound reads that it wants; undefined if not told. */
  readonly initiatorDepth: number | undefined;
  readonly responderResources: number | undefined;
  /** Connects. ECONNRESET when the peer went away; EINVAL, ENOMEM for unfit options. */
  accept(options?: EndpointOptions): Promise<Connection>;
  /** Refuses, with at most 508 octets for the peer. */
  reject(privateData?: Uint8Array): Promise<void>;
}

/** A listening id. Iterate over it to get the requests; the loop ends when it closes. */
export interface Listener extends AsyncDisposable, AsyncIterable<ConnectionRequest> {
  readonly id: ConnectionId;
  /** Where it listens, the port included. */
  readonly address: SocketAddress;
  /** Stops to listen; requests that nobody took are rejected. Connections stay. */
  close(): Promise<void>;
}

/**
 * Connects to a listening peer.
 *
 * Resolves once the connection is established. Rejects with `ConnectionRejectedError`
 * (ECONNREFUSED; the peer's private data is in its `event`), or `VerbsError`: EADDRNOTAVAIL or
 * ENODEV without a device that reaches the host, ETIMEDOUT, ECONNRESET, EHOSTUNREACH, EINVAL and
 * ENOMEM for unfit options, EIO when the daemon is lost. Nothing is left behind then.
 */
export async function connect(provider: Provider, options: ConnectOptions): Promise<Connection> {
  const destination = { address: await addressOf(options.host), port: options.port };
  const id = await provider.createId();
  try {
    await id.resolveAddr(destination, {
      ...(options.source === undefined ? {} : { source: options.source }),
      ...(options.resolveTimeoutMs === undefined ? {} : { timeoutMs: options.resolveTimeoutMs }),
    });
    await id.resolveRoute();
    return await establish(id, options, (parameters) =>
      id.connect({
        ...parameters,
        ...(options.wire === undefined ? {} : { wire: options.wire }),
      }),
    );
  } catch (error) {
    await id.close();
    throw error;
  }
}

/**
 * Listens for connections.
 *
 * Resolves once peers may connect. Rejects with `VerbsError`: EADDRINUSE, EACCES, ENODEV when no
 * device has the address, EIO.
 */
export async function listen(provider: Provider, options: ListenOptions = {}): Promise<Listener> {
  const address = await addressOf(options.host ?? ANY_ADDRESS);
  const id = await provider.createId();
  try {
    await id.bindAddr({ address, port: options.port ?? 0 });
    await id.listen(options.backlog);
  } catch (error) {
    await id.close();
    throw error;
  }
  return new RequestListener(id, id.localAddress ?? { address, port: options.port ?? 0 });
}

/** The `Listener` over a listening id. */
class RequestListener implements Listener {
  readonly id: ConnectionId;
  readonly address: SocketAddress;

  constructor(id: ConnectionId, address: SocketAddress) {
    this.id = id;
    this.address = address;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ConnectionRequest, void, undefined> {
    for await (const event of this.id.events()) {
      if (event.type === CMEventType.connectRequest) yield requestOf(event);
    }
  }

  close(): Promise<void> {
    return this.id.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** The `Connection` over an established id. */
class EstablishedConnection implements Connection {
  readonly id: ConnectionId;
  readonly context: Context;
  readonly pd: PD;
  readonly cq: CQ;
  readonly qp: QP;
  readonly established: CMEvent;
  readonly #closeParts: () => Promise<void>;
  /** One reader of the id's events for all who wait for the end. */
  #ending: Promise<void> | undefined;

  constructor(parts: ConnectionParts, established: CMEvent, closeParts: () => Promise<void>) {
    this.id = parts.id;
    this.context = parts.context;
    this.pd = parts.pd;
    this.cq = parts.cq;
    this.qp = parts.qp;
    this.established = established;
    this.#closeParts = closeParts;
  }

  disconnected(options: { readonly signal?: CancelSignal } = {}): Promise<void> {
    this.#ending ??= quiet(untilDisconnected(this.id));
    const ending = this.#ending;
    return quiet(
      cancellable<void>(
        options.signal,
        (waiter) => void ending.then(waiter.resolve, waiter.reject),
        () => undefined,
      ),
    );
  }

  async close(): Promise<void> {
    await this.id.close();
    await this.#closeParts();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function requestOf(event: CMEvent): ConnectionRequest {
  const { id } = event;
  return {
    id,
    privateData: event.privateData,
    peerAddress: id.peerAddress,
    initiatorDepth: event.initiatorDepth,
    responderResources: event.responderResources,
    async accept(options: EndpointOptions = {}) {
      try {
        return await establish(id, options, (parameters) => id.accept(parameters));
      } catch (error) {
        await id.close();
        throw error;
      }
    },
    async reject(privateData?: Uint8Array) {
      await id.reject(privateData);
      await id.close();
    },
  };
}

/** Makes what the connection needs, connects, and takes the events up to the established one. */
async function establish(
  id: ConnectionId,
  options: EndpointOptions,
  start: (parameters: ConnectionParameters) => Promise<CMEvent>,
): Promise<Connection> {
  const context = options.pd?.context ?? (await id.provider.open(id.device));
  const cqs: CQ[] = [];
  const closeParts = async (): Promise<void> => {
    // Only what was made here; the context takes the protection domain and its regions along.
    if (options.pd === undefined) await context.close();
    else for (const cq of cqs) await cq.close();
  };
  try {
    const pd = options.pd ?? (await context.allocPD());
    const sizes = queueSizes(options);
    const cq = options.cq ?? (await context.createCQ({ cqe: sizes.maxSendWr + sizes.maxRecvWr }));
    if (options.cq === undefined) cqs.push(cq);
    const qp = await id.createQP(pd, {
      sendCQ: cq,
      recvCQ: cq,
      ...sizes,
      ...(options.srq === undefined ? {} : { srq: options.srq }),
    });
    const parts: ConnectionParts = { id, context, pd, cq, qp };
    await options.prepare?.(parts);
    const established = await start(connectionParameters(options));
    await skipTo(id, CMEventType.established);
    return new EstablishedConnection(parts, established, closeParts);
  } catch (error) {
    await id.close();
    await closeParts();
    throw error;
  }
}

function queueSizes(options: EndpointOptions) {
  return {
    maxSendWr: options.maxSendWr ?? DEFAULT_QUEUE_DEPTH,
    maxRecvWr: options.srq === undefined ? (options.maxRecvWr ?? DEFAULT_QUEUE_DEPTH) : 0,
    maxSendSge: options.maxSendSge ?? DEFAULT_SGES,
    maxRecvSge: options.maxRecvSge ?? DEFAULT_SGES,
    maxInlineData: options.maxInlineData ?? DEFAULT_INLINE_BYTES,
    sqSigAll: options.sqSigAll ?? true,
  };
}

function connectionParameters(options: EndpointOptions): ConnectionParameters {
  const { privateData, initiatorDepth, responderResources } = options;
  return {
    ...(privateData === undefined ? {} : { privateData }),
    ...(initiatorDepth === undefined ? {} : { initiatorDepth }),
    ...(responderResources === undefined ? {} : { responderResources }),
  };
}

async function untilDisconnected(id: ConnectionId): Promise<void> {
  for await (const event of id.events()) {
    if (event.type === CMEventType.disconnected) return;
    if (event.type === CMEventType.deviceRemoval) throw new VerbsError('EIO', event.text);
  }
  // The id was closed here, and the connection with it.
}

async function skipTo(id: ConnectionId, type: CMEvent['type']): Promise<void> {
  let event = await id.nextEvent();
  while (event.type !== type) event = await id.nextEvent();
}

async function addressOf(host: string): Promise<string> {
  if (isIP(host) !== 0) return host;
  try {
    return (await lookup(host)).address;
  } catch {
    throw new VerbsError('EADDRNOTAVAIL', `the name ${host} has no address`);
  }
}
