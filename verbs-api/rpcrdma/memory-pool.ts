/**
 * Reusable registered memory: each registration costs a request to the device, and the device
 * accesses memory that it allocated fastest. Pool memory is not open to peers; each call opens what
 * its peer needs.
 */
import { Access } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { MR, PD } from '#contract/verbs/provider';

/** Pool memory, until it is returned. */
export interface PoolBuffer {
  readonly mr: MR;
  /** Of the requested length; content is undefined. */
  readonly bytes: Uint8Array;
}

const SMALLEST_BYTES = 4096;
/** Free memory that a pool keeps: an idle connection should not hold the memory of its peak. */
const FREE_BYTES_MAX = 16 << 20;

export class MemoryPool {
  readonly #pd: PD;
  readonly #usedBytesMax: number;
  readonly #access: number;
  /** Free regions by size. */
  readonly #free = new Map<number, MR[]>();
  #freeBytes = 0;
  #usedBytes = 0;

  /**
   * Hands out at most `usedBytesMax` bytes at once, including rounding to size classes. Buffers are
   * registered with `access`.
   */
  constructor(pd: PD, usedBytesMax: number, access: number = Access.localWrite) {
    this.#pd = pd;
    this.#usedBytesMax = usedBytesMax;
    this.#access = access;
  }

  /**
   * A buffer of `lengthBytes`, at least 1; synchronous if one is free. Fails with ENOMEM beyond the
   * limit.
   */
  take(lengthBytes: number): PoolBuffer | Promise<PoolBuffer> {
    const sizeBytes = sizeClass(lengthBytes);
    if (this.#usedBytes + sizeBytes > this.#usedBytesMax) {
      throw new VerbsError('ENOMEM', `${this.#usedBytesMax} bytes of buffers are in use`);
    }
    this.#usedBytes += sizeBytes;
    const mr = this.#free.get(sizeBytes)?.pop();
    if (mr !== undefined) {
      this.#freeBytes -= sizeBytes;
      return bufferOf(mr, lengthBytes);
    }
    return this.#allocate(sizeBytes, lengthBytes);
  }

  giveBack(buffer: PoolBuffer): void {
    const sizeBytes = buffer.mr.length;
    this.#usedBytes -= sizeBytes;
    if (this.#freeBytes + sizeBytes > FREE_BYTES_MAX) {
      // A region that cannot be closed is freed with its connection.
      void buffer.mr.close().catch(() => undefined);
      return;
    }
    this.#freeBytes += sizeBytes;
    const free = this.#free.get(sizeBytes);
    if (free === undefined) this.#free.set(sizeBytes, [buffer.mr]);
    else free.push(buffer.mr);
  }

  async #allocate(sizeBytes: number, lengthBytes: number): Promise<PoolBuffer> {
    try {
      return bufferOf(await this.#pd.allocMR(sizeBytes, this.#access), lengthBytes);
    } catch (error) {
      this.#usedBytes -= sizeBytes;
      throw error;
    }
  }
}

/** The size class for `lengthBytes`: at most a quarter larger, except for the smallest class. */
function sizeClass(lengthBytes: number): number {
  const stepBytes = Math.max(SMALLEST_BYTES, 2 ** (Math.floor(Math.log2(lengthBytes)) - 2));
  return Math.ceil(lengthBytes / stepBytes) * stepBytes;
}

function bufferOf(mr: MR, lengthBytes: number): PoolBuffer {
  return { mr, bytes: mr.buffer.subarray(0, lengthBytes) };
}
