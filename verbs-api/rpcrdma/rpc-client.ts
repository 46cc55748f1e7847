/** Calls RPC procedures over RDMA. */
import { randomInt } from 'node:crypto';
import { Access } from '../contract/verbs/enums.ts';
import { isVerbsError, VerbsError } from '../contract/verbs/errors.ts';
import type {
  CancelSignal,
  ConnectionId,
  Context,
  PD,
  Provider,
  SocketAddress,
  WireOptions,
} from '../contract/verbs/provider.ts';
import { type AllocatedMemory, ConnectionRegions } from './allocated-memory.ts';
import { CallMemory, type ConnectionMemory } from './call-memory.ts';
import type { Credential } from './core/credential.ts';
import { NFS_RDMA_PORT } from './core/nfs-port.ts';
import {
  type ConnectionTerms,
  emitPrivateData,
  encodableSizeBytes,
  inlineThresholds,
  parsePrivateData,
} from './core/private-data.ts';
import type { AnyProcedure, AnyProgram, ArgsOf, ResultOf } from './core/program.ts';
import { Requester } from './core/requester.ts';
import type {
  CallOutcome,
  CallRequest,
  ExposedRegion,
  RequesterCounters,
  RequesterEffect,
  RequesterOptions,
} from './core/requester-types.ts';
import {
  emitCredential,
  NO_AUTH,
  type OpaqueAuth,
  REPLY_HEADER_MIN_BYTES,
  readReplyHeader,
  writeCallHeader,
} from './core/rpc-message.ts';
import { emitMessage, messageSizeBytes } from './core/transport-header.ts';
import { type OpaquePadding, XdrError, XdrReader } from './core/xdr-reader.ts';
import { type Payload, XdrWriter } from './core/xdr-writer.ts';
import { DeadlineTimer, nowMs } from './deadline-timer.ts';
import { addressOf, textOf } from './host-address.ts';
import { MemoryExposer, WINDOWED_ACCESS } from './memory-exposer.ts';
import { MemoryPool } from './memory-pool.ts';
import { RdmaChannel } from './rdma-channel.ts';
import { errorOfOutcome, RpcError } from './rpc-error.ts';

/** Options of `connectRpc`. */
export interface RpcClientOptions {
  /** Name or IPv4 or IPv6 address. */
  readonly host: string;
  /** Default: the NFS over RDMA port. */
  readonly port?: number;
  /** Local address to connect from; also selects the device. */
  readonly source?: SocketAddress;
  /** Default credential of calls. Default: AUTH_NONE. */
  readonly credential?: Credential;
  /** Default timeout of calls. Default 30 000. */
  readonly timeoutMs?: number;
  /**
   * Bytes of a Send and of a receive, including the header, rounded down to a KiB. Default 4096.
   */
  readonly inlineBytes?: number;
  /**
   * Maximum bytes of a reply's verifier, to reserve space. Default 0: servers that accept AUTH_NONE
   * and AUTH_SYS return an empty one.
   */
  readonly verifierMaxBytes?: number;
  /** Credits, retries, RFC 5666 features. */
  readonly requester?: RequesterOptions;
  /** The server's preferred padding: calls that fit are sent as RDMA_MSGP. Default: none. */
  readonly padding?: OpaquePadding;
  /** Wire options of the connections. */
  readonly wire?: WireOptions;
}

/** Options of a call. */
export interface CallOptions {
  /** The caller's credential. Default: the client's. */
  readonly credential?: Credential;
  /** Timeout for the reply. Default: the client's. */
  readonly timeoutMs?: number;
  /** Aborts the call, which rejects with code `aborted`. */
  readonly signal?: CancelSignal;
  /**
   * Memory for the bulk results, in order: results that arrive by RDMA are placed there and
   * returned as views of it. Each must be as long as the procedure's `writeChunks` says. Default:
   * memory allocated by the call, which the caller keeps. Content past the end of a result is
   * undefined afterwards.
   */
  readonly bulkInto?: readonly Uint8Array[];
}

/** A connection to a server, re-established when it is lost. */
export interface RpcClient extends AsyncDisposable {
  /**
   * Calls a procedure.
   *
   * Resolves with the result once the server's access to the call's memory has ended. Bytes of
   * `args` must not change until then. Rejects with `RpcError`. Calls wait for credits in FIFO
   * order; replies arrive in any order.
   */
  call<P extends AnyProgram, K extends keyof P['procedures'] & string>(
    program: P,
    procedure: K,
    args: ArgsOf<P['procedures'][K]>,
    options?: CallOptions,
  ): Promise<ResultOf<P['procedures'][K]>>;
  /**
   * Allocates memory for bulk arguments and `bulkInto`, for use in many calls. The device accesses
   * it fastest, and calls open it to the server without a registration. Freed with the client.
   */
  allocate(lengthBytes: number): Promise<Uint8Array>;
  /** Totals of calls, replies and registrations so far. */
  readonly counters: Readonly<RequesterCounters>;
  /** Ends the connection; pending calls reject with `closed`. Idempotent. */
  close(): Promise<void>;
}

/**
 * Connects to a server.
 *
 * Resolves once connected; reconnects when a call needs it. Rejects with `VerbsError` like
 * `ConnectionId.resolveAddr` and `connect`.
 */
export async function connectRpc(
  provider: Provider,
  options: RpcClientOptions,
): Promise<RpcClient> {
  const client = new RdmaRpcClient(provider, options);
  await client.open();
  return client;
}

/** A pending call. */
interface Pending {
  readonly procedure: AnyProcedure;
  readonly called: string;
  readonly writer: XdrWriter;
  readonly options: CallOptions;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly forget: () => void;
  /** Memory opened to the server; set only while connected. */
  memory: CallMemory | undefined;
}

/** State of one connection. */
interface Connected {
  readonly channel: RdmaChannel;
  readonly memory: ConnectionMemory;
}

const DEFAULT_TIMEOUT_MS = 30_000;
const DEFAULT_INLINE_BYTES = 4096;
const DEFAULT_CREDITS = 32;
/** Maximum bytes in a connection's pool: long calls and replies. */
const POOL_BYTES_MAX = 64 << 20;
/** Queue slots for Reads besides the Sends; a client uses them only for RFC 5666 replies. */
const SPARE_DEPTH = 8;
/** The two ends of the promise of a call. */
interface Settlers {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** Send queue requests per call: open its memory, send it, close the memory. */
const REQUESTS_OF_CALL = 3;

class RdmaRpcClient implements RpcClient {
  readonly #provider: Provider;
  readonly #options: RpcClientOptions;
  readonly #terms: ConnectionTerms;
  readonly #requester: Requester;
  readonly #timer = new DeadlineTimer(() => {
    this.#requester.handleDeadline(nowMs());
    this.#drain();
  });
  readonly #pending = new Map<number, Pending>();
  readonly #writers: XdrWriter[] = [];
  #lastCredential: { readonly credential: Credential; readonly wire: OpaqueAuth } | undefined;
  #connected: Connected | undefined;
  /** The id of a connection being established. */
  #connecting: ConnectionId | undefined;
  #nextXid = randomInt(0x1_0000_0000);
  #draining = false;
  /** The promise of `open`: settles with the first connection attempt. */
  #opening: { resolve(): void; reject(error: unknown): void } | undefined;
  #home: Promise<{ readonly context: Context; readonly pd: PD }> | undefined;
  readonly #allocated: AllocatedMemory = new Map();
  /** Work that must end before the client has closed. */
  readonly #tasks = new Set<Promise<void>>();
  #closing: Promise<void> | undefined;

  constructor(provider: Provider, options: RpcClientOptions) {
    this.#provider = provider;
    this.#options = options;
    const inlineBytes = encodableSizeBytes(options.inlineBytes ?? DEFAULT_INLINE_BYTES);
    // CMPD-4.1-02 A peer must not invalidate: its reply to an aborted call, whose memory is closed
    // already, would end the connection.
    this.#terms = {
      remoteInvalidation: false,
      sendBytes: inlineBytes,
      receiveBytes: inlineBytes,
    };
    this.#requester = new Requester(options.requester);
  }

  get counters(): Readonly<RequesterCounters> {
    return this.#requester.counters;
  }

  /** Makes the first connection. */
  async open(): Promise<void> {
    try {
      await new Promise<void>((resolve, reject) => {
        this.#opening = { resolve, reject };
        this.#requester.open();
        this.#drain();
      });
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  call<P extends AnyProgram, K extends keyof P['procedures'] & string>(
    program: P,
    procedure: K,
    args: ArgsOf<P['procedures'][K]>,
    options: CallOptions = {},
  ): Promise<ResultOf<P['procedures'][K]>> {
    return new Promise((resolve, reject) => {
      const described: AnyProcedure | undefined = program.procedures[procedure];
      if (described === undefined) {
        throw new RangeError(`${program.name} has no procedure ${procedure}`);
      }
      // The codec's result has the type that the description declares.
      const settlers: Settlers = { resolve: resolve as (result: unknown) => void, reject };
      this.#start(program, procedure, described, args, options, settlers);
    });
  }

  async allocate(lengthBytes: number): Promise<Uint8Array> {
    this.#home ??= this.#openHome();
    const { pd } = await this.#home;
    const { buffer } = await pd.allocMR(lengthBytes, Access.localWrite);
    this.#allocated.set(buffer.buffer, buffer);
    return buffer;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    this.#requester.close();
    this.#drain();
    // Do not wait for a server that does not answer.
    await this.#connecting?.close();
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
    await this.#hangUp();
    const home = await this.#home?.catch(() => undefined);
    await home?.context.close();
    // The last tasks to end may have set it.
    this.#timer.clear();
  }

  // Calls

  #start(
    program: AnyProgram,
    name: string,
    procedure: AnyProcedure,
    args: unknown,
    options: CallOptions,
    { resolve, reject }: Settlers,
  ): void {
    const called = `${program.name} ${name}`;
    const { signal } = options;
    if (signal?.aborted === true) {
      reject(new RpcError('aborted', `${called}: aborted`));
      return;
    }
    const xid = this.#takeXid();
    const writer = this.#writers.pop() ?? new XdrWriter();
    const encode = (padding?: OpaquePadding): Payload => {
      writer.reset();
      writeCallHeader(writer, {
        xid,
        program: program.number,
        version: program.version,
        procedure: procedure.number,
        credential: this.#wireCredential(options.credential ?? this.#options.credential),
        verifier: NO_AUTH,
      });
      writer.limitBulk(procedure.readChunksMax ?? 0);
      if (padding !== undefined) writer.pad(padding);
      procedure.args.encode(writer, args);
      return writer.payload();
    };
    let request: CallRequest;
    try {
      request = this.#request(procedure, args, options, encode);
    } catch (error) {
      this.#writers.push(writer);
      reject(new RpcError('unfit', `${called}: ${textOf(error)}`));
      return;
    }
    const onAbort = (): void => {
      this.#requester.abort(xid, 'aborted');
      this.#drain();
    };
    signal?.addEventListener('abort', onAbort);
    const forget = (): void => signal?.removeEventListener('abort', onAbort);
    this.#pending.set(xid, {
      procedure,
      called,
      writer,
      options,
      resolve,
      reject,
      forget,
      memory: undefined,
    });
    this.#requester.call(xid, request);
    this.#drain();
  }

  #request(
    procedure: AnyProcedure,
    args: unknown,
    options: CallOptions,
    encode: (padding?: OpaquePadding) => Payload,
  ): CallRequest {
    const { padding, verifierMaxBytes = 0, timeoutMs = DEFAULT_TIMEOUT_MS } = this.#options;
    const resultBytes = procedure.writeChunks?.(args) ?? [];
    for (const [i, into] of (options.bulkInto ?? []).entries()) {
      const neededBytes = resultBytes[i];
      // RPCR-3.6-04 Chunks can only be offered for results that the binding names.
      if (neededBytes === undefined) throw new RangeError(`no bulk result for bulkInto[${i}]`);
      // RPCR2-3.4.6-01 Room for the largest result.
      if (into.length < neededBytes) {
        throw new RangeError(`bulkInto[${i}] of ${into.length} bytes, ${neededBytes} are needed`);
      }
    }
    let padded: CallRequest['padded'];
    if (padding !== undefined) {
      const { stream, ...rest } = encode(padding);
      padded = { padding, payload: { ...rest, stream: stream.slice() } };
    }
    return {
      payload: encode(),
      ...(padded === undefined ? {} : { padded }),
      resultBytes,
      replyMaxBytes: REPLY_HEADER_MIN_BYTES + verifierMaxBytes + procedure.resultMaxBytes(args),
      idempotent: procedure.idempotent ?? false,
      deadlineMs: nowMs() + (options.timeoutMs ?? timeoutMs),
    };
  }

  /** Most calls use the same credential: encode it once. */
  #wireCredential(credential: Credential | undefined): OpaqueAuth {
    if (credential === undefined) return NO_AUTH;
    if (this.#lastCredential?.credential !== credential) {
      this.#lastCredential = { credential, wire: emitCredential(credential) };
    }
    return this.#lastCredential.wire;
  }

  #takeXid(): number {
    do {
      this.#nextXid = (this.#nextXid + 1) >>> 0;
    } while (this.#requester.uses(this.#nextXid));
    return this.#nextXid;
  }

  #complete(xid: number, outcome: CallOutcome): void {
    const pending = this.#pending.get(xid);
    if (pending === undefined) return;
    this.#pending.delete(xid);
    pending.forget();
    if (outcome.type === 'failure') {
      const { failure, text, outcomeUnknown } = outcome;
      pending.reject(new RpcError(failure, `${pending.called}: ${text}`, outcomeUnknown));
    } else {
      try {
        pending.resolve(decodeResult(xid, pending, outcome));
      } catch (error) {
        const bad = error instanceof XdrError;
        pending.reject(
          bad ? new RpcError('badReply', `${pending.called}: ${error.message}`, true) : error,
        );
      }
    }
    pending.memory?.giveBack();
    this.#writers.push(pending.writer);
  }

  // Effects

  #drain(): void {
    // An effect may settle a promise whose handler calls in here again.
    if (this.#draining) return;
    this.#draining = true;
    try {
      for (;;) {
        const effect = this.#requester.pollEffect();
        if (effect === undefined) break;
        this.#carryOut(effect);
      }
    } finally {
      this.#draining = false;
    }
    this.#connected?.channel.flush();
    this.#timer.set(this.#requester.nextDeadlineMs);
  }

  #carryOut(effect: RequesterEffect): void {
    switch (effect.type) {
      case 'expose':
        this.#expose(effect);
        return;
      case 'transmit':
        this.#transmit(effect);
        return;
      case 'pull':
        this.#run(this.#pull(effect));
        return;
      case 'withdraw':
        this.#run(this.#withdraw(effect.xid));
        return;
      case 'complete':
        this.#complete(effect.xid, effect.outcome);
        return;
      case 'disconnect':
        this.#run(this.#abort(effect.text));
        return;
      case 'connect':
        this.#run(this.#connect());
        return;
    }
  }

  /** Makes `close` wait for work, which reports its result to the requester itself. */
  #run(work: Promise<void>): void {
    const task = work.finally(() => {
      this.#tasks.delete(task);
      this.#drain();
    });
    this.#tasks.add(task);
  }

  #expose({ xid, regions }: RequesterEffect & { readonly type: 'expose' }): void {
    const pending = this.#pending.get(xid);
    if (pending === undefined || this.#connected === undefined) return;
    pending.memory = new CallMemory(this.#connected.memory);
    try {
      const exposed = pending.memory.expose(regions, pending.options.bulkInto ?? []);
      if (exposed instanceof Promise) this.#run(this.#exposeLater(xid, exposed));
      else this.#requester.exposed(xid, exposed);
    } catch (error) {
      this.#requester.exposeFailed(xid, textOf(error));
    }
  }

  async #exposeLater(xid: number, exposing: Promise<readonly ExposedRegion[]>): Promise<void> {
    try {
      this.#requester.exposed(xid, await exposing);
    } catch (error) {
      this.#requester.exposeFailed(xid, textOf(error));
    }
  }

  #transmit(effect: RequesterEffect & { readonly type: 'transmit' }): void {
    const { header, payload } = effect;
    const writer = this.#writers.pop() ?? new XdrWriter();
    this.#connected?.channel.send(messageSizeBytes(header, payload), (target) =>
      emitMessage(writer, header, payload, target),
    );
    this.#writers.push(writer);
  }

  /** RFC 5666 §3.5: reads a reply from the server's memory. */
  async #pull(effect: RequesterEffect & { readonly type: 'pull' }): Promise<void> {
    const pending = this.#pending.get(effect.xid);
    const connected = this.#connected;
    if (pending === undefined || connected === undefined) return;
    pending.memory ??= new CallMemory(connected.memory);
    try {
      const chunks = await pending.memory.pull(connected.channel, effect.chunks);
      // The buffers return to the pool when the call completes; views of them may live longer.
      this.#requester.pulled(effect.xid, chunks);
    } catch (error) {
      // The requester learns of the connection's end separately.
      if (isVerbsError(error) && error.code === 'ENOTCONN') return;
      this.#requester.abort(effect.xid, textOf(error));
    }
  }

  async #withdraw(xid: number): Promise<void> {
    try {
      await this.#pending.get(xid)?.memory?.withdraw();
      this.#requester.withdrawn(xid);
    } catch (error) {
      this.#requester.withdrawFailed(xid, textOf(error));
    }
  }

  // Connections

  async #connect(): Promise<void> {
    try {
      const connected = await this.#establish();
      this.#opening?.resolve();
      if (this.#closing !== undefined) await connected.channel.close();
    } catch (error) {
      this.#opening?.reject(error);
      this.#requester.disconnected(nowMs(), textOf(error));
    }
    this.#opening = undefined;
  }

  async #establish(): Promise<Connected> {
    const { host, port = NFS_RDMA_PORT, source, wire, requester } = this.#options;
    const address = await addressOf(host);
    const id = await this.#provider.createId();
    this.#connecting = id;
    let channel: RdmaChannel | undefined;
    try {
      if (this.#closing !== undefined) throw new VerbsError('ECONNABORTED');
      await id.resolveAddr({ address, port }, source === undefined ? {} : { source });
      await id.resolveRoute();
      const credits = requester?.credits ?? DEFAULT_CREDITS;
      channel = await RdmaChannel.create(id, {
        receives: credits,
        inlineBytes: this.#terms.receiveBytes,
        sends: credits,
        sendDepth: REQUESTS_OF_CALL * credits + SPARE_DEPTH,
      });
      const memory = await this.#connectionMemory(channel);
      const established = await id.connect({
        privateData: emitPrivateData(this.#terms),
        ...(wire === undefined ? {} : { wire }),
      });
      const server = parsePrivateData(established.privateData);
      const connected = { channel, memory };
      this.#connected = connected;
      channel.start({
        handleMessage: (bytes, receive) => {
          // Results contain views of their message, which must outlive the receive buffer.
          this.#requester.handleMessage(bytes.slice());
          connected.channel.repost(receive);
        },
        handleBatch: () => this.#drain(),
        handleEnd: (text) => {
          this.#run(this.#disconnect(text));
        },
      });
      this.#requester.connected(
        inlineThresholds(this.#terms, server),
        established.responderResources !== 0,
      );
      return connected;
    } catch (error) {
      if (channel === undefined) await id.close();
      else await channel.close();
      throw error;
    } finally {
      this.#connecting = undefined;
    }
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

  /** Ends the connection; without grace, when the server violates the protocol. */
  async #abort(text: string): Promise<void> {
    if (this.#closing === undefined) await this.#connected?.channel.abort();
    await this.#disconnect(text);
  }

  async #disconnect(text: string): Promise<void> {
    if (this.#connected === undefined) return;
    await this.#hangUp();
    this.#requester.disconnected(nowMs(), text);
  }

  async #hangUp(): Promise<void> {
    const connected = this.#connected;
    this.#connected = undefined;
    try {
      await connected?.channel.close();
    } catch {
      // Memory that cannot be freed now is freed with the provider; calls must continue.
    }
  }

  async #openHome(): Promise<{ readonly context: Context; readonly pd: PD }> {
    const device = this.#connected?.channel.id.device;
    const context = await this.#provider.open(device);
    try {
      return { context, pd: await context.allocPD() };
    } catch (error) {
      await context.close();
      throw error;
    }
  }
}

function decodeResult(
  xid: number,
  pending: Pending,
  outcome: CallOutcome & { readonly type: 'reply' },
): unknown {
  // A reply in pool memory is only valid until the call ends.
  const bytes = pending.memory?.isPooled(outcome.bytes) ? outcome.bytes.slice() : outcome.bytes;
  const reader = new XdrReader(bytes, outcome.bulk);
  const header = readReplyHeader(reader);
  if (header.xid !== xid) throw new XdrError('the XID is that of another call');
  if (header.outcome.status !== 'success') throw errorOfOutcome(header.outcome, pending.called);
  if (outcome.padding !== undefined) reader.expectPadding(outcome.padding);
  const result = pending.procedure.result.decode(reader);
  reader.finish();
  return result;
}
