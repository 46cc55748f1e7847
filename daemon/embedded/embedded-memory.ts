/**
 * The memory of the program that the device lives in: nothing has to be shared or fetched, the
 * device works on views of the program's own buffers.
 */

import type { MappingRef } from '../../verbs-api/contract/commands.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';
import type { ClientMemory } from '../ipc/verbs/client-memory.ts';
import { type MemoryBacking, ViewBacking } from '../rnic/memory-backing.ts';

/** Buffers get addresses from here on, so that no buffer has address 0. */
const FIRST_ADDRESS = 0x1000_0000;
/** Addresses start at page bounds, with an unused page behind every buffer. */
const PAGE_BYTES = 4096;
const REASON = 'the device lives in this process';

/** Hands out memory by token, and finds the program's buffers by the addresses it gave them. */
export class EmbeddedMemory implements ClientMemory {
  readonly sharedTier = { tier: 'local', reason: REASON } as const;
  readonly #shared = new Map<string, Uint8Array>();
  /** Addresses of buffers, for as long as the program keeps the buffer. */
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
    const token = `embedded ${this.#nextToken}`;
    this.#nextToken += 1;
    const view = new Uint8Array(lengthBytes);
    this.#shared.set(token, view);
    return {
      mapping: { token, lengthBytes },
      view,
      release: () => this.#shared.delete(token),
    };
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
    if (view === undefined) throw new VerbsError('EINVAL', 'no such shared memory');
    return view;
  }

  /**
   * The address of `buffer`: the same one whenever it is asked for, and addresses inside one
   * ArrayBuffer are as far apart as its octets. `openProcess` finds the buffer until `forget`.
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

  /** The registration is done or refused: from now on only the device holds the buffer. */
  forget(address: bigint): void {
    this.#announced.delete(address);
  }
}
