/**
 * Registered memory that is used again and again: registering costs a message to the device each
 * time, and memory that the device makes is what it reaches best. Nothing of a pool is open to
 * peers; what a call lets a peer into is opened for that call alone.
 */
import { Access } from '../contract/enums.ts';
import { VerbsError } from '../contract/errors.ts';
import type { MR, PD } from '../contract/provider.ts';

/** Memory of a pool, until it is given back. */
export interface PoolBuffer {
  readonly mr: MR;
  /** As long as was asked for; its content is old. */
  readonly octets: Uint8Array;
}

const SMALLEST_BYTES = 4096;
/** What a pool keeps that nobody uses: a connection at rest should not hold what its peak took. */
const FREE_BYTES_MAX = 16 << 20;

/** The pool of one protection domain. */
export class MemoryPool {
  readonly #pd: PD;
  readonly #usedBytesMax: number;
  readonly #access: number;
  /** Free regions by size. */
  readonly #free = new Map<number, MR[]>();
  #freeBytes = 0;
  #usedBytes = 0;

  /**
   * Hands out at most `usedBytesMax` octets at once, roundup to its sizes included. They are
   * registered with `access`.
   */
  constructor(pd: PD, usedBytesMax: number, access: number = Access.localWrite) {
    this.#pd = pd;
    this.#usedBytesMax = usedBytesMax;
    this.#access = access;
  }

  /** A buffer of `lengthBytes`, at least 1; at once when one is free. ENOMEM beyond the bound. */
  take(lengthBytes: number): PoolBuffer | Promise<PoolBuffer> {
    const sizeBytes = sizeClass(lengthBytes);
    if (this.#usedBytes + sizeBytes > this.#usedBytesMax) {
      throw new VerbsError('ENOMEM', `${this.#usedBytesMax} octets of buffers are in use`);
    }
    this.#usedBytes += sizeBytes;
    const mr = this.#free.get(sizeBytes)?.pop();
    if (mr !== undefined) {
      this.#freeBytes -= sizeBytes;
      return bufferOf(mr, lengthBytes);
    }
    return this.#allocate(sizeBytes, lengthBytes);
  }

  /** Takes a buffer back. */
  giveBack(buffer: PoolBuffer): void {
    const sizeBytes = buffer.mr.length;
    this.#usedBytes -= sizeBytes;
    if (this.#freeBytes + sizeBytes > FREE_BYTES_MAX) {
      // A region that cannot be given back goes with its connection.
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

/** The size that is kept for `lengthBytes`: a quarter more at most, beyond the smallest. */
function sizeClass(lengthBytes: number): number {
  const stepBytes = Math.max(SMALLEST_BYTES, 2 ** (Math.floor(Math.log2(lengthBytes)) - 2));
  return Math.ceil(lengthBytes / stepBytes) * stepBytes;
}

function bufferOf(mr: MR, lengthBytes: number): PoolBuffer {
  return { mr, octets: mr.buffer.subarray(0, lengthBytes) };
}
