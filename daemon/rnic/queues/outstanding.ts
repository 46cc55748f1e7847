/**
 * Work requests that have started and not completed, in posting order, and the reads and atomics
 * among them that await a response (the ORRQ of the verbs).
 *
 * Completions are written in posting order: a Write framed after an outstanding read waits here
 * for that read. The send queue's depth bounds the number of entries.
 */
import { assert } from '#base/assert';
import type { CQEStatus } from '#contract/protocol/queue-layout';
import { NO_ENTRY, type StagEntry } from '../memory/stag-table.ts';
import type { ScatterList } from '../rings/scatter-list.ts';

const ROW_WORDS = 4;
const DONE = 1 << 31;

const NO_ROWS = new Uint32Array(0);

/** The started work requests of one send queue. */
export class StartedQueue {
  /** Allocated with the first work request. */
  #rows = NO_ROWS;
  readonly #mask: number;
  /** Both count freely, modulo 2^32. */
  #oldest = 0;
  #next = 0;

  /** `count` is a power of two: the depth of the send queue. */
  constructor(count: number) {
    this.#mask = count - 1;
  }

  get empty(): boolean {
    return this.#oldest === this.#next;
  }

  get count(): number {
    return (this.#next - this.#oldest) >>> 0;
  }

  get full(): boolean {
    return this.count === this.#mask + 1;
  }

  /** Adds one and returns its index. The queue must not be full. */
  push(wrIdLo: number, wrIdHi: number, opcode: number, signalled: boolean, bytes: number): number {
    if (this.#rows === NO_ROWS) this.#rows = new Uint32Array((this.#mask + 1) * ROW_WORDS);
    const index = this.#next;
    const row = (index & this.#mask) * ROW_WORDS;
    this.#rows[row] = wrIdLo;
    this.#rows[row + 1] = wrIdHi;
    this.#rows[row + 2] = opcode | (signalled ? 1 << 8 : 0);
    this.#rows[row + 3] = bytes;
    this.#next = (index + 1) >>> 0;
    return index;
  }

  /** Marks one as done with this status. */
  finish(index: number, status: CQEStatus): void {
    const at = (index & this.#mask) * ROW_WORDS + 2;
    this.#rows[at] = ((this.#rows[at] ?? 0) | DONE | (status << 16)) >>> 0;
  }

  /** Records the status for the flush of an unfinished one. */
  blame(index: number, status: CQEStatus): void {
    const at = (index & this.#mask) * ROW_WORDS + 2;
    this.#rows[at] = ((this.#rows[at] ?? 0) | (status << 16)) >>> 0;
  }

  oldestOf(opcode: number): number | undefined {
    for (let index = this.#oldest; index !== this.#next; index = (index + 1) >>> 0) {
      const meta = this.#rows[(index & this.#mask) * ROW_WORDS + 2] ?? 0;
      if ((meta & 0xff) === opcode) return index;
    }
    return undefined;
  }

  /** True when the oldest one is done. */
  get oldestDone(): boolean {
    return this.#oldest !== this.#next && (this.#meta() & DONE) !== 0;
  }

  // The oldest one's fields; the queue must not be empty.
  #meta(): number {
    return this.#rows[(this.#oldest & this.#mask) * ROW_WORDS + 2] ?? 0;
  }
  get index(): number {
    return this.#oldest;
  }
  get wrIdLo(): number {
    return this.#rows[(this.#oldest & this.#mask) * ROW_WORDS] ?? 0;
  }
  get wrIdHi(): number {
    return this.#rows[(this.#oldest & this.#mask) * ROW_WORDS + 1] ?? 0;
  }
  get opcode(): number {
    return this.#meta() & 0xff;
  }
  get signalled(): boolean {
    return (this.#meta() & (1 << 8)) !== 0;
  }
  get status(): CQEStatus {
    return ((this.#meta() >>> 16) & 0xff) as CQEStatus;
  }
  get bytes(): number {
    return this.#rows[(this.#oldest & this.#mask) * ROW_WORDS + 3] ?? 0;
  }

  shift(): void {
    this.#oldest = (this.#oldest + 1) >>> 0;
  }

  clear(): void {
    this.#oldest = this.#next;
  }

  /** Throws `InvariantError` when the count is impossible. */
  assertInvariants(): void {
    assert(this.count <= this.#mask + 1, 'started work exceeds the queue depth');
  }
}

/** One read or atomic that awaits its response. Slots are reused. */
export class OutstandingRequest {
  index = 0;
  atomic = false;
  /** Where the response goes: entry, offset in its backing, and the address used on the wire. */
  sink: StagEntry = NO_ENTRY;
  sinkOffset = 0;
  /** Set if the sink has several pieces, on a wire whose responses name no sink. */
  pieces: ScatterList | undefined = undefined;
  sinkStag = 0;
  sinkToHi = 0;
  sinkToLo = 0;
  lengthBytes = 0;
  placedBytes = 0;
}

/** For a queue without requests so far; never filled. */
const NO_SLOTS: OutstandingRequest[] = [];

/** The reads and atomics in progress, oldest first, at most ORD. */
export class OutstandingQueue {
  #slots = NO_SLOTS;
  readonly #depth: number;
  #oldest = 0;
  count = 0;

  constructor(depth: number) {
    this.#depth = depth;
  }

  get full(): boolean {
    return this.count >= this.#depth;
  }

  /** A slot to fill in, now the newest. The queue must not be full. */
  push(): OutstandingRequest {
    const at = (this.#oldest + this.count) % this.#depth;
    let slot = this.#slots[at];
    if (slot === undefined) {
      // Slots are taken in order, so the list has no gaps.
      slot = new OutstandingRequest();
      if (at === 0) this.#slots = [slot];
      else this.#slots.push(slot);
    }
    this.count += 1;
    return slot;
  }

  get head(): OutstandingRequest | undefined {
    return this.count === 0 ? undefined : this.#slots[this.#oldest];
  }

  shift(): void {
    this.#oldest = (this.#oldest + 1) % this.#depth;
    this.count -= 1;
  }

  /** Throws `InvariantError` when the count is impossible. */
  assertInvariants(): void {
    assert(this.count >= 0 && this.count <= this.#depth, 'outstanding requests exceed ORD');
  }
}
