/** The memory of one call: what the peer is let into, and what is read from the peer. */
import { Access } from '../contract/enums.ts';
import type { MR } from '../contract/provider.ts';
import type { ReadChunk } from './core/chunks.ts';
import type { ExposedRegion, Region } from './core/requester-types.ts';
import type { Exposure, MemoryExposer } from './memory-exposer.ts';
import type { MemoryPool, PoolBuffer } from './memory-pool.ts';
import type { RdmaChannel } from './rdma-channel.ts';

/** What the calls of one connection share. */
export interface ConnectionMemory {
  readonly pool: MemoryPool;
  readonly exposer: MemoryExposer;
  /** The registration that memory of the program lies in, if it has one here. */
  regionOf(octets: Uint8Array): MR | Promise<MR> | undefined;
}

const NO_OCTETS = new Uint8Array(0);
/** RPCR-3.4-12 A peer reads sources and writes sinks, nothing else. */
const SOURCE_ACCESS = Access.remoteRead;
const SINK_ACCESS = Access.remoteWrite;

/** See the module's comment. */
export class CallMemory {
  readonly #shared: ConnectionMemory;
  readonly #buffers: PoolBuffer[] = [];
  readonly #exposed: Exposure[] = [];
  #exposing: Promise<unknown> | undefined;

  constructor(shared: ConnectionMemory) {
    this.#shared = shared;
  }

  /** Memory of the pool for this call, at once when a buffer is free. */
  take(lengthBytes: number): PoolBuffer | Promise<PoolBuffer> {
    return after(this.#shared.pool.take(lengthBytes), (buffer) => {
      this.#buffers.push(buffer);
      return buffer;
    });
  }

  /** The buffer of this call that `octets` are a view of, or undefined. */
  bufferOf(octets: Uint8Array): PoolBuffer | undefined {
    return this.#buffers.find(({ mr }) => {
      const start = octets.byteOffset - mr.buffer.byteOffset;
      const inside = start >= 0 && start + octets.length <= mr.length;
      return inside && octets.buffer === mr.buffer.buffer;
    });
  }

  /** True for views of memory that goes back to the pool. */
  isPooled(octets: Uint8Array): boolean {
    return this.bufferOf(octets) !== undefined;
  }

  /**
   * Lets the peer into regions, at once when all is there that it takes. When it throws or rejects,
   * some may be open: `withdraw` closes them.
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
      // `withdraw` waits for all of them, those that come after a failed one included.
      if (opening.length > 0) this.#exposing = Promise.allSettled(opening);
    }
    return opening.length === 0 ? opened : Promise.all(opening).then(() => opened);
  }

  /** Lets the peer read a buffer of this call. */
  async exposeSource({ octets, mr }: PoolBuffer): Promise<ExposedRegion> {
    return await this.#open(octets, SOURCE_ACCESS, mr);
  }

  /** Reads chunks of the peer, each into a buffer of its own. Rejects with the connection's end. */
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
    return sinks.map((sink) => sink?.octets ?? NO_OCTETS);
  }

  /** Ends the peer's access. */
  async withdraw(): Promise<void> {
    await this.#exposing;
    await Promise.all(this.#exposed.splice(0).map((exposure) => exposure.close()));
  }

  /** Gives the buffers back, after `withdraw`. */
  giveBack(): void {
    for (const buffer of this.#buffers.splice(0)) this.#shared.pool.giveBack(buffer);
  }

  #exposeOne(
    region: Region,
    bulkInto: readonly Uint8Array[],
  ): ExposedRegion | Promise<ExposedRegion> {
    switch (region.kind) {
      case 'source': {
        if (region.octets.length === 0) return NOTHING;
        return this.#openOwn(region.octets, SOURCE_ACCESS);
      }
      case 'result': {
        if (region.lengthBytes === 0) return NOTHING;
        const into = bulkInto[region.result]?.subarray(0, region.lengthBytes);
        return this.#openOwn(into ?? new Uint8Array(region.lengthBytes), SINK_ACCESS);
      }
      case 'reply':
        return after(this.take(region.lengthBytes), ({ octets, mr }) =>
          this.#open(octets, SINK_ACCESS, mr),
        );
    }
  }

  #openOwn(octets: Uint8Array, access: number): ExposedRegion | Promise<ExposedRegion> {
    return after(this.#shared.regionOf(octets), (mr) => this.#open(octets, access, mr));
  }

  #open(
    octets: Uint8Array,
    access: number,
    mr: MR | undefined,
  ): ExposedRegion | Promise<ExposedRegion> {
    return after(this.#shared.exposer.expose(octets, access, mr), (exposure) => {
      this.#exposed.push(exposure);
      return exposure.region;
    });
  }
}

/** Goes on with a value now if it is there now: a promise costs a post of its own. */
function after<T, U>(value: T | Promise<T>, next: (value: T) => U | Promise<U>): U | Promise<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}

const NOTHING: ExposedRegion = { handle: 0, offset: 0n, octets: NO_OCTETS };
