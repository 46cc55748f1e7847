/** The memory of one call: memory opened to the peer, and buffers read from the peer. */
import { Access } from '#contract/verbs/enums';
import type { MR } from '#contract/verbs/provider';
import type { ReadChunk } from './core/chunks.ts';
import type { ExposedRegion, Region } from './core/requester-types.ts';
import type { Exposure, MemoryExposer } from './memory-exposer.ts';
import type { MemoryPool, PoolBuffer } from './memory-pool.ts';
import type { RdmaChannel } from './rdma-channel.ts';

/** State shared by the calls of one connection. */
export interface ConnectionMemory {
  readonly pool: MemoryPool;
  readonly exposer: MemoryExposer;
  /** The registration that contains the program's memory, if it has one on this connection. */
  regionOf(bytes: Uint8Array): MR | Promise<MR> | undefined;
}

const NO_BYTES = new Uint8Array(0);
/** RPCR-3.4-12 A peer may only read sources and only write sinks. */
const SOURCE_ACCESS = Access.remoteRead;
const SINK_ACCESS = Access.remoteWrite;

export class CallMemory {
  readonly #shared: ConnectionMemory;
  /** Made when needed: most calls have none. */
  #buffers: PoolBuffer[] | undefined;
  #exposed: Exposure[] | undefined;
  #exposing: Promise<unknown> | undefined;
  /** Buffers on their way. */
  #taking = 0;

  constructor(shared: ConnectionMemory) {
    this.#shared = shared;
  }

  /** Takes pool memory for this call; synchronous when a buffer is free. */
  take(lengthBytes: number): PoolBuffer | Promise<PoolBuffer> {
    const taken = this.#shared.pool.take(lengthBytes);
    return taken instanceof Promise ? this.#await(taken) : this.#keep(taken);
  }

  /** True if the call holds neither buffers nor memory open to the peer. */
  get empty(): boolean {
    if (this.#taking > 0 || this.#buffers !== undefined) return false;
    return this.#exposed === undefined && this.#exposing === undefined;
  }

  async #await(taking: Promise<PoolBuffer>): Promise<PoolBuffer> {
    this.#taking += 1;
    try {
      return this.#keep(await taking);
    } finally {
      this.#taking -= 1;
    }
  }

  #keep(buffer: PoolBuffer): PoolBuffer {
    this.#buffers ??= [];
    this.#buffers.push(buffer);
    return buffer;
  }

  /** The buffer of this call that `bytes` is a view of, or undefined. */
  bufferOf(bytes: Uint8Array): PoolBuffer | undefined {
    return this.#buffers?.find(({ mr }) => {
      const start = bytes.byteOffset - mr.buffer.byteOffset;
      const inside = start >= 0 && start + bytes.length <= mr.length;
      return inside && bytes.buffer === mr.buffer.buffer;
    });
  }

  /** True for views of memory that will return to the pool. */
  isPooled(bytes: Uint8Array): boolean {
    return this.bufferOf(bytes) !== undefined;
  }

  /**
   * Opens regions to the peer; synchronous when windows and memory are available. If it throws or
   * rejects, some regions may be open: `withdraw` closes them.
   */
  expose(
    regions: readonly Region[],
    bulkInto: readonly Uint8Array[],
  ): readonly ExposedRegion[] | Promise<readonly ExposedRegion[]> {
    const opened: ExposedRegion[] = [];
    const opening: Promise<unknown>[] = [];
    try {
      for (const [i, region] of regions.entries()) {
        const one = after(this.#exposeOne(region, bulkInto), (exposed) => {
          opened[i] = exposed;
        });
        if (one instanceof Promise) opening.push(one);
      }
    } finally {
      // `withdraw` waits for all of them, including those after a failed one.
      if (opening.length > 0) this.#exposing = Promise.allSettled(opening);
    }
    return opening.length === 0 ? opened : Promise.all(opening).then(() => opened);
  }

  /** Opens a buffer of this call to reads by the peer. */
  async exposeSource({ bytes, mr }: PoolBuffer): Promise<ExposedRegion> {
    return await this.#open(bytes, SOURCE_ACCESS, mr);
  }

  /** Reads the peer's chunks, each into its own buffer. Rejects when the connection ends. */
  async pull(channel: RdmaChannel, chunks: readonly ReadChunk[]): Promise<readonly Uint8Array[]> {
    const sinks: (PoolBuffer | undefined)[] = [];
    for (const chunk of chunks) {
      sinks.push(chunk.lengthBytes === 0 ? undefined : await this.take(chunk.lengthBytes));
    }
    const read = new Promise<void>((resolve) => {
      let left = 1;
      const done = (): void => {
        left -= 1;
        if (left === 0) resolve();
      };
      for (const [i, chunk] of chunks.entries()) {
        const sink = sinks[i];
        let start = 0;
        for (const { handle, offset, lengthBytes } of chunk.segments) {
          if (lengthBytes === 0 || sink === undefined) continue;
          left += 1;
          channel.read({ handle, offset }, sink.mr.sge(start, lengthBytes), done);
          start += lengthBytes;
        }
      }
      channel.flush();
      done();
    });
    await channel.whileOpen(read);
    return sinks.map((sink) => sink?.bytes ?? NO_BYTES);
  }

  /** Ends the peer's access; returns undefined when it has none. */
  withdraw(): Promise<void> | undefined {
    if (this.#exposing === undefined && this.#exposed === undefined) return undefined;
    return this.#withdraw();
  }

  /** Returns the buffers to the pool, after `withdraw`. */
  giveBack(): void {
    const buffers = this.#buffers;
    if (buffers === undefined) return;
    this.#buffers = undefined;
    for (const buffer of buffers) this.#shared.pool.giveBack(buffer);
  }

  async #withdraw(): Promise<void> {
    await this.#exposing;
    const exposed = this.#exposed ?? [];
    this.#exposed = undefined;
    await Promise.all(exposed.map((exposure) => exposure.close()));
  }

  #exposeOne(
    region: Region,
    bulkInto: readonly Uint8Array[],
  ): ExposedRegion | Promise<ExposedRegion> {
    switch (region.kind) {
      case 'source': {
        if (region.bytes.length === 0) return NOTHING;
        return this.#openOwn(region.bytes, SOURCE_ACCESS);
      }
      case 'result': {
        if (region.lengthBytes === 0) return NOTHING;
        const into = bulkInto[region.result]?.subarray(0, region.lengthBytes);
        return this.#openOwn(into ?? new Uint8Array(region.lengthBytes), SINK_ACCESS);
      }
      case 'reply':
        return after(this.take(region.lengthBytes), ({ bytes, mr }) =>
          this.#open(bytes, SINK_ACCESS, mr),
        );
    }
  }

  #openOwn(bytes: Uint8Array, access: number): ExposedRegion | Promise<ExposedRegion> {
    return after(this.#shared.regionOf(bytes), (mr) => this.#open(bytes, access, mr));
  }

  #open(
    bytes: Uint8Array,
    access: number,
    mr: MR | undefined,
  ): ExposedRegion | Promise<ExposedRegion> {
    return after(this.#shared.exposer.expose(bytes, access, mr), (exposure) => {
      this.#exposed ??= [];
      this.#exposed.push(exposure);
      return exposure.region;
    });
  }
}

/**
 * Applies `next` synchronously when the value is already available: a promise would cost an extra post.
 */
function after<T, U>(value: T | Promise<T>, next: (value: T) => U | Promise<U>): U | Promise<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}

const NOTHING: ExposedRegion = { handle: 0, offset: 0n, bytes: NO_BYTES };
