/**
 * The oldest records of an event queue, in memory that its program maps: the preload library takes
 * them there, without a request.
 *
 * ```
 *  word at 0   bits 0-14 head | 15-29 tail | 30 "ask"
 *  word at 4   bytes on the descriptor beyond the one that announces records: the preload library
 *              takes one with each record, and all with the last
 *  at 64       256 records of 8 bytes; the record of index i is at i modulo 256
 * ```
 *
 * A reader that takes a record adds one to the head with a compare-and-swap of the whole word; only
 * the daemon changes the rest. "Ask" means that the daemon has further records, or is changing those in
 * the ring. The queue is empty while head and tail are equal and "ask" is clear, so each transition
 * into or out of that state is made by one side: that side takes, or writes, the byte of the
 * descriptor.
 *
 * The program may write anything there, and harms only its own events: the daemon uses its own
 * indices, and reads from the word only how many of its records are gone.
 */
import { assert } from '#base/assert';

export const EVENT_RING_BYTES = 4096;
const EVENT_RECORD_BYTES = 8;
export const EVENT_RING_RECORDS = 256;
const RECORDS_OFFSET = 64;
const INDEX_BITS = 15;
const INDEX_MASK = 2 ** INDEX_BITS - 1;
const ASK = 2 ** (2 * INDEX_BITS);
/** Swaps that may fail because the program changed the word; after that it is overwritten. */
const SWAPS_MAX = 64;

export class EventRing {
  readonly #words: Int32Array;
  readonly #records: Uint8Array;
  /** The last head that the daemon saw, and the tail. */
  #head = 0;
  #tail = 0;
  #ask = false;

  /** `memory` must be all zeros. */
  constructor(memory: Uint8Array) {
    assert(memory.length >= EVENT_RING_BYTES, 'memory too short for an event ring');
    this.#words = new Int32Array(memory.buffer, memory.byteOffset, 2);
    this.#records = memory.subarray(RECORDS_OFFSET);
  }

  /** True while the ring accepts no record: it is full or asks. */
  get closed(): boolean {
    return this.#ask || this.#shown >= EVENT_RING_RECORDS;
  }

  /** Counts another byte to send, unless the count has reached `most`. */
  count(most: number): boolean {
    if (Atomics.load(this.#words, 1) >>> 0 >= most) return false;
    Atomics.add(this.#words, 1, 1);
    return true;
  }

  /** Number of records that the program has taken since the last call. */
  taken(): number {
    return this.#follow(Atomics.load(this.#words, 0));
  }

  /** Adds a record to a ring that is not closed. Returns true if the queue was empty. */
  add(record: Uint8Array): boolean {
    this.#write(record);
    const before = this.#replace((head) => wordOf(head, this.#tail + 1, false));
    const wasEmpty = this.#distance(before) === 0;
    this.#tail = next(this.#tail);
    return wasEmpty;
  }

  /**
   * Tells the program to fetch further records from the daemon. Returns true if the queue was empty.
   */
  ask(): boolean {
    if (this.#ask) return false;
    const before = this.#replace((head) => wordOf(head, this.#tail, true));
    this.#ask = true;
    return this.#distance(before) === 0;
  }

  /**
   * Empties the ring, which asks until `fill`. Returns how many records the program had taken, and
   * whether the queue was empty.
   */
  withdraw(): { readonly taken: number; readonly wasEmpty: boolean } {
    const asked = this.#ask;
    const before = this.#replace(() => wordOf(this.#tail, this.#tail, true));
    const wasEmpty = !asked && this.#distance(before) === 0;
    const taken = this.#follow(before);
    this.#head = this.#tail;
    this.#ask = true;
    return { taken, wasEmpty };
  }

  /** Refills the ring after `withdraw`; it asks if not all records fit. */
  fill(records: readonly Uint8Array[]): void {
    const count = Math.min(records.length, EVENT_RING_RECORDS);
    for (let index = 0; index < count; index += 1) {
      const record = records[index];
      if (record !== undefined) this.#write(record);
      this.#tail = next(this.#tail);
    }
    this.#ask = records.length > count;
    Atomics.store(this.#words, 0, wordOf(this.#head, this.#tail, this.#ask));
  }

  get #shown(): number {
    return (this.#tail - this.#head) & INDEX_MASK;
  }

  /** Number of published records according to a word that the program may have forged. */
  #distance(word: number): number {
    const taken = (word - this.#head) & INDEX_MASK;
    return taken > this.#shown ? this.#shown : this.#shown - taken;
  }

  #follow(word: number): number {
    const taken = this.#shown - this.#distance(word);
    this.#head = (this.#head + taken) & INDEX_MASK;
    return taken;
  }

  #write(record: Uint8Array): void {
    const at = (this.#tail % EVENT_RING_RECORDS) * EVENT_RECORD_BYTES;
    this.#records.set(record, at);
  }

  /** Replaces the word with `wordFor` the current head. Returns the old word. */
  #replace(wordFor: (head: number) => number): number {
    for (let attempt = 0; ; attempt += 1) {
      const word = Atomics.load(this.#words, 0);
      const following = wordFor((this.#tail - this.#distance(word)) & INDEX_MASK);
      if (Atomics.compareExchange(this.#words, 0, word, following) === word) return word;
      if (attempt < SWAPS_MAX) continue;
      Atomics.store(this.#words, 0, following);
      return word;
    }
  }
}

function next(index: number): number {
  return (index + 1) & INDEX_MASK;
}

function wordOf(head: number, tail: number, ask: boolean): number {
  return head | ((tail & INDEX_MASK) << INDEX_BITS) | (ask ? ASK : 0);
}
