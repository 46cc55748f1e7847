/** Calls RPC procedures over RDMA. */
import { randomInt } from 'node:crypto';
import { Access } from '#contract/verbs/enums';
import { invalid, isVerbsError } from '#contract/verbs/errors';
import type { CancelSignal, Context, PD, Provider } from '#contract/verbs/provider';
import type { AllocatedMemory } from './allocated-memory.ts';
import {
  CallEncoder,
  type CallInProgress,
  calledName,
  decodeResult,
  type Invocation,
} from './call-encoder.ts';
import { CallMemory } from './call-memory.ts';
import type { AnyProcedure, AnyProgram, ArgsOf, ResultOf } from './core/program.ts';
import { Requester } from './core/requester.ts';
import type {
  CallOutcome,
  CallRequest,
  ExposedRegion,
  RequesterCounters,
  RequesterEffect,
} from './core/requester-types.ts';
import { emitMessage, messageSizeBytes } from './core/transport-header.ts';
import { XdrError } from './core/xdr-reader.ts';
import { DeadlineTimer, nowMs } from './deadline-timer.ts';
import { MessageCopies } from './message-copies.ts';
import type { CallOptions, RpcClient, RpcClientOptions } from './rpc-client-types.ts';
import { RpcError, textOf } from './rpc-error.ts';
import { type ClientConnection, ServerDialer } from './server-dialer.ts';
import { checkRpc } from './signatures.ts';

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
  checkRpc.connectRpc(provider, options);
  const client = new RdmaRpcClient(provider, options);
  await client.open();
  return client;
}

const NO_OPTIONS: CallOptions = Object.freeze({});
/** XIDs have 31 bits: V8 allocates an object for each larger number. */
const XID_MASK = 0x7fff_ffff;

function unknownProcedure({ name, procedures }: AnyProgram, procedure: string): string {
  const known = Object.keys(procedures);
  return `call: procedure '${procedure}' is not one of ${name}; there are ${known.join(', ')}`;
}

interface Pending extends CallInProgress {
  readonly options: CallOptions;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** Stops listening to the signal of the call, if it has one. */
  readonly forget: (() => void) | undefined;
  /** Memory opened to the server; set only while connected. */
  memory: CallMemory | undefined;
}

/** The two ends of the promise of a call. */
interface Settlers {
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

class RdmaRpcClient implements RpcClient {
  readonly #provider: Provider;
  readonly #dialer: ServerDialer;
  readonly #encoder: CallEncoder;
  readonly #requester: Requester;
  readonly #timer = new DeadlineTimer(() => {
    this.#requester.handleDeadline(nowMs());
    this.#drain();
  });
  readonly #copies = new MessageCopies();
  readonly #pending = new Map<number, Pending>();
  #connected: ClientConnection | undefined;
  #nextXid = randomInt(XID_MASK);
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
    this.#dialer = new ServerDialer(provider, options, this.#allocated);
    this.#encoder = new CallEncoder(options);
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
    options: CallOptions = NO_OPTIONS,
  ): Promise<ResultOf<P['procedures'][K]>> {
    return new Promise((resolve, reject) => {
      // Checked only if something is unusual: this is called for every operation of a server.
      if (options !== NO_OPTIONS || program?.procedures?.[procedure] === undefined) {
        checkRpc.call(program, procedure, args, options);
      }
      const described: AnyProcedure | undefined = program.procedures[procedure];
      if (described === undefined) throw invalid(unknownProcedure(program, procedure));
      // The codec's result has the type that the description declares.
      const settlers: Settlers = { resolve: resolve as (result: unknown) => void, reject };
      const call = { program, name: procedure, procedure: described, args, options };
      this.#start(call, settlers);
    });
  }

  async allocate(lengthBytes: number): Promise<Uint8Array> {
    checkRpc.allocate(lengthBytes);
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
    await this.#dialer.cancel();
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
    await this.#hangUp();
    const home = await this.#home?.catch(() => undefined);
    await home?.context.close();
    // The last tasks to end may have set it.
    this.#timer.clear();
  }

  // Calls

  #start(call: Invocation, { resolve, reject }: Settlers): void {
    const { options } = call;
    const { signal } = options;
    const { program, name, procedure } = call;
    if (signal?.aborted === true) {
      reject(new RpcError('aborted', `${calledName(program, name)}: aborted`));
      return;
    }
    const xid = this.#takeXid();
    const writer = this.#encoder.takeWriter();
    let request: CallRequest;
    try {
      request = this.#encoder.encode(xid, call, writer);
    } catch (error) {
      this.#encoder.giveBack(writer);
      reject(new RpcError('unfit', `${calledName(program, name)}: ${textOf(error)}`));
      return;
    }
    const forget = signal === undefined ? undefined : this.#onAbort(xid, signal);
    // Field by field: spreading the call cost a fifth of the rate of small calls.
    this.#pending.set(xid, {
      xid,
      procedure,
      program,
      name,
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

  /** Aborts the call with the signal. Returns a function that undoes this. */
  #onAbort(xid: number, signal: CancelSignal): () => void {
    const onAbort = (): void => {
      this.#requester.abort(xid, 'aborted');
      this.#drain();
    };
    signal.addEventListener('abort', onAbort);
    return () => signal.removeEventListener('abort', onAbort);
  }

  #takeXid(): number {
    do {
      this.#nextXid = (this.#nextXid + 1) & XID_MASK;
    } while (this.#requester.uses(this.#nextXid));
    return this.#nextXid;
  }

  #complete(xid: number, outcome: CallOutcome): void {
    const pending = this.#pending.get(xid);
    if (pending === undefined) return;
    this.#pending.delete(xid);
    pending.forget?.();
    const { program, name } = pending;
    if (outcome.type === 'failure') {
      const { failure, text, outcomeUnknown } = outcome;
      pending.reject(
        new RpcError(failure, `${calledName(program, name)}: ${text}`, outcomeUnknown),
      );
    } else {
      try {
        // A reply in pool memory is only valid until the call ends.
        const pooled = pending.memory?.isPooled(outcome.bytes) === true;
        const bytes = pooled ? outcome.bytes.slice() : outcome.bytes;
        pending.resolve(decodeResult(pending, bytes, outcome));
      } catch (error) {
        const bad = error instanceof XdrError;
        const called = calledName(program, name);
        pending.reject(bad ? new RpcError('badReply', `${called}: ${error.message}`, true) : error);
      }
    }
    pending.memory?.giveBack();
    this.#encoder.giveBack(pending.writer);
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
        this.#connected?.channel.flushPart();
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
    const writer = this.#encoder.takeWriter();
    this.#connected?.channel.send(messageSizeBytes(header, payload), (target) =>
      emitMessage(writer, header, payload, target),
    );
    this.#encoder.giveBack(writer);
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
      const connected = await this.#dialer.dial();
      this.#begin(connected);
      this.#opening?.resolve();
      if (this.#closing !== undefined) await connected.channel.close();
    } catch (error) {
      this.#opening?.reject(error);
      this.#requester.disconnected(nowMs(), textOf(error));
    }
    this.#opening = undefined;
  }

  #begin(connected: ClientConnection): void {
    const { channel, thresholds, readsServed } = connected;
    this.#connected = connected;
    channel.start({
      handleMessage: (bytes, receive) => {
        // Results contain views of their message, which must outlive the receive buffer.
        this.#requester.handleMessage(this.#copies.copy(bytes));
        channel.repost(receive);
      },
      handleBatch: () => this.#drain(),
      handleEnd: (text) => {
        this.#run(this.#disconnect(text));
      },
    });
    this.#requester.connected(thresholds, readsServed);
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
