/**
 * The memory of the program that contains the device: nothing is shared or copied; the device works
 * on views of the program's own buffers.
 */
import type { MappingRef } from '#contract/protocol/commands';
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { ClientMemory } from '../clients/objects/client-memory.ts';
import { type MemoryBacking, ViewBacking } from '../rnic/memory/memory-backing.ts';

/** Addresses of buffers start here: no buffer has address 0. */
const FIRST_ADDRESS = 0x1000_0000;
/** Addresses start at page boundaries, with an unused page after every buffer. */
const PAGE_BYTES = 4096;
const REASON = 'the device lives in this process';

/** Allocates memory by token, and finds the program's buffers by the addresses assigned to them. */
export class EmbeddedMemory implements ClientMemory {
  readonly sharedTier = { tier: 'local', reason: REASON } as const;
  readonly #shared = new Map<string, Uint8Array>();
  /** Addresses of buffers, as long as the program holds the buffer. */
  readonly #addresses = new WeakMap<ArrayBufferLike, number>();
  /** Buffers about to be registered, by address. */
  readonly #announced = new Map<bigint, Uint8Array>();
  #nextToken = 0;
  #nextAddress = FIRST_ADDRESS;

  createShared(lengthBytes: number): {
    mapping: MappingRef;
    view: Uint8Array;
    release(): void;
  } {
    const view = allocate(lengthBytes);
    const token = `embedded ${this.#nextToken}`;
    this.#nextToken += 1;
    this.#shared.set(token, view);
    return {
      mapping: { token, lengthBytes },
      view,
      release: () => this.#shared.delete(token),
    };
  }

  createRing(lengthBytes: number): ReturnType<EmbeddedMemory['createShared']> {
    return this.createShared(lengthBytes);
  }

  openProcess(
    address: bigint,
    lengthBytes: number,
  ): { backing: MemoryBacking; reason: string; release(): void } {
    const buffer = this.#announced.get(address);
    if (buffer === undefined || buffer.length < lengthBytes) {
      throw new VerbsError('EFAULT', 'no buffer of this program has the address');
    }
    return {
      backing: new ViewBacking(buffer.subarray(0, lengthBytes), 'local'),
      reason: REASON,
      release: () => undefined,
    };
  }

  /** The memory of a token. EINVAL for an unknown one. */
  view(mapping: MappingRef): Uint8Array {
    const view = this.#shared.get(mapping.token);
    if (view === undefined) throw invalid('no such shared memory');
    return view;
  }

  /**
   * The address of `buffer`, always the same; addresses inside one ArrayBuffer are as far apart as its
   * bytes. `openProcess` finds the buffer until `forget`.
   */
  announce(buffer: Uint8Array): bigint {
    let base = this.#addresses.get(buffer.buffer);
    if (base === undefined) {
      base = this.#nextAddress;
      const pages = Math.ceil(buffer.buffer.byteLength / PAGE_BYTES) + 1;
      this.#nextAddress += pages * PAGE_BYTES;
      this.#addresses.set(buffer.buffer, base);
    }
    const address = BigInt(base + buffer.byteOffset);
    this.#announced.set(address, buffer);
    return address;
  }

  /** The registration has succeeded or failed: from now on only the device holds the buffer. */
  forget(address: bigint): void {
    this.#announced.delete(address);
  }
}

/** ENOMEM beyond what the process, or one typed array, can hold. */
function allocate(lengthBytes: number): Uint8Array {
  try {
    return new Uint8Array(lengthBytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new VerbsError('ENOMEM', `cannot allocate ${lengthBytes} bytes: ${error.message}`);
  }
}
