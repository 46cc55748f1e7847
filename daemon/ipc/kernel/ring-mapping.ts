/** The rings of one open device, by the keys with which the program maps them. */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../../invariants/assert.ts';
import { giveShared, takeShared } from '../objects/charged-memory.ts';
import type { SharedAllocation } from '../objects/client-memory.ts';
import type { DaemonMemory } from '../objects/daemon-memory.ts';
import type { RingSource } from '../objects/queue-rings.ts';
import type { QuotaLedger } from '../objects/quotas.ts';
import type { KernelReply } from './kernel-file.ts';
import { PAGE_BYTES, type RingKeys } from './ring-keys.ts';

/** One mapped queue. */
export interface Ring {
  /** The offset that the program passes to mmap. */
  readonly key: number;
  /** Bytes that the program maps; the memory may be longer, after the last page of these. */
  readonly mappedBytes: number;
  readonly memory: SharedAllocation;
  /** All bytes of the memory. */
  readonly view: Uint8Array;
}

/** See the module's comment. */
export class RingMappings implements RingSource<Ring> {
  readonly #memory: DaemonMemory;
  readonly #ledger: QuotaLedger;
  readonly #keys: RingKeys;
  readonly #rings = new Map<number, Ring>();
  readonly #mapped = new Set<Ring>();

  /** `memory` allocates; `ledger` is charged. */
  constructor(memory: DaemonMemory, ledger: QuotaLedger, keys: RingKeys) {
    this.#memory = memory;
    this.#ledger = ledger;
    this.#keys = keys;
  }

  /** A ring of `mappedBytes` zero bytes, in memory of `memoryBytes` at least. ENOMEM. */
  create(mappedBytes: number, memoryBytes: number): Ring {
    const lengthBytes = pagesOf(Math.max(mappedBytes, memoryBytes)) * PAGE_BYTES;
    const memory = takeShared(this.#ledger, this.#memory, lengthBytes);
    const key = this.#keys.take(lengthBytes);
    const ring: Ring = { key, mappedBytes, memory, view: memory.view };
    this.#rings.set(key, ring);
    return ring;
  }

  /** Releases a ring; the program keeps the part that it has mapped. */
  release(ring: Ring): void {
    this.#rings.delete(ring.key);
    this.#keys.give(ring.key);
    this.#mapped.delete(ring);
    giveShared(this.#ledger, ring.memory);
  }

  /** The answer to mmap(): the ring's memory as a descriptor, once. EINVAL for anything else. */
  map(key: number, lengthBytes: number): KernelReply {
    const ring = this.#rings.get(key);
    if (ring === undefined) {
      throw new VerbsError('EINVAL', `no queue is mapped at offset ${key}`);
    }
    if (pagesOf(lengthBytes) !== pagesOf(ring.mappedBytes) || this.#mapped.has(ring)) {
      throw new VerbsError('EINVAL', 'a queue can be mapped once, and only whole');
    }
    this.#mapped.add(ring);
    const attach = (send: (descriptor: number) => void): void => {
      this.#memory.sendDescriptor(ring.memory.mapping.token, (descriptor) => {
        if (descriptor !== undefined) send(descriptor);
      });
    };
    return { status: 0, attach };
  }

  /** Bytes of shared memory behind all rings. */
  get heldBytes(): number {
    let held = 0;
    for (const { memory } of this.#rings.values()) held += memory.mapping.lengthBytes;
    return held;
  }

  /** Checks every ring, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const [key, ring] of this.#rings) {
      assert(ring.key === key, 'a ring is found by its key');
      assert(key % PAGE_BYTES === 0, 'keys are multiples of a page');
      assert(ring.mappedBytes <= ring.view.length, 'a ring has the bytes that are mapped');
    }
    for (const { key } of this.#mapped) {
      assert(this.#rings.has(key), 'what is mapped is a ring');
    }
  }
}

function pagesOf(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES);
}
