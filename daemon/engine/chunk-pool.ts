/**
 * Large buffers shared by all streams of a device.
 *
 * A stream holds a chunk only while octets of its own are in it: output that the socket has not
 * taken, or an FPDU that has come in part. A thousand idle streams hold none.
 */

/**
 * Smallest chunk: the largest FPDU that a peer can announce (ULPDU_Length 65535, 65544 octets) and
 * its 130 markers at worst. What we send is shorter (MPA-3-08, MPA-4.3-15).
 */
export const CHUNK_MIN_BYTES = 66064;

/** How a pool makes and keeps its chunks. */
export interface ChunkPoolOptions {
  /** Octets per chunk, at least `CHUNK_MIN_BYTES`. Default 262,144: three large FPDUs share one. */
  readonly chunkBytes?: number;
  /** Free chunks kept for reuse; more are left to the garbage collector. Default 64 (16 MiB). */
  readonly keptMax?: number;
  /** Makes a chunk; its content may be anything. Default: a new `Uint8Array`. */
  readonly allocate?: (bytes: number) => Uint8Array;
}

/** A stack of free chunks. It never refuses; each stream bounds what it takes. */
export class ChunkPool {
  readonly chunkBytes: number;
  readonly #keptMax: number;
  readonly #allocate: (bytes: number) => Uint8Array;
  readonly #free: Uint8Array[] = [];
  #inUse = 0;

  constructor(options: ChunkPoolOptions = {}) {
    this.chunkBytes = options.chunkBytes ?? 262_144;
    this.#keptMax = options.keptMax ?? 64;
    this.#allocate = options.allocate ?? ((bytes) => new Uint8Array(bytes));
    if (this.chunkBytes < CHUNK_MIN_BYTES) {
      throw new RangeError(`a chunk of ${this.chunkBytes} octets cannot hold every FPDU`);
    }
  }

  /** A chunk of `chunkBytes` octets with leftovers in it, the caller's until it is released. */
  acquire(): Uint8Array {
    this.#inUse++;
    return this.#free.pop() ?? this.#allocate(this.chunkBytes);
  }

  /** Takes back a chunk of this pool. The caller keeps no view of it. */
  release(chunk: Uint8Array): void {
    this.#inUse--;
    if (this.#free.length < this.#keptMax) this.#free.push(chunk);
  }

  /** Chunks acquired and not released. */
  get inUseCount(): number {
    return this.#inUse;
  }
}
