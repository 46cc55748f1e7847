/**
 * Connections in a few lines, over any provider: creates the connection id, device, protection
 * domain, completion queue and queue pair that a program otherwise sets up by hand.
 */
import { optional, options as optionsOf, takes } from '#contract/verbs/arguments';
import { CMEventType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type {
  CancelSignal,
  CMEvent,
  ConnectionId,
  ConnectionParameters,
  CQ,
  PD,
  Provider,
  SocketAddress,
  SRQ,
  WaitLimit,
  WireOptions,
} from '#contract/verbs/provider';
import { PROVIDER, WIRE } from '#contract/verbs/signatures';
import { throwIfAborted } from './client/cancellation.ts';
import { orAbort, within } from './client/deadline.ts';
import { type Connection, type ConnectionParts, EstablishedConnection } from './connection.ts';
import { connectFailure, createParts, owned, queueSizes, type Undo, undoAll } from './dialing.ts';
import { addressOf } from './host-name/host-name.ts';
import { HEADER_BYTES, type MessageOffer, takeOffer, withOffer } from './message-framing.ts';
import {
  GRANTS,
  type MessageOptions,
  type MessagePlan,
  MessageWindow,
  messagePlan,
  receivesOf,
} from './message-window.ts';
import { RequestListener } from './request-listener.ts';
import { ENDPOINT_FIELDS, LISTEN_FIELDS, PEER_FIELDS, REASON } from './signatures.ts';

/** One request in addition to those that return credits. */
const SENDS_MIN = GRANTS + 1;
const ANY_ADDRESS = '0.0.0.0';
/** Options of both ends of a connection. */
export interface EndpointOptions extends WaitLimit {
  /**
   * Keeps receives posted for `Connection.messages`. True for the defaults. Both ends must use it,
   * or `credits` must be false. Default: the program posts receives itself.
   */
  readonly messages?: boolean | MessageOptions | undefined;
  /** Protection domain to use. Default: a new one on the connection's device, closed with it. */
  readonly pd?: PD | undefined;
  /** Queue for the completions of both queues. Default: a new one, as deep as both queues. */
  readonly cq?: CQ | undefined;
  /** Shared receive queue to use instead of the queue pair's own. */
  readonly srq?: SRQ | undefined;
  /** Capacity of the send queue, in work requests. Default 64. */
  readonly maxSendWr?: number | undefined;
  /** Capacity of the receive queue, in receives. Default 64. */
  readonly maxRecvWr?: number | undefined;
  /** Scatter/gather elements of a request. Default 4. */
  readonly maxSendSge?: number | undefined;
  /** Scatter/gather elements of a receive. Default 4. */
  readonly maxRecvSge?: number | undefined;
  /** Bytes that a request may carry inline. Default 64. */
  readonly maxInlineData?: number | undefined;
  /** Every send request completes, flagged or not. Default true. */
  readonly sqSigAll?: boolean | undefined;
  /**
   * Data for the peer, sent with the request or the reply: at most 508 bytes; on a RoCE device 56 and
   * 196, filled up with zeros.
   */
  readonly privateData?: Uint8Array | undefined;
  /** Requested outbound reads (ORD). Default: the device's maximum. */
  readonly initiatorDepth?: number | undefined;
  /** Offered inbound reads (IRD). Default: the device's maximum. */
  readonly responderResources?: number | undefined;
  /**
   * Called before the connection is established: post the first receives here, since a peer may
   * send as soon as it is connected.
   */
  readonly prepare?: ((parts: ConnectionParts) => void | Promise<void>) | undefined;
}

/** Options of `connect`. */
export interface ConnectOptions extends EndpointOptions {
  /** Name or IPv4 or IPv6 address. */
  readonly host: string;
  /** TCP port of the listener. */
  readonly port: number;
  /** Local address to connect from; it also selects the device. */
  readonly source?: SocketAddress | undefined;
  /** Time limit for finding a device that reaches the host, in milliseconds. Default 2000. */
  readonly resolveTimeoutMs?: number | undefined;
  /** Wire options of this connection, instead of the device's. */
  readonly wire?: WireOptions | undefined;
}

/**
 * Options of `listen`. The limit applies to starting to listen; close the listener to stop it later.
 */
export interface ListenOptions extends WaitLimit {
  /** Address to listen on, which also selects the device. Default: every IPv4 address. */
  readonly host?: string | undefined;
  /** Default 0: a free port, reported by `Listener.address`. */
  readonly port?: number | undefined;
  /** Requests that may wait for an answer. Default 128. */
  readonly backlog?: number | undefined;
}

/** A peer that wants to connect. Accept or reject it; it waits in the backlog until then. */
export interface ConnectionRequest {
  /** The id that arrived with the request; `accept` and `reject` use it. */
  readonly id: ConnectionId;
  /** The private data of the peer's request; may be empty. */
  readonly privateData: Uint8Array;
  /** The peer's address and port. */
  readonly peerAddress: SocketAddress | undefined;
  /**
   * Inbound reads that the peer serves, the limit of this end's outbound reads; undefined if the
   * peer does not say.
   */
  readonly initiatorDepth: number | undefined;
  /** Outbound reads that the peer requests; undefined if the peer does not say. */
  readonly responderResources: number | undefined;
  /**
   * Accepts the connection, once the peer confirms. On RoCE a peer has 69 s for that, so a program that
   * iterates over requests should not wait for one before it takes the next; `Listener.accept` does not.
   * ECONNRESET if the peer disconnected; EINVAL, ENOMEM for invalid
   * options; EPROTO if the peer does not use credits as `messages` requires; ETIMEDOUT, or the
   * signal's reason. On failure the request is rejected, and nothing is left behind.
   */
  accept(options?: EndpointOptions): Promise<Connection>;
  /** Rejects the connection, with at most 508 bytes for the peer. */
  reject(privateData?: Uint8Array): Promise<void>;
}

/** A listening id. Iterate over it to get the requests; the loop ends when it closes. */
export interface Listener extends AsyncDisposable, AsyncIterable<ConnectionRequest> {
  /** The listening id. */
  readonly id: ConnectionId;
  /** The address and port that it listens on. */
  readonly address: SocketAddress;
  /**
   * Waits for the next request and accepts it. The limit covers both. Errors as
   * `ConnectionRequest.accept`, but skips peers that give up or never confirm.
   * EINVAL when the listener closes.
   *
   * A peer that has not confirmed after half a second does not delay others: the next request is accepted
   * as well, and the first that is confirmed is returned. `prepare` is then called for each request; the
   * call returns the one for which it was called last. One that is confirmed later goes to a later call
   * with the same options, unless they have `prepare`.
   */
  accept(options?: EndpointOptions): Promise<Connection>;
  /** Stops listening and rejects requests that were not taken. Connections stay. */
  close(): Promise<void>;
}

/** Checks the arguments of functions and of listeners; throws EINVAL. */
const checkConnecting = {
  connect: takes('connect', {
    provider: PROVIDER,
    options: optionsOf<ConnectOptions>({
      ...ENDPOINT_FIELDS,
      ...PEER_FIELDS,
      wire: optional(WIRE),
    }),
  }),
  listen: takes('listen', {
    provider: PROVIDER,
    options: optional(optionsOf<ListenOptions>(LISTEN_FIELDS)),
  }),
  accept: takes('accept', { options: optional(optionsOf<EndpointOptions>(ENDPOINT_FIELDS)) }),
  reject: takes('reject', REASON),
} as const;

/**
 * Connects to a listening peer.
 *
 * Resolves once the connection is established. Rejects with `ConnectionRejectedError`
 * (ECONNREFUSED; the peer's private data is in its `event`), or `VerbsError`: EADDRNOTAVAIL or
 * ENODEV if no device reaches the host, ETIMEDOUT, ECONNRESET, EHOSTUNREACH, EINVAL and ENOMEM for
 * invalid options, EPROTO if the peer does not use credits as `messages` requires, EIO if the
 * daemon is lost, or the signal's reason. Leaves nothing behind on failure.
 */
export async function connect(provider: Provider, options: ConnectOptions): Promise<Connection> {
  checkConnecting.connect(provider, options);
  const { host, port, source, resolveTimeoutMs, wire } = options;
  return await within(options, `connect to ${host} port ${port}`, async (signal) => {
    const destination = { address: await orAbort(addressOf(host), signal), port };
    return await owned(await provider.createId(), signal, async (id) => {
      await orAbort(id.resolveAddr(destination, { source, timeoutMs: resolveTimeoutMs }), signal);
      await orAbort(id.resolveRoute(), signal);
      return await establish({
        id,
        options,
        signal,
        requested: undefined,
        start: async (parameters) => {
          try {
            return await id.connect({ ...parameters, wire });
          } catch (error) {
            throw connectFailure(error, `cannot connect to ${host} port ${port}`);
          }
        },
      });
    });
  });
}

/**
 * Listens for connections.
 *
 * Resolves once peers can connect. Rejects with `VerbsError`: EADDRINUSE, EACCES, ENODEV if no
 * device has the address, EIO, ETIMEDOUT, or with the signal's reason.
 */
export async function listen(provider: Provider, options: ListenOptions = {}): Promise<Listener> {
  checkConnecting.listen(provider, options);
  const host = options.host ?? ANY_ADDRESS;
  const port = options.port ?? 0;
  return await within(options, `listen at ${host} port ${port}`, async (signal) => {
    const address = await orAbort(addressOf(host), signal);
    return await owned(await provider.createId(), signal, async (id) => {
      await orAbort(id.bindAddr({ address, port }), signal);
      await orAbort(id.listen(options.backlog), signal);
      return new RequestListener(id, id.localAddress ?? { address, port }, requestOf, (given) =>
        checkConnecting.accept(given),
      );
    });
  });
}

function requestOf(event: CMEvent): ConnectionRequest {
  const { id } = event;
  const { offer, privateData } = takeOffer(event.privateData);
  return {
    id,
    privateData,
    peerAddress: id.peerAddress,
    initiatorDepth: event.initiatorDepth,
    responderResources: event.responderResources,
    async accept(options: EndpointOptions = {}) {
      checkConnecting.accept(options);
      return await within(options, 'accept', (signal) =>
        owned(id, signal, () =>
          establish({
            id,
            options,
            signal,
            requested: { offer },
            start: (parameters) => id.accept(parameters),
          }),
        ),
      );
    },
    async reject(reason?: Uint8Array) {
      checkConnecting.reject(reason);
      await id.reject(reason);
      await id.close();
    },
  };
}

interface Establishing {
  readonly id: ConnectionId;
  readonly options: EndpointOptions;
  readonly signal: CancelSignal | undefined;
  /** The depths in the peer's request; undefined on the connecting end. */
  readonly requested: { readonly offer: MessageOffer | undefined } | undefined;
  readonly start: (parameters: ConnectionParameters) => Promise<CMEvent>;
}

/**
 * Creates the objects of the connection, connects, and consumes the events up to the established one.
 */
async function establish({
  id,
  options,
  signal,
  requested,
  start,
}: Establishing): Promise<Connection> {
  const plan = messagePlan(options.messages);
  if (plan !== undefined) assertOwnReceives(options);
  if (plan?.credits === true && requested !== undefined && requested.offer === undefined) {
    throw new VerbsError('EPROTO', NO_CREDITS);
  }
  const undo: Undo = [];
  try {
    const parts = await createParts(id, options, queueSizes(options, plan && sizesOf(plan)), undo);
    const { pd, qp } = parts;
    const window = plan === undefined ? undefined : await MessageWindow.open(plan, pd, qp);
    if (window !== undefined && options.pd !== undefined) undo.push(() => window.close());
    await orAbort(Promise.resolve(options.prepare?.(parts)), signal);
    const event = await start(connectionParameters(options, plan));
    await skipTo(id, CMEventType.established);
    throwIfAborted(signal);
    const answer = takeOffer(event.privateData);
    if (plan?.credits === true) {
      const peer = requested === undefined ? answer.offer : requested.offer;
      if (peer === undefined) throw new VerbsError('EPROTO', NO_CREDITS);
      window?.setPeer(peer);
    }
    return new EstablishedConnection({
      parts,
      event: { ...event, privateData: answer.privateData },
      window,
      ownsCQ: options.cq === undefined,
      closeParts: () => undoAll(undo),
    });
  } catch (error) {
    await id.close();
    await undoAll(undo);
    throw error;
  }
}

const NO_CREDITS =
  'the peer does not use credits: give it `messages` too, or use `messages: { credits: false }` here';

/** With messages, the receives and their completions belong to the connection. */
function assertOwnReceives(options: EndpointOptions): void {
  if (options.srq === undefined && options.cq === undefined) return;
  const name = options.srq === undefined ? 'cq' : 'srq';
  throw invalid(`\`messages\` posts receives itself: leave out \`${name}\``);
}

/** Queue sizes for the credits and headers of messages. */
function sizesOf(plan: MessagePlan) {
  return {
    maxSendWr: SENDS_MIN,
    maxRecvWr: receivesOf(plan),
    maxSendSge: 2,
    maxInlineData: HEADER_BYTES,
  };
}

function connectionParameters(
  options: EndpointOptions,
  plan: MessagePlan | undefined,
): ConnectionParameters {
  const { privateData, initiatorDepth, responderResources } = options;
  return {
    privateData: plan?.credits === true ? withOffer(privateData, plan) : privateData,
    initiatorDepth,
    responderResources,
  };
}

async function skipTo(id: ConnectionId, type: CMEvent['type']): Promise<void> {
  let event = await id.nextEvent();
  while (event.type !== type) event = await id.nextEvent();
}
