/**
 * Rings with a producer and a consumer index, as Linux's rxe shares them with its provider: a header
 * of 384 bytes, then slots. The index is the only signal, so one slot stays empty.
 *
 *     0 u32 log2 of the slot's bytes    4 u32 mask    128 u32 producer    256 u32 consumer    384 slots
 *
 * The other words are for the preload library; rxe's provider ignores them. In a ring that the device
 * fills, 132 is a u32 count of entries shown, modulo 2^32, written after the producer index; 260 the
 * consumer index that the device last accepted; and 264 the notifications that the client has armed, as bits
 * of `Notify`, which the device clears when it fires. In a ring of receives, 132 is the slot up to which they
 * are completed; it follows the consumer index.
 *
 * Both indices stay below the number of slots. The client's index is untrusted: it is masked, and
 * nothing else is read from the header. The device keeps its own index here and only stores it there.
 */
import { Notify, SGE_BYTES } from '#contract/protocol/queue-layout';
import type { WorkRing } from './ring.ts';

/** Bytes before the first slot. */
const HEADER_BYTES = 384;
const LOG2_AT = 0;
const MASK_AT = 4;
/** Word offsets. */
const PRODUCER = 128 / 4;
const SHOWN = 132 / 4;
const SEEN = 260 / 4;
const ARMED = 264 / 4;
const COMPLETED = 132 / 4;
const CONSUMER = 256 / 4;
const SLOT_MIN_BYTES = 64;
const NOTIFY_BITS = Notify.any | Notify.solicited;

interface RingGeometry {
  /** Slots, a power of two; one more than the entries that fit. */
  readonly slots: number;
  /** Bytes of a slot, a power of two. */
  readonly slotBytes: number;
}

/** The shape of a ring for `entries` entries of `elementBytes` bytes. */
export function ringGeometry(entries: number, elementBytes: number): RingGeometry {
  return {
    slots: powerOfTwo(entries + 1),
    slotBytes: Math.max(SLOT_MIN_BYTES, powerOfTwo(elementBytes)),
  };
}

export function ringBytes({ slots, slotBytes }: RingGeometry): number {
  return HEADER_BYTES + slots * slotBytes;
}

function powerOfTwo(least: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(1, least)));
}

/** Writes the header of an empty ring; its client reads it as soon as it has mapped it. */
function initialise(words: Int32Array, view: DataView, { slots, slotBytes }: RingGeometry): void {
  view.setUint32(LOG2_AT, Math.log2(slotBytes), true);
  view.setUint32(MASK_AT, slots - 1, true);
  Atomics.store(words, PRODUCER, 0);
  Atomics.store(words, CONSUMER, 0);
}

/** A ring of work requests, filled by the client. A slot belongs to the device until it is returned. */
export class IndexRing implements WorkRing {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  readonly count: number;
  readonly slotBytes: number;
  readonly #words: Int32Array;
  readonly #mask: number;
  /** Elements taken and returned; both count freely, modulo 2^32. */
  #head = 0;
  #returned = 0;
  #completed = 0;
  position = HEADER_BYTES;

  /** The ring starts at `start` in `bytes`, aligned to 8. */
  constructor(bytes: Uint8Array, start: number, geometry: RingGeometry) {
    const length = ringBytes(geometry);
    this.bytes = bytes.subarray(start, start + length);
    this.view = new DataView(bytes.buffer, bytes.byteOffset + start, length);
    this.#words = new Int32Array(bytes.buffer, bytes.byteOffset + start, HEADER_BYTES / 4);
    this.count = geometry.slots;
    this.slotBytes = geometry.slotBytes;
    this.#mask = geometry.slots - 1;
    initialise(this.#words, this.view, geometry);
  }

  get index(): number {
    return this.#head;
  }

  ready(): boolean {
    return ((Atomics.load(this.#words, PRODUCER) - this.#head) & this.#mask) !== 0;
  }

  readyAt(distance: number): boolean {
    return this.readyCount() > distance;
  }

  readyCount(): number {
    return (Atomics.load(this.#words, PRODUCER) - this.#head) & this.#mask;
  }

  get memory(): Uint8Array {
    return this.bytes;
  }

  release(): void {
    this.#head = (this.#head + 1) >>> 0;
    this.position = HEADER_BYTES + (this.#head & this.#mask) * this.slotBytes;
  }

  giveBack(): void {
    this.#returned = (this.#returned + 1) >>> 0;
    Atomics.store(this.#words, CONSUMER, this.#returned & this.#mask);
  }

  countCompleted(count: number): void {
    this.#completed = (this.#completed + count) >>> 0;
    Atomics.store(this.#words, COMPLETED, this.#completed & this.#mask);
  }

  clear(): void {
    this.#head = Atomics.load(this.#words, PRODUCER) & this.#mask;
    this.#returned = this.#head;
    this.#completed = this.#head;
    Atomics.store(this.#words, COMPLETED, this.#head);
    this.position = HEADER_BYTES + this.#head * this.slotBytes;
    Atomics.store(this.#words, CONSUMER, this.#head);
  }

  skip(): number {
    const count = this.readyCount();
    this.#head = (this.#head + count) >>> 0;
    this.#returned = this.#head;
    const slot = this.#head & this.#mask;
    this.position = HEADER_BYTES + slot * this.slotBytes;
    Atomics.store(this.#words, CONSUMER, slot);
    return count;
  }

  sgeRoom(offset: number): number {
    return Math.floor((this.slotBytes - offset) / SGE_BYTES);
  }

  /**
   * For a new ring: skips `count` slots, whose elements are still in an older ring, as if they had been
   * taken. They must fit.
   */
  startAfter(count: number): void {
    this.#head = count;
    this.position = HEADER_BYTES + count * this.slotBytes;
    Atomics.store(this.#words, PRODUCER, count);
  }
}

/** The device's end of a ring that it fills and the client empties. */
export class IndexProducer {
  readonly bytes: Uint8Array;
  readonly view: DataView;
  readonly slots: number;
  readonly #words: Int32Array;
  readonly #mask: number;
  readonly #slotBytes: number;
  #tail = 0;
  /** Entries shown, modulo 2^32. */
  #shown = 0;
  /** The last consumer index that was accepted. */
  #seen = 0;

  constructor(bytes: Uint8Array, geometry: RingGeometry) {
    this.bytes = bytes.subarray(0, ringBytes(geometry));
    this.view = new DataView(bytes.buffer, bytes.byteOffset, this.bytes.length);
    this.#words = new Int32Array(bytes.buffer, bytes.byteOffset, HEADER_BYTES / 4);
    this.slots = geometry.slots;
    this.#mask = geometry.slots - 1;
    this.#slotBytes = geometry.slotBytes;
    initialise(this.#words, this.view, geometry);
  }

  /** Entries that the client has not taken yet. */
  get used(): number {
    this.#follow();
    return (this.#tail - this.#seen) & this.#mask;
  }

  /** Position of the next slot, or -1 when there is none. */
  get free(): number {
    if (this.used === this.#mask) return -1;
    return HEADER_BYTES + this.#tail * this.#slotBytes;
  }

  /** Position of an entry that the consumer has not taken; 0 is the oldest. */
  positionOf(entry: number): number {
    return HEADER_BYTES + ((this.#seen + entry) & this.#mask) * this.#slotBytes;
  }

  /** Entries shown since the count after the producer index was this one. */
  shownSince(count: number): number {
    return (this.#shown - count) >>> 0;
  }

  /** The notifications that the client has armed. After `publish`, it sees the entry if it arms later. */
  get armed(): number {
    return Atomics.load(this.#words, ARMED) & NOTIFY_BITS;
  }

  arm(bits: number): void {
    Atomics.or(this.#words, ARMED, bits);
  }

  disarm(): void {
    Atomics.store(this.#words, ARMED, Notify.none);
  }

  /** Publishes the slot at `free`, which is filled. */
  publish(): void {
    this.#tail = (this.#tail + 1) & this.#mask;
    Atomics.store(this.#words, PRODUCER, this.#tail);
    this.#shown = (this.#shown + 1) >>> 0;
    Atomics.store(this.#words, SHOWN, this.#shown);
  }

  /**
   * Copies the entries that the client has not taken to the first slots of a new ring with slots of
   * the same size, where they must fit, and what it has armed.
   */
  moveTo(target: IndexProducer): void {
    const count = this.used;
    const before = Math.min(count, this.slots - this.#seen);
    target.bytes.set(this.#slotsAt(this.#seen, before), HEADER_BYTES);
    const wrapped = HEADER_BYTES + before * this.#slotBytes;
    target.bytes.set(this.#slotsAt(0, count - before), wrapped);
    target.#tail = count;
    target.#shown = this.#shown;
    Atomics.store(target.#words, PRODUCER, count);
    Atomics.store(target.#words, SHOWN, this.#shown);
    target.arm(Atomics.exchange(this.#words, ARMED, Notify.none));
  }

  #slotsAt(first: number, count: number): Uint8Array {
    const start = HEADER_BYTES + first * this.#slotBytes;
    return this.bytes.subarray(start, start + count * this.#slotBytes);
  }

  /**
   * Accepts the consumer index. librxe before rdma-core 55 advances it once too often after
   * `ibv_next_poll`: it passes the producer, and the ring would look full forever. The client then
   * continues at its own index, so the ring does the same, and is empty.
   */
  #follow(): void {
    const consumer = Atomics.load(this.#words, CONSUMER) & this.#mask;
    const taken = (consumer - this.#seen) & this.#mask;
    if (taken === 0) return;
    const there = (this.#tail - this.#seen) & this.#mask;
    this.#seen = consumer;
    Atomics.store(this.#words, SEEN, consumer);
    if (taken <= there) return;
    this.#tail = consumer;
    Atomics.store(this.#words, PRODUCER, consumer);
  }
}
