/**
 * Large buffers shared by all streams of a device.
 *
 * A stream holds a chunk only while it has bytes in it: output that the socket has not taken, or a
 * large part of an incomplete FPDU. A thousand idle streams hold none.
 */

/**
 * Smallest chunk: the largest FPDU that a peer can announce (ULPDU_Length 65535, 65544 bytes) and
 * its 130 markers at worst. We send shorter ones (MPA-3-08, MPA-4.3-15).
 */
export const CHUNK_MIN_BYTES = 66064;

/** How a pool makes and keeps its chunks. */
interface ChunkPoolOptions {
  /** Bytes per chunk, at least `CHUNK_MIN_BYTES`. Default 262,144: three large FPDUs share one. */
  readonly chunkBytes?: number;
  /** Free chunks kept for reuse; the garbage collector gets the rest. Default 64 (16 MiB). */
  readonly keptMax?: number;
  /** Makes a chunk, with any content. Default: a new `Uint8Array`. */
  readonly allocate?: (bytes: number) => Uint8Array;
}

/** A stack of free chunks. It has no limit; each stream bounds what it takes. */
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
      throw new RangeError(`a chunk of ${this.chunkBytes} bytes cannot hold every FPDU`);
    }
  }

  /** A chunk of `chunkBytes` bytes with stale content; the caller owns it until `release`. */
  acquire(): Uint8Array {
    this.#inUse++;
    return this.#free.pop() ?? this.#allocate(this.chunkBytes);
  }

  /** Takes back a chunk of this pool. The caller must keep no view of it. */
  release(chunk: Uint8Array): void {
    this.#inUse--;
    if (this.#free.length < this.#keptMax) this.#free.push(chunk);
  }

  get inUseCount(): number {
    return this.#inUse;
  }
}
