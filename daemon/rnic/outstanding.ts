/**
 * Work requests that were started and have not been completed, in posting order, and the reads and
 * atomics among them that await their response (the ORRQ's view from the verbs).
 *
 * Completions are told in posting order: a Write that was framed behind an outstanding read waits
 * here for it. The number of entries is bounded by the send queue's depth.
 */
import type { CQEStatus } from '../../verbs-api/contract/queue-layout.ts';
import { NO_ENTRY, type StagEntry } from './stag-table.ts';

const ROW_WORDS = 4;
const DONE = 1 << 31;

/** The started work requests of one send queue. */
export class StartedQueue {
  private readonly rows: Uint32Array;
  private readonly mask: number;
  /** Both run free, modulo 2^32. */
  private oldest = 0;
  private next = 0;

  /** `count` is a power of two: the depth of the send queue. */
  constructor(count: number) {
    this.rows = new Uint32Array(count * ROW_WORDS);
    this.mask = count - 1;
  }

  get empty(): boolean {
    return this.oldest === this.next;
  }

  get count(): number {
    return (this.next - this.oldest) >>> 0;
  }

  get full(): boolean {
    return this.count === this.mask + 1;
  }

  /** Adds one and returns its index. The queue is not full. */
  push(wrIdLo: number, wrIdHi: number, opcode: number, signalled: boolean, bytes: number): number {
    const index = this.next;
    const row = (index & this.mask) * ROW_WORDS;
    this.rows[row] = wrIdLo;
    this.rows[row + 1] = wrIdHi;
    this.rows[row + 2] = opcode | (signalled ? 1 << 8 : 0);
    this.rows[row + 3] = bytes;
    this.next = (index + 1) >>> 0;
    return index;
  }

  /** Marks one as done with this status. */
  finish(index: number, status: CQEStatus): void {
    const at = (index & this.mask) * ROW_WORDS + 2;
    this.rows[at] = ((this.rows[at] ?? 0) | DONE | (status << 16)) >>> 0;
  }

  /** Notes the status with which an unfinished one is to be told when the queue is flushed. */
  blame(index: number, status: CQEStatus): void {
    const at = (index & this.mask) * ROW_WORDS + 2;
    this.rows[at] = ((this.rows[at] ?? 0) | (status << 16)) >>> 0;
  }

  /** True when the oldest one is done. */
  get oldestDone(): boolean {
    return this.oldest !== this.next && (this.meta & DONE) !== 0;
  }

  // The oldest one's fields; the queue is not empty.
  private get meta(): number {
    return this.rows[(this.oldest & this.mask) * ROW_WORDS + 2] ?? 0;
  }
  get index(): number {
    return this.oldest;
  }
  get wrIdLo(): number {
    return this.rows[(this.oldest & this.mask) * ROW_WORDS] ?? 0;
  }
  get wrIdHi(): number {
    return this.rows[(this.oldest & this.mask) * ROW_WORDS + 1] ?? 0;
  }
  get opcode(): number {
    return this.meta & 0xff;
  }
  get signalled(): boolean {
    return (this.meta & (1 << 8)) !== 0;
  }
  get status(): CQEStatus {
    return ((this.meta >>> 16) & 0xff) as CQEStatus;
  }
  get bytes(): number {
    return this.rows[(this.oldest & this.mask) * ROW_WORDS + 3] ?? 0;
  }

  /** Removes the oldest one. */
  shift(): void {
    this.oldest = (this.oldest + 1) >>> 0;
  }

  clear(): void {
    this.oldest = this.next;
  }
}

/** One read or atomic that awaits its response. Slots are reused. */
export class OutstandingRequest {
  /** Index in the `StartedQueue`. */
  index = 0;
  atomic = false;
  /** Where the response goes: entry, position in its backing, and as the wire names it. */
  sink: StagEntry = NO_ENTRY;
  sinkOffset = 0;
  sinkStag = 0;
  sinkTo = 0;
  lengthBytes = 0;
  /** Octets placed so far. */
  placedBytes = 0;
}

/** The reads and atomics under way, oldest first, at most ORD. */
export class OutstandingQueue {
  private readonly slots: OutstandingRequest[] = [];
  private readonly depth: number;
  private oldest = 0;
  count = 0;

  constructor(depth: number) {
    this.depth = depth;
  }

  get full(): boolean {
    return this.count >= this.depth;
  }

  /** A slot to fill in, now the youngest. The queue is not full. */
  push(): OutstandingRequest {
    const at = (this.oldest + this.count) % this.depth;
    let slot = this.slots[at];
    if (slot === undefined) {
      // Slots come up one after the other, so the list grows without gaps.
      slot = new OutstandingRequest();
      this.slots.push(slot);
    }
    this.count += 1;
    return slot;
  }

  /** The oldest one, or undefined. */
  get head(): OutstandingRequest | undefined {
    return this.count === 0 ? undefined : this.slots[this.oldest];
  }

  shift(): void {
    this.oldest = (this.oldest + 1) % this.depth;
    this.count -= 1;
  }
}
