/** The memory of one call: what the peer is let into, and what is read from the peer. */
import { Access } from '../contract/enums.ts';
import type { MR, PD } from '../contract/provider.ts';
import type { ReadChunk } from './core/chunks.ts';
import type { ExposedRegion, Region } from './core/requester-types.ts';
import type { MemoryPool, PoolBuffer } from './memory-pool.ts';
import type { RdmaChannel } from './rdma-channel.ts';

const NO_OCTETS = new Uint8Array(0);
/** RPCR-3.4-12 A peer reads sources and writes sinks, nothing else. */
const SOURCE_ACCESS = Access.remoteRead;
const SINK_ACCESS = Access.localWrite | Access.remoteWrite;

/** See the module's comment. */
export class CallMemory {
  readonly #pd: PD;
  readonly #pool: MemoryPool;
  readonly #buffers: PoolBuffer[] = [];
  readonly #exposed: MR[] = [];
  #exposing: Promise<unknown> | undefined;

  constructor(pd: PD, pool: MemoryPool) {
    this.#pd = pd;
    this.#pool = pool;
  }

  /** Memory of the pool for this call. */
  async take(lengthBytes: number): Promise<PoolBuffer> {
    const taken = this.#pool.take(lengthBytes);
    const buffer = taken instanceof Promise ? await taken : taken;
    this.#buffers.push(buffer);
    return buffer;
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

  /** Lets the peer into regions. When it rejects, some may be open: `withdraw` closes them. */
  async expose(
    regions: readonly Region[],
    bulkInto: readonly Uint8Array[],
  ): Promise<readonly ExposedRegion[]> {
    const works = regions.map((region) => this.#exposeOne(region, bulkInto));
    // `withdraw` waits for all of them, those that come after a failed one included.
    this.#exposing = Promise.allSettled(works);
    return await Promise.all(works);
  }

  /** Lets the peer read `octets`. */
  async exposeSource(octets: Uint8Array): Promise<ExposedRegion> {
    return await this.#register(octets, SOURCE_ACCESS);
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
    await Promise.all(this.#exposed.splice(0).map((mr) => mr.close()));
  }

  /** Gives the buffers back, after `withdraw`. */
  giveBack(): void {
    for (const buffer of this.#buffers.splice(0)) this.#pool.giveBack(buffer);
  }

  async #exposeOne(region: Region, bulkInto: readonly Uint8Array[]): Promise<ExposedRegion> {
    switch (region.kind) {
      case 'source': {
        if (region.octets.length === 0) return NOTHING;
        return await this.#register(region.octets, SOURCE_ACCESS);
      }
      case 'result': {
        if (region.lengthBytes === 0) return NOTHING;
        const into = bulkInto[region.result]?.subarray(0, region.lengthBytes);
        return await this.#register(into ?? new Uint8Array(region.lengthBytes), SINK_ACCESS);
      }
      case 'reply': {
        const { octets } = await this.take(region.lengthBytes);
        return await this.#register(octets, SINK_ACCESS);
      }
    }
  }

  async #register(octets: Uint8Array, access: number): Promise<ExposedRegion> {
    const mr = await this.#pd.regMR(octets, access);
    this.#exposed.push(mr);
    return { handle: mr.rkey, offset: mr.address, octets };
  }
}

const NOTHING: ExposedRegion = { handle: 0, offset: 0n, octets: NO_OCTETS };
