/**
 * The device's view of a ring in memory shared with a client.
 *
 * The client is not trusted. A field is read once, into a variable, before it is checked. Only the
 * flags byte is accessed with Atomics, since it passes the ownership of an element.
 */
import { assert } from '#base/assert';
import { QueueFlag, SGE_BYTES } from '#contract/protocol/queue-layout';
import { invalid } from '#contract/verbs/errors';

/**
 * Elements of one ring that a queue pair handles in a turn if the client alone decides their number:
 * about a millisecond. The rest follows in later turns.
 */
export const TURN_ELEMENTS_MAX = 1024;

/** How a queue and its client pass elements: a flag in each, or an index for all. */
export type RingKind = 'flags' | 'indices';

/**
 * A ring of work requests as queues see it: `ElementRing` has a flag in each element, `IndexRing`
 * (index-ring.ts) one index. Numbers in the ring are little endian.
 */
export interface WorkRing {
  /** The memory that contains the ring; `position` is an offset in it. */
  readonly bytes: Uint8Array;
  readonly view: DataView;
  /** Slots, a power of two. */
  readonly count: number;
  /** Free-running index of the next element, modulo 2^32. */
  readonly index: number;
  /** Byte position of the next element. */
  readonly position: number;
  /** True when the next element is posted. Its body may be read until `release`. */
  ready(): boolean;
  /** True if the element `distance` places after the next one is posted. */
  readyAt(distance: number): boolean;
  /** Number of consecutive posted elements. */
  readyCount(): number;
  /** The memory of the ring only. */
  readonly memory: Uint8Array;
  /** Advances to the next element. Rings with flags return this one to the client. */
  release(): void;
  /** Discards posted elements, without completions. */
  clear(): void;
  /**
   * Releases the posted elements and returns them to the client; all elements released before must have
   * been returned. Returns their number, at most `TURN_ELEMENTS_MAX` if each takes a step. For rings of one
   * queue pair.
   */
  skip?(): number;
  /** SGEs that an element holds, when they start at `offset` in it. */
  sgeRoom(offset: number): number;
  /** The queue is gone: nothing is posted anymore, and the memory is no longer accessed. */
  end?(): void;
  /** Returns the oldest element that was released but not yet returned, in rings with an index. */
  giveBack(): void;
  /** Marks the oldest `count` returned elements as completed, in rings with an index. */
  countCompleted?(count: number): void;
}

/** Stands for the elements of an ended ring: never posted. */
const ENDED = new DataView(new ArrayBuffer(256));

interface BufferViews {
  readonly bytes: Uint8Array;
  readonly view: DataView;
}

/** Shared by the rings of a buffer: separate views would cost each ring 350 bytes. */
const VIEWS = new WeakMap<ArrayBufferLike, BufferViews>();

function viewsOf(buffer: ArrayBufferLike): BufferViews {
  let views = VIEWS.get(buffer);
  if (views === undefined) {
    views = { bytes: new Uint8Array(buffer), view: new DataView(buffer) };
    VIEWS.set(buffer, views);
  }
  return views;
}

/** A ring of elements of `elementBytes` bytes, each with a flag. */
export class ElementRing implements WorkRing {
  bytes: Uint8Array;
  view: DataView;
  readonly count: number;
  readonly #elementBytes: number;
  readonly #flagsOffset: number;
  /** Byte position of the first element. */
  #start: number;
  #mask: number;
  /** Counts freely, modulo 2^32. */
  #head = 0;
  position: number;

  /** `count` is a power of two; the ring starts at `start` in `bytes` and must fit. */
  constructor(
    bytes: Uint8Array,
    start: number,
    count: number,
    elementBytes: number,
    flagsOffset: number,
  ) {
    assert(start + count * elementBytes <= bytes.length, 'ring exceeds its memory');
    const views = viewsOf(bytes.buffer);
    this.bytes = views.bytes;
    this.view = views.view;
    this.#start = bytes.byteOffset + start;
    this.position = this.#start;
    this.count = count;
    this.#elementBytes = elementBytes;
    this.#flagsOffset = flagsOffset;
    this.#mask = count - 1;
  }

  get index(): number {
    return this.#head;
  }

  /** True when the next element is VALID. Its body may be read until `release`. */
  ready(): boolean {
    return (Atomics.load(this.bytes, this.position + this.#flagsOffset) & QueueFlag.valid) !== 0;
  }

  /** True if the element `distance` places after the next one is VALID. */
  readyAt(distance: number): boolean {
    const slot = (this.#head + distance) & this.#mask;
    const position = this.#start + slot * this.#elementBytes;
    const flags = Atomics.load(this.bytes, position + this.#flagsOffset);
    return (flags & QueueFlag.valid) !== 0;
  }

  /** Returns the element to the client and advances to the next one. */
  release(): void {
    Atomics.store(this.bytes, this.position + this.#flagsOffset, 0);
    this.#head = (this.#head + 1) >>> 0;
    this.position = this.#start + (this.#head & this.#mask) * this.#elementBytes;
  }

  /** Does nothing: `release` returns elements. */
  giveBack(): void {}

  clear(): void {
    for (let budget = this.count; budget > 0 && this.ready(); budget -= 1) this.release();
  }

  skip(): number {
    let skipped = 0;
    for (; skipped < TURN_ELEMENTS_MAX && this.ready(); skipped += 1) this.release();
    return skipped;
  }

  get memory(): Uint8Array {
    return this.bytes.subarray(this.#start, this.#start + this.count * this.#elementBytes);
  }

  sgeRoom(offset: number): number {
    return Math.floor((this.#elementBytes - offset) / SGE_BYTES);
  }

  end(): void {
    this.view = ENDED;
    this.bytes = new Uint8Array(ENDED.buffer);
    this.#start = 0;
    this.#mask = 0;
    this.position = 0;
  }

  /** Number of consecutive VALID elements, at most `count`. */
  readyCount(): number {
    let distance = 0;
    while (distance < this.count && this.readyAt(distance)) distance += 1;
    return distance;
  }
}

/** Requests ring memory and checks that it is large enough and aligned for 64-bit fields. */
export function requestRing(source: (bytes: number) => Uint8Array, bytes: number): Uint8Array {
  const ring = source(bytes);
  if (ring.length < bytes || ring.byteOffset % 8 !== 0) {
    throw invalid(`a ring needs ${bytes} bytes, aligned to 8`);
  }
  return ring;
}
