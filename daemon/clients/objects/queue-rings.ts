/** The rings of a client's queues: a queue gets all its rings or is not created. */
import type { QuotaLedger } from './quotas.ts';

export interface RingSource<R> {
  /**
   * Creates a ring of `mappedBytes` zero bytes for the program to map, in at least `memoryBytes` of
   * memory. ENOMEM.
   */
  create(mappedBytes: number, memoryBytes: number): R;
  release(ring: R): void;
}

export class QueueRings<R extends { readonly view: Uint8Array }> {
  readonly #source: RingSource<R>;
  readonly #ledger: QuotaLedger;

  constructor(source: RingSource<R>, ledger: QuotaLedger) {
    this.#source = source;
    this.#ledger = ledger;
  }

  /** Runs `make`. If it throws, releases every ring that it took. */
  make<T>(make: (rings: NewRings<R>) => T): T {
    const rings = new NewRings(this.#source, this.#ledger);
    try {
      return make(rings);
    } catch (error) {
      rings.discard();
      throw error;
    }
  }

  /** Releases the ring of a queue with this many entries. */
  release(ring: R, entries: number): void {
    this.#source.release(ring);
    this.#ledger.give('queueEntries', entries);
  }
}

export class NewRings<R extends { readonly view: Uint8Array }> {
  readonly #source: RingSource<R>;
  readonly #ledger: QuotaLedger;
  readonly #rings: R[] = [];
  #unmake: () => void = () => undefined;
  #charged = 0;

  constructor(source: RingSource<R>, ledger: QuotaLedger) {
    this.#source = source;
    this.#ledger = ledger;
  }

  /** Takes the memory of the next ring: `memoryBytes`, if that exceeds what the program maps. */
  take(mappedBytes: number, memoryBytes = mappedBytes): Uint8Array {
    const ring = this.#source.create(mappedBytes, memoryBytes);
    this.#rings.push(ring);
    return ring.view;
  }

  at(index: number): R {
    const ring = this.#rings[index];
    if (ring === undefined) throw new Error('the queue has no ring');
    return ring;
  }

  /** The second ring, if one was taken. */
  get second(): R | undefined {
    return this.#rings[1];
  }

  /** Charges the queue's entries; if anything fails, `unmake` undoes the queue. ENOMEM. */
  charge(entries: number, unmake: () => void): void {
    this.#unmake = unmake;
    this.#ledger.take('queueEntries', entries);
    this.#charged = entries;
  }

  discard(): void {
    this.#unmake();
    for (const ring of this.#rings) this.#source.release(ring);
    this.#ledger.give('queueEntries', this.#charged);
  }
}
