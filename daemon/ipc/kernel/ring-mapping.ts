/**
 * The rings of one open device and the keys by which the program maps them: page offsets of the
 * device file, the lowest free one first.
 */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type { DaemonMemory } from '../daemon-memory.ts';
import type { SharedAllocation } from '../verbs/client-memory.ts';
import type { QuotaLedger } from '../verbs/quotas.ts';
import { HandleSpace } from './handle-space.ts';
import type { KernelReply } from './kernel-file.ts';

const PAGE_BYTES = 4096;
/** siw's provider takes this key for an error mark. */
const RESERVED_KEY = 0x9_0000;

/** One mapped queue. */
export interface Ring {
  /** The offset that the program passes to mmap. */
  readonly key: number;
  /** Octets that the program maps; its memory may have more behind the last page of these. */
  readonly mappedBytes: number;
  readonly memory: SharedAllocation;
}

/** See the module's comment. */
export class RingMappings {
  readonly #memory: DaemonMemory;
  readonly #ledger: QuotaLedger;
  readonly #rings = new HandleSpace<Ring | 'reserved'>();
  readonly #mapped = new Set<Ring>();

  /** `memory` allocates; `ledger` is charged. */
  constructor(memory: DaemonMemory, ledger: QuotaLedger) {
    this.#memory = memory;
    this.#ledger = ledger;
  }

  /** A ring of `mappedBytes` zero octets, in memory of `memoryBytes` at least. ENOMEM. */
  create(mappedBytes: number, memoryBytes: number): Ring {
    const lengthBytes = pagesOf(Math.max(mappedBytes, memoryBytes)) * PAGE_BYTES;
    this.#ledger.take('sharedBytes', lengthBytes);
    try {
      return this.#add(mappedBytes, this.#memory.createShared(lengthBytes));
    } catch (error) {
      this.#ledger.give('sharedBytes', lengthBytes);
      throw error;
    }
  }

  /** Gives a ring back; what the program has mapped of it stays its own. */
  release(ring: Ring): void {
    this.#rings.remove(ring.key / PAGE_BYTES);
    this.#mapped.delete(ring);
    ring.memory.release();
    this.#ledger.give('sharedBytes', ring.memory.mapping.lengthBytes);
  }

  /** The answer to mmap(): the ring's memory as a descriptor, once. EINVAL for anything else. */
  map(key: number, lengthBytes: number): KernelReply {
    const ring = key % PAGE_BYTES === 0 ? this.#rings.find(key / PAGE_BYTES) : undefined;
    if (ring === undefined || ring === 'reserved') {
      throw new VerbsError('EINVAL', `no queue is mapped at offset ${key}`);
    }
    if (pagesOf(lengthBytes) !== pagesOf(ring.mappedBytes) || this.#mapped.has(ring)) {
      throw new VerbsError('EINVAL', 'a queue is mapped once, in its whole length');
    }
    this.#mapped.add(ring);
    const attach = (send: (descriptor: number) => void): void => {
      this.#memory.sendDescriptor(ring.memory.mapping.token, (descriptor) => {
        if (descriptor !== undefined) send(descriptor);
      });
    };
    return { status: 0, attach };
  }

  #add(mappedBytes: number, memory: SharedAllocation): Ring {
    const make = (page: number) => ({ key: page * PAGE_BYTES, mappedBytes, memory });
    const ring = this.#rings.add(make);
    if (ring.key !== RESERVED_KEY) return ring;
    this.#rings.remove(RESERVED_KEY / PAGE_BYTES);
    this.#rings.add(() => 'reserved' as const);
    return this.#rings.add(make);
  }
}

function pagesOf(bytes: number): number {
  return Math.ceil(bytes / PAGE_BYTES);
}
