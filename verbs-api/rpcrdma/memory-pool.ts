/**
 * Registered memory that is used again and again: registering costs a message to the device each
 * time, and memory that the device makes is what it reaches best. Nothing of a pool is open to
 * peers; what a call lets a peer into is registered for that call alone.
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

/** The pool of one protection domain. */
export class MemoryPool {
  readonly #pd: PD;
  readonly #usedBytesMax: number;
  /** Free regions by size, which is a power of two. */
  readonly #free = new Map<number, MR[]>();
  #usedBytes = 0;

  /** Hands out at most `usedBytesMax` octets at once; as much stays allocated. */
  constructor(pd: PD, usedBytesMax: number) {
    this.#pd = pd;
    this.#usedBytesMax = usedBytesMax;
  }

  /** Octets that are handed out. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** A buffer of `lengthBytes`, at least 1; at once when one is free. ENOMEM beyond the bound. */
  take(lengthBytes: number): PoolBuffer | Promise<PoolBuffer> {
    const sizeBytes = sizeClass(lengthBytes);
    if (this.#usedBytes + sizeBytes > this.#usedBytesMax) {
      throw new VerbsError('ENOMEM', `${this.#usedBytesMax} octets of buffers are in use`);
    }
    this.#usedBytes += sizeBytes;
    const mr = this.#free.get(sizeBytes)?.pop();
    if (mr !== undefined) return bufferOf(mr, lengthBytes);
    return this.#allocate(sizeBytes, lengthBytes);
  }

  /** Takes a buffer back. */
  giveBack(buffer: PoolBuffer): void {
    const sizeBytes = buffer.mr.length;
    this.#usedBytes -= sizeBytes;
    const free = this.#free.get(sizeBytes);
    if (free === undefined) this.#free.set(sizeBytes, [buffer.mr]);
    else free.push(buffer.mr);
  }

  async #allocate(sizeBytes: number, lengthBytes: number): Promise<PoolBuffer> {
    try {
      await this.#trim(sizeBytes);
      return bufferOf(await this.#pd.allocMR(sizeBytes, Access.localWrite), lengthBytes);
    } catch (error) {
      this.#usedBytes -= sizeBytes;
      throw error;
    }
  }

  /** Gives free regions of other sizes back to the device, so that all together stays bounded. */
  async #trim(neededBytes: number): Promise<void> {
    let freeBytes = 0;
    for (const [sizeBytes, regions] of this.#free) freeBytes += sizeBytes * regions.length;
    for (const regions of this.#free.values()) {
      while (freeBytes + this.#usedBytes > this.#usedBytesMax + neededBytes) {
        const mr = regions.pop();
        if (mr === undefined) break;
        freeBytes -= mr.length;
        await mr.close();
      }
    }
  }
}

function sizeClass(lengthBytes: number): number {
  let sizeBytes = SMALLEST_BYTES;
  while (sizeBytes < lengthBytes) sizeBytes *= 2;
  return sizeBytes;
}

function bufferOf(mr: MR, lengthBytes: number): PoolBuffer {
  return { mr, octets: mr.buffer.subarray(0, lengthBytes) };
}
