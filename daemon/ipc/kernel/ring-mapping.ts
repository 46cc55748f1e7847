/**
 * The rings of one open device and the keys by which the program maps them: page offsets of the
 * device file, the lowest free one first.
 */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import { assert } from '../../invariants/assert.ts';
import { giveShared, takeShared } from '../objects/charged-memory.ts';
import type { SharedAllocation } from '../objects/client-memory.ts';
import type { DaemonMemory } from '../objects/daemon-memory.ts';
import { HandleSpace } from '../objects/handle-space.ts';
import type { RingSource } from '../objects/queue-rings.ts';
import type { QuotaLedger } from '../objects/quotas.ts';
import type { KernelReply } from './kernel-file.ts';

const PAGE_BYTES = 4096;

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
  readonly #reservedKey: number | undefined;
  readonly #rings = new HandleSpace<Ring | 'reserved'>();
  readonly #mapped = new Set<Ring>();

  /** `memory` allocates; `ledger` is charged; no ring gets `reservedKey`, if given. */
  constructor(memory: DaemonMemory, ledger: QuotaLedger, reservedKey: number | undefined) {
    this.#memory = memory;
    this.#ledger = ledger;
    this.#reservedKey = reservedKey;
  }

  /** A ring of `mappedBytes` zero bytes, in memory of `memoryBytes` at least. ENOMEM. */
  create(mappedBytes: number, memoryBytes: number): Ring {
    const lengthBytes = pagesOf(Math.max(mappedBytes, memoryBytes)) * PAGE_BYTES;
    return this.#add(mappedBytes, takeShared(this.#ledger, this.#memory, lengthBytes));
  }

  /** Releases a ring; the program keeps the part that it has mapped. */
  release(ring: Ring): void {
    this.#rings.remove(ring.key / PAGE_BYTES);
    this.#mapped.delete(ring);
    giveShared(this.#ledger, ring.memory);
  }

  /** The answer to mmap(): the ring's memory as a descriptor, once. EINVAL for anything else. */
  map(key: number, lengthBytes: number): KernelReply {
    const ring = key % PAGE_BYTES === 0 ? this.#rings.find(key / PAGE_BYTES) : undefined;
    if (ring === undefined || ring === 'reserved') {
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
    return this.#all().reduce((sum, { memory }) => sum + memory.mapping.lengthBytes, 0);
  }

  /** Checks every ring, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.#rings.assertDeepInvariants();
    for (const ring of this.#all()) {
      assert(this.#rings.find(ring.key / PAGE_BYTES) === ring, 'a ring is found by its key');
      assert(ring.mappedBytes <= ring.view.length, 'a ring has the bytes that are mapped');
    }
    for (const { key } of this.#mapped) {
      assert(this.#rings.find(key / PAGE_BYTES) !== undefined, 'what is mapped is a ring');
    }
  }

  #all(): Ring[] {
    return this.#rings.select((ring): ring is Ring => ring !== 'reserved');
  }

  #add(mappedBytes: number, memory: SharedAllocation): Ring {
    const make = (page: number) => {
      return { key: page * PAGE_BYTES, mappedBytes, memory, view: memory.view };
    };
    const ring = this.#rings.add(make);
    if (ring.key !== this.#reservedKey) return ring;
    this.#rings.remove(ring.key / PAGE_BYTES);
    this.#rings.add(() => 'reserved' as const);
    return this.#rings.add(make);
  }
}

function pagesOf(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES);
}
