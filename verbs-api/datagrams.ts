/**
 * Datagrams in a few lines: finds services, serves them, and joins multicast groups, over any
 * provider with a RoCE device. Corresponds to rdma_cm with RDMA_PS_UDP.
 */
import {
  BYTES,
  fields,
  optional,
  options as optionsOf,
  TEXT,
  takes,
  UINT32,
} from '#contract/verbs/arguments';
import type { WC } from '#contract/verbs/completion';
import { QPType, RDMA_UDP_QKEY } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import { parseGrh } from '#contract/verbs/gid';
import type {
  AH,
  CMEvent,
  ConnectionId,
  Provider,
  QP,
  SocketAddress,
  WaitLimit,
} from '#contract/verbs/provider';
import { LIMIT, PROVIDER, QUEUE_PAIR } from '#contract/verbs/signatures';
import type { DatagramDestination } from '#contract/verbs/work-request';
import { addressGid } from './address-gid.ts';
import { orAbort, within } from './client/deadline.ts';
import type { EndpointOptions, ListenOptions } from './connect.ts';
import type { ConnectionParts } from './connection.ts';
import { connectFailure, createParts, owned, queueSizes, type Undo, undoAll } from './dialing.ts';
import { addressOf } from './host-name/host-name.ts';
import { RequestListener } from './request-listener.ts';
import { DATAGRAM_FIELDS, HOST, LISTEN_FIELDS, PEER_FIELDS, REASON } from './signatures.ts';

const ANY_ADDRESS = '0.0.0.0';
/** Number of a group's queue pairs in a multicast datagram. */
const GROUP_QPN = 0xff_ffff;

/**
 * Options of the queue pair of a datagram endpoint. `prepare` is called before the peer gets the
 * number of the queue pair: post the first receives there.
 */
export interface DatagramOptions
  extends Omit<
    EndpointOptions,
    'messages' | 'privateData' | 'initiatorDepth' | 'responderResources'
  > {}

/** Options of `openDatagrams`. */
export interface OpenDatagramsOptions extends DatagramOptions {
  /** Local address, which selects the device. */
  readonly host: string;
}

/** Options of `resolveDatagrams`. */
export interface ResolveDatagramsOptions extends DatagramOptions {
  /** Name or IPv4 or IPv6 address. */
  readonly host: string;
  /** Port of the service, in the port space of RDMA_PS_UDP. */
  readonly port: number;
  /** Local address to ask from; it also selects the device. */
  readonly source?: SocketAddress | undefined;
  /** Time limit for finding a device that reaches the host, in milliseconds. Default 2000. */
  readonly resolveTimeoutMs?: number | undefined;
  /** Data for the service: at most 180 bytes, filled up with zeros. */
  readonly privateData?: Uint8Array | undefined;
}

/** Options of `DatagramRequest.accept`. */
export interface AcceptDatagramsOptions extends DatagramOptions {
  /** Data for the peer: at most 136 bytes, filled up with zeros. */
  readonly privateData?: Uint8Array | undefined;
}

/** Options of `DatagramRequest.answer`. */
export interface AnswerDatagramsOptions extends WaitLimit {
  /** Key of the queue pair. Default `RDMA_UDP_QKEY`. */
  readonly qkey?: number | undefined;
  /** Data for the peer: at most 136 bytes, filled up with zeros. */
  readonly privateData?: Uint8Array | undefined;
}

/** A destination whose address handle its owner closes. */
export interface OwnedDestination extends DatagramDestination {
  /** Close it after the datagrams that name it have completed; it also closes with the `pd`. */
  readonly ah: AH;
}

/**
 * A queue pair of type UD in RTS, with the key `RDMA_UDP_QKEY`, and what it needs. Every receive
 * needs `GRH_BYTES` more than its datagram.
 */
export interface DatagramEndpoint extends ConnectionParts, AsyncDisposable {
  /**
   * The destination for an answer to a received datagram (`ibv_create_ah_from_wc`): `wc` is its
   * completion, and `buffer` begins with its GRH. Assumes that the sender's key is this end's.
   * Errors: EINVAL for bytes without a GRH, and as `PD.createAH`.
   */
  answerTo(wc: Pick<WC, 'srcQp'>, buffer: Uint8Array): Promise<OwnedDestination>;
  /**
   * Receives the datagrams to a multicast group, an IPv4 or IPv6 address (`rdma_join_multicast`).
   * Resolves with the destination for sending to all its members. Errors: EINVAL for an address
   * that is no group; as `QP.attachMcast` and `PD.createAH`.
   */
  join(group: string): Promise<OwnedDestination>;
  /** Undoes `join`. Errors: EINVAL if the group was not joined. */
  leave(group: string): Promise<void>;
  /** Closes the queue pair and the id, and what this endpoint created. A second call does nothing. */
  close(): Promise<void>;
}

/** A service that was found, and a queue pair for datagrams to it. */
export interface DatagramService extends DatagramEndpoint {
  /** For the `ud` of Sends to the service. */
  readonly destination: OwnedDestination;
  /** The service's private data, 136 bytes with zeros at the end. */
  readonly privateData: Uint8Array;
}

/** A peer that asks for the service. Answer or reject it; it waits in the backlog until then. */
export interface DatagramRequest {
  /** The id that arrived with the request. */
  readonly id: ConnectionId;
  /** The peer's private data, 180 bytes with zeros at the end. */
  readonly privateData: Uint8Array;
  /** The peer's address and port. */
  readonly peerAddress: SocketAddress | undefined;
  /**
   * Answers with a new queue pair on the device that the request came to. Errors: as
   * `PD.createQP`; EINVAL for too much private data; ETIMEDOUT, or the signal's reason. On failure
   * the request is rejected, and nothing is left behind.
   */
  accept(options?: AcceptDatagramsOptions): Promise<DatagramEndpoint>;
  /**
   * Answers with a queue pair of type UD in RTS, which serves any number of peers. Errors: EINVAL for
   * a queue pair of another type or device, and for too much private data. The id is closed.
   */
  answer(qp: QP, options?: AnswerDatagramsOptions): Promise<void>;
  /** Rejects the request, with at most 136 bytes for the peer. */
  reject(privateData?: Uint8Array): Promise<void>;
}

/** A service of datagrams. Iterate over it to get the requests; the loop ends when it closes. */
export interface DatagramListener extends AsyncDisposable, AsyncIterable<DatagramRequest> {
  /** The listening id. */
  readonly id: ConnectionId;
  /** The address and port that it listens on. */
  readonly address: SocketAddress;
  /**
   * Waits for the next request and accepts it. The limit covers both. Errors as
   * `DatagramRequest.accept`; EINVAL when the listener closes.
   */
  accept(options?: AcceptDatagramsOptions): Promise<DatagramEndpoint>;
  /** Stops listening and rejects requests that were not taken. Endpoints stay. */
  close(): Promise<void>;
}

/** Checks the arguments of datagrams; throws EINVAL. */
const checkDatagrams = {
  open: takes('openDatagrams', {
    provider: PROVIDER,
    options: optionsOf<OpenDatagramsOptions>({ ...DATAGRAM_FIELDS, host: HOST }),
  }),
  resolve: takes('resolveDatagrams', {
    provider: PROVIDER,
    options: optionsOf<ResolveDatagramsOptions>({
      ...DATAGRAM_FIELDS,
      ...PEER_FIELDS,
      privateData: optional(BYTES),
    }),
  }),
  listen: takes('listenDatagrams', {
    provider: PROVIDER,
    options: optional(optionsOf<ListenOptions>(LISTEN_FIELDS)),
  }),
  accept: takes('accept', {
    options: optional(
      optionsOf<AcceptDatagramsOptions>({ ...DATAGRAM_FIELDS, privateData: optional(BYTES) }),
    ),
  }),
  answer: takes('answer', {
    qp: QUEUE_PAIR,
    options: optional(
      optionsOf<AnswerDatagramsOptions>({
        ...LIMIT,
        qkey: optional(UINT32),
        privateData: optional(BYTES),
      }),
    ),
  }),
  answerTo: takes('answerTo', {
    wc: fields<{ srcQp: number }>({ srcQp: UINT32 }),
    buffer: BYTES,
  }),
  reject: takes('reject', REASON),
  join: takes('join', { group: TEXT }),
  leave: takes('leave', { group: TEXT }),
} as const;

/**
 * Opens a queue pair for datagrams on the device that has a local address, for multicast groups, or
 * for peers that are known by other means.
 *
 * Rejects with `VerbsError`: EOPNOTSUPP if no device, or the one that has the address, is a RoCE
 * device; EADDRNOTAVAIL, EINVAL, ENOMEM, EIO, ETIMEDOUT, or the signal's reason.
 */
export async function openDatagrams(
  provider: Provider,
  options: OpenDatagramsOptions,
): Promise<DatagramEndpoint> {
  checkDatagrams.open(provider, options);
  const { host } = options;
  return await within(options, `open datagrams at ${host}`, async (signal) => {
    const address = await orAbort(addressOf(host), signal);
    return await owned(await provider.createId({ datagrams: true }), signal, async (id) => {
      await orAbort(id.bindAddr({ address, port: 0 }), signal);
      return await openEndpoint(id, { ...options, signal }, async () => ({}));
    });
  });
}

/**
 * Finds a service of datagrams: asks the host for the queue pair that serves a port.
 *
 * Rejects with `ConnectionRejectedError` (ECONNREFUSED; the private data is in its `event`) if the
 * service rejects or there is none, or `VerbsError`: EOPNOTSUPP if no device, or the one that has
 * the address, is a RoCE device; ENODEV if none reaches the host; ETIMEDOUT if the host does not
 * answer (after more than a minute, if the call has no limit); EINVAL and ENOMEM for invalid
 * options; EIO if the daemon is lost; or the signal's reason. Leaves nothing behind on failure.
 */
export async function resolveDatagrams(
  provider: Provider,
  options: ResolveDatagramsOptions,
): Promise<DatagramService> {
  checkDatagrams.resolve(provider, options);
  const { host, port, source, resolveTimeoutMs, privateData } = options;
  const service = `the datagram service at ${host} port ${port}`;
  return await within(options, `find ${service}`, async (signal) => {
    const destination = { address: await orAbort(addressOf(host), signal), port };
    return await owned(await provider.createId({ datagrams: true }), signal, async (id) => {
      await orAbort(id.resolveAddr(destination, { source, timeoutMs: resolveTimeoutMs }), signal);
      await orAbort(id.resolveRoute(), signal);
      return await openEndpoint(id, { ...options, signal }, async ({ pd }, undo) => {
        const event = await asked(id, privateData, `cannot find ${service}`);
        const { ud } = event;
        if (ud === undefined) throw new VerbsError('EIO', 'the device did not report its address');
        const ah = await pd.createAH(ud.ahAttr);
        undo.push(() => ah.close());
        const found = { ah, remoteQpNum: ud.qpNum, remoteQkey: ud.qkey };
        return { destination: found, privateData: event.privateData };
      });
    });
  });
}

async function asked(
  id: ConnectionId,
  privateData: Uint8Array | undefined,
  what: string,
): Promise<CMEvent> {
  try {
    return await id.connect({ privateData });
  } catch (error) {
    throw connectFailure(error, what);
  }
}

/**
 * Serves datagrams: peers ask for the queue pair of a port, and each gets one.
 *
 * Resolves once peers can ask. Rejects with `VerbsError`: EOPNOTSUPP if no device, or the one that
 * has the address, is a RoCE device; EADDRINUSE, EADDRNOTAVAIL, EIO, ETIMEDOUT, or with the signal's
 * reason.
 */
export async function listenDatagrams(
  provider: Provider,
  options: ListenOptions = {},
): Promise<DatagramListener> {
  checkDatagrams.listen(provider, options);
  const { host = ANY_ADDRESS, port = 0, backlog } = options;
  return await within(options, `serve datagrams at ${host} port ${port}`, async (signal) => {
    const address = await orAbort(addressOf(host), signal);
    return await owned(await provider.createId({ datagrams: true }), signal, async (id) => {
      await orAbort(id.bindAddr({ address, port }), signal);
      await orAbort(id.listen(backlog), signal);
      return new RequestListener(id, id.localAddress ?? { address, port }, requestOf, (given) =>
        checkDatagrams.accept(given),
      );
    });
  });
}

function requestOf({ id, privateData }: CMEvent): DatagramRequest {
  return {
    id,
    privateData,
    peerAddress: id.peerAddress,
    async accept(options: AcceptDatagramsOptions = {}) {
      checkDatagrams.accept(options);
      return await within(options, 'accept', (signal) =>
        owned(id, signal, () =>
          openEndpoint(id, { ...options, signal }, async () => {
            await id.accept({ privateData: options.privateData });
            return {};
          }),
        ),
      );
    },
    async answer(qp: QP, options: AnswerDatagramsOptions = {}) {
      checkDatagrams.answer(qp, options);
      const { qkey, privateData: data } = options;
      await within(options, 'answer', (signal) =>
        owned(id, signal, () => orAbort(id.accept({ qp, qkey, privateData: data }), signal)),
      );
      await id.close();
    },
    async reject(reason?: Uint8Array) {
      checkDatagrams.reject(reason);
      await id.reject(reason);
      await id.close();
    },
  };
}

/**
 * Creates the queue pair of an id and its supporting objects, then calls `begin` with the id; the result
 * becomes part of the endpoint. Closes everything but the id if either fails.
 */
async function openEndpoint<T extends object>(
  id: ConnectionId,
  options: DatagramOptions,
  begin: (parts: ConnectionParts, undo: Undo) => Promise<T>,
): Promise<DatagramEndpoint & T> {
  const undo: Undo = [];
  try {
    const init = { type: QPType.ud, ...queueSizes(options) };
    const parts = await createParts(id, options, init, undo);
    await orAbort(Promise.resolve(options.prepare?.(parts)), options.signal);
    const more = await begin(parts, undo);
    return Object.assign(new OpenEndpoint(parts, undo), more);
  } catch (error) {
    await id.close();
    await undoAll(undo);
    throw error;
  }
}

/** The `DatagramEndpoint` over the queue pair of an id. */
class OpenEndpoint implements DatagramEndpoint {
  readonly id: ConnectionId;
  readonly context: ConnectionParts['context'];
  readonly pd: ConnectionParts['pd'];
  readonly cq: ConnectionParts['cq'];
  readonly qp: QP;
  readonly #undo: Undo;

  constructor({ id, context, pd, cq, qp }: ConnectionParts, undo: Undo) {
    this.id = id;
    this.context = context;
    this.pd = pd;
    this.cq = cq;
    this.qp = qp;
    this.#undo = undo;
  }

  async answerTo(wc: Pick<WC, 'srcQp'>, buffer: Uint8Array): Promise<OwnedDestination> {
    checkDatagrams.answerTo(wc, buffer);
    const { sgid, dgid } = parseGrh(buffer);
    return await this.#destination(sgid, dgid, wc.srcQp);
  }

  async join(group: string): Promise<OwnedDestination> {
    checkDatagrams.join(group);
    const gid = addressGid(group);
    await this.qp.attachMcast(gid);
    try {
      return await this.#destination(gid, undefined, GROUP_QPN);
    } catch (error) {
      await this.qp.detachMcast(gid);
      throw error;
    }
  }

  async leave(group: string): Promise<void> {
    checkDatagrams.leave(group);
    await this.qp.detachMcast(addressGid(group));
  }

  async close(): Promise<void> {
    await this.id.close();
    await undoAll(this.#undo);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** `own`: the GID to send from; the id's own address if it is not one of the port's. */
  async #destination(
    dgid: string,
    own: string | undefined,
    remoteQpNum: number,
  ): Promise<OwnedDestination> {
    const table = await this.context.queryGidTable();
    const address = addressGid(this.id.localAddress?.address ?? '');
    const entry = table.find(({ gid }) => gid === own) ?? table.find(({ gid }) => gid === address);
    if (entry === undefined) {
      throw new VerbsError('EADDRNOTAVAIL', 'the device no longer has the address of the endpoint');
    }
    const ah = await this.pd.createAH({ grh: { dgid, sgidIndex: entry.gidIndex } });
    return { ah, remoteQpNum, remoteQkey: RDMA_UDP_QKEY };
  }
}
