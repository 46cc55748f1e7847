/** One client of a server: connects the responder to a channel, and calls to the service. */
import { CallMemory, type ConnectionMemory } from './call-memory.ts';
import type { SegmentWrite } from './core/chunks.ts';
import type { InlineThresholds } from './core/private-data.ts';
import { Responder } from './core/responder.ts';
import type { ResponderEffect, ResponderOptions } from './core/responder-types.ts';
import { emitMessage, messageSizeBytes } from './core/transport-header.ts';
import { XdrError } from './core/xdr-reader.ts';
import { emitPayload, type Payload, XdrWriter } from './core/xdr-writer.ts';
import { DeadlineTimer, nowMs } from './deadline-timer.ts';
import { MemoryExposer } from './memory-exposer.ts';
import { MemoryPool, type PoolBuffer } from './memory-pool.ts';
import type { RdmaChannel } from './rdma-channel.ts';
import { textOf } from './rpc-error.ts';
import type { RpcService } from './rpc-service.ts';

interface ServerConnectionParts {
  readonly channel: RdmaChannel;
  readonly service: RpcService;
  readonly thresholds: InlineThresholds;
  readonly options: ResponderOptions;
  /** False if no outbound RDMA Reads were negotiated. */
  readonly canRead: boolean;
  /** Maximum bytes of buffers for calls and replies. */
  readonly bufferBytesMax: number;
  readonly address: string;
  /** Called when the connection has ended and all its resources are freed. */
  readonly onEnd: (text: string) => void;
}

interface Call {
  readonly memory: CallMemory;
  readonly writer: XdrWriter;
  /** Set when copying a result had to wait for memory: later work must keep its order. */
  order: Promise<void> | undefined;
}

export class ServerConnection {
  readonly #parts: ServerConnectionParts;
  readonly #responder: Responder;
  readonly #memory: ConnectionMemory;
  readonly #calls = new Map<number, Call>();
  readonly #writers: XdrWriter[] = [];
  readonly #headerWriter = new XdrWriter();
  readonly #timer = new DeadlineTimer(() => {
    this.#responder.handleDeadline(nowMs());
    this.#drain();
  });
  #draining = false;
  #over = false;
  /** Running handlers, and pending memory operations. */
  readonly #tasks = new Set<Promise<void>>();
  #closing: Promise<void> | undefined;

  constructor(parts: ServerConnectionParts) {
    this.#parts = parts;
    this.#responder = new Responder(parts.thresholds, parts.options, parts.canRead);
    this.#memory = {
      pool: new MemoryPool(parts.channel.pd, parts.bufferBytesMax),
      // RFC 8166 servers expose no memory; RFC 5666 replies by read list are rare.
      exposer: new MemoryExposer(parts.channel, false),
      regionOf: () => undefined,
    };
    parts.channel.start({
      handleMessage: (bytes, receive) => {
        this.#responder.handleMessage(bytes, receive, nowMs());
      },
      handleBatch: () => this.#drain(),
      handleEnd: (text) => void this.close(text),
    });
  }

  /** Ends the connection and waits for running handlers. */
  close(text = 'the server was closed'): Promise<void> {
    this.#closing ??= this.#close(text);
    return this.#closing;
  }

  /** Resets the connection: the peer violates the protocol. */
  async #abort(text: string): Promise<void> {
    await this.#parts.channel.abort();
    await this.close(text);
  }

  async #close(text: string): Promise<void> {
    this.#over = true;
    this.#timer.clear();
    try {
      await this.#parts.channel.close();
    } catch {
      // Memory that cannot be freed now is freed with the provider.
    }
    while (this.#tasks.size > 0) await Promise.all(this.#tasks);
    this.#parts.onEnd(text);
  }

  #drain(): void {
    // A synchronous handler gets here in the middle of a drain.
    if (this.#draining || this.#over) return;
    this.#draining = true;
    try {
      for (;;) {
        const effect = this.#responder.pollEffect();
        if (effect === undefined) break;
        this.#carryOut(effect);
        this.#parts.channel.flushPart();
      }
    } finally {
      this.#draining = false;
    }
    this.#parts.channel.flush();
    // A failed post ends the connection.
    if (!this.#over) this.#timer.set(this.#responder.nextDeadlineMs);
  }

  #carryOut(effect: ResponderEffect): void {
    switch (effect.type) {
      case 'pull':
        this.#run(this.#pull(effect));
        return;
      case 'dispatch':
        this.#dispatch(effect);
        return;
      case 'push':
        this.#inOrder(effect.call, (call) => this.#push(call, effect));
        return;
      case 'expose':
        this.#run(this.#expose(effect));
        return;
      case 'transmit':
        this.#inOrder(effect.call, () => this.#transmit(effect));
        return;
      case 'repost':
        this.#parts.channel.repost(effect.receive);
        return;
      case 'release':
        this.#release(effect.call);
        return;
      case 'disconnect':
        void this.#abort(effect.text);
        return;
    }
  }

  #run(work: Promise<void>): void {
    const task = work.catch((error: unknown) => {
      // Without memory neither a reply nor an error can be sent (RPCR2-4.5.4-01).
      void this.close(textOf(error));
    });
    this.#tasks.add(task);
    void task.then(() => {
      this.#tasks.delete(task);
      this.#drain();
    });
  }

  /** Runs work of a call after its pending work. */
  #inOrder(number: number, work: (call: Call) => Promise<void> | undefined): void {
    const call = this.#callOf(number);
    if (call.order === undefined) {
      call.order = work(call);
    } else {
      call.order = call.order.then(() => (this.#over ? undefined : work(call)));
    }
    if (call.order === undefined) return;
    const order = call.order.then(() => {
      if (call.order === order) call.order = undefined;
    });
    call.order = order;
    this.#run(order);
  }

  #callOf(number: number): Call {
    let call = this.#calls.get(number);
    if (call === undefined) {
      const writer = this.#writers.pop() ?? new XdrWriter();
      call = { memory: new CallMemory(this.#memory), writer, order: undefined };
      this.#calls.set(number, call);
    }
    return call;
  }

  async #pull(effect: ResponderEffect & { readonly type: 'pull' }): Promise<void> {
    const { memory } = this.#callOf(effect.call);
    const chunks = await memory.pull(this.#parts.channel, effect.chunks);
    this.#responder.pulled(effect.call, chunks, nowMs());
  }

  #dispatch(effect: ResponderEffect & { readonly type: 'dispatch' }): void {
    const { memory, writer } = this.#callOf(effect.call);
    writer.reset();
    const { service, address } = this.#parts;
    const finish = (): void => {
      this.#responder.reply(effect.call, writer.payload(), nowMs());
    };
    try {
      const running = service.answer(effect.reader, writer, {
        address,
        bulkBuffer: async (lengthBytes) => {
          if (lengthBytes === 0) return new Uint8Array(0);
          return (await memory.take(lengthBytes)).bytes;
        },
      });
      if (running === undefined) finish();
      else this.#run(running.then(finish));
    } catch (error) {
      if (!(error instanceof XdrError)) throw error;
      this.#responder.refuse(effect.call, nowMs());
    }
  }

  /** Writes a result to the client from pool memory. */
  #push(
    call: Call,
    effect: ResponderEffect & { readonly type: 'push' },
  ): Promise<void> | undefined {
    const { bytes, writes } = effect;
    if (bytes instanceof Uint8Array) {
      const buffer = call.memory.bufferOf(bytes);
      if (buffer !== undefined) {
        this.#write(buffer, bytes.byteOffset - buffer.mr.buffer.byteOffset, writes);
        return undefined;
      }
    }
    return this.#copyAndWrite(call, bytes, writes);
  }

  async #copyAndWrite(
    call: Call,
    bytes: Uint8Array | Payload,
    writes: readonly SegmentWrite[],
  ): Promise<void> {
    const buffer = await call.memory.take(
      bytes instanceof Uint8Array ? bytes.length : bytes.lengthBytes,
    );
    if (bytes instanceof Uint8Array) buffer.bytes.set(bytes);
    else emitPayload(bytes, buffer.bytes, 0);
    if (!this.#over) this.#write(buffer, 0, writes);
  }

  #write(buffer: PoolBuffer, at: number, writes: readonly SegmentWrite[]): void {
    for (const { start, lengthBytes, handle, offset } of writes) {
      const source = buffer.mr.sge(at + start, lengthBytes);
      this.#parts.channel.write({ handle, offset }, source);
    }
  }

  #transmit(effect: ResponderEffect & { readonly type: 'transmit' }): undefined {
    const { header, payload, receive, call } = effect;
    const { channel } = this.#parts;
    const sent = (): void => this.#responder.sent(call, nowMs());
    // A reply that is in its buffer, and that no memory waits for, needs no completion, which would wake this
    // process and the device.
    const forgotten = channel.sendsAtOnce && this.#callOf(call).memory.empty;
    channel.send(
      messageSizeBytes(header, payload),
      (target) => emitMessage(this.#headerWriter, header, payload, target),
      // Results may be views of the receive buffer.
      forgotten ? { receive } : { receive, done: sent },
    );
    if (forgotten) sent();
    return undefined;
  }

  async #expose(effect: ResponderEffect & { readonly type: 'expose' }): Promise<void> {
    const { memory } = this.#callOf(effect.call);
    const { payload } = effect;
    const buffer = await memory.take(payload.lengthBytes);
    emitPayload(payload, buffer.bytes, 0);
    const { handle, offset } = await memory.exposeSource(buffer);
    const segment = { handle, offset, lengthBytes: buffer.bytes.length };
    this.#responder.exposed(effect.call, segment, nowMs());
  }

  #release(number: number): void {
    const call = this.#calls.get(number);
    if (call === undefined) return;
    this.#calls.delete(number);
    const withdrawing = call.memory.withdraw();
    if (withdrawing === undefined) this.#recycle(call);
    else this.#run(withdrawing.then(() => this.#recycle(call)));
  }

  #recycle(call: Call): void {
    call.memory.giveBack();
    this.#writers.push(call.writer);
  }
}
