/**
 * Reassembles one direction of a TCP connection by sequence number (RFC 9293 §3.4). Late, repeated
 * and partial segments yield the bytes as the receiver saw them.
 */
import { BinaryHeap } from './binary-heap.ts';

/** Maximum bytes stored while an earlier segment is missing; receive windows are seldom larger. */
export const AHEAD_MAX_BYTES = 8 * 1024 * 1024;
/** Maximum segments stored, in case they carry almost nothing. */
const AHEAD_MAX_COUNT = 16_384;

export class TcpReassembly {
  #next: number;
  readonly #ahead = new AheadSegments();
  #aheadBytes = 0;
  readonly #deliver: (bytes: Uint8Array) => void;
  #lostBytes = 0;

  /** `firstSequence`: sequence number of the first byte. */
  constructor(firstSequence: number, deliver: (bytes: Uint8Array) => void) {
    this.#next = firstSequence;
    this.#deliver = deliver;
  }

  /**
   * Takes a segment, whose bytes are borrowed. `wireBytes` is its length on the wire: bytes the
   * recorder omitted are a gap. Returns false once bytes are permanently missing.
   */
  take(sequence: number, bytes: Uint8Array, wireBytes: number): boolean {
    if (this.#lostBytes > 0) return false;
    if (wireBytes > bytes.length) {
      const missesFrom = (sequence + bytes.length) >>> 0;
      this.#accept(sequence, bytes);
      // A retransmission may be truncated after bytes that have already been delivered.
      const cutBytes = wireBytes - bytes.length;
      if (distance(this.#next, (missesFrom + cutBytes) >>> 0) > 0) this.#lostBytes = cutBytes;
    } else this.#accept(sequence, bytes);
    if (this.#aheadBytes > AHEAD_MAX_BYTES || this.#ahead.count > AHEAD_MAX_COUNT) this.#giveUp();
    return this.#lostBytes === 0;
  }

  /** Bytes missing from the recording where it stopped; 0 if none are known to be. */
  get lostBytes(): number {
    return this.#lostBytes;
  }

  /** Call at the end: reports gaps before the segments still stored. */
  finish(): void {
    if (this.#lostBytes === 0 && this.#ahead.count > 0) this.#giveUp();
  }

  #accept(sequence: number, bytes: Uint8Array): void {
    const skipBytes = distance(sequence, this.#next);
    if (skipBytes < 0) {
      if (bytes.length === 0) return;
      this.#ahead.push(sequence, bytes.slice());
      this.#aheadBytes += bytes.length;
      return;
    }
    if (skipBytes >= bytes.length) return;
    this.#pass(bytes.subarray(skipBytes));
    this.#passAhead();
  }

  #passAhead(): void {
    for (;;) {
      const segment = this.#ahead.first;
      if (segment === undefined) return;
      const skipBytes = distance(segment.sequence, this.#next);
      if (skipBytes < 0) return;
      this.#ahead.pop();
      this.#aheadBytes -= segment.bytes.length;
      if (skipBytes < segment.bytes.length) this.#pass(segment.bytes.subarray(skipBytes));
    }
  }

  #pass(bytes: Uint8Array): void {
    this.#next = (this.#next + bytes.length) >>> 0;
    this.#deliver(bytes);
  }

  #giveUp(): void {
    const { first } = this.#ahead;
    this.#lostBytes = first === undefined ? HALF : distance(this.#next, first.sequence);
    this.#ahead.clear();
    this.#aheadBytes = 0;
  }
}

/** Half of the sequence numbers: a larger distance ahead counts as a negative one. */
const HALF = 0x8000_0000;

/** The distance between two sequence numbers, modulo 2^32; negative if `to` precedes `from`. */
function distance(from: number, to: number): number {
  const forward = (to - from) >>> 0;
  return forward < HALF ? forward : forward - 2 * HALF;
}

interface AheadSegment {
  readonly sequence: number;
  /** Order of arrival, which decides between segments with the same number. */
  readonly order: number;
  readonly bytes: Uint8Array;
}

/** All numbers must lie within half of the sequence space. */
class AheadSegments {
  readonly #segments = new BinaryHeap(precedes);
  #order = 0;

  get count(): number {
    return this.#segments.count;
  }

  get first(): AheadSegment | undefined {
    return this.#segments.first;
  }

  push(sequence: number, bytes: Uint8Array): void {
    this.#segments.push({ sequence, order: this.#order++, bytes });
  }

  pop(): void {
    this.#segments.pop();
  }

  clear(): void {
    this.#segments.clear();
  }
}

function precedes(left: AheadSegment, right: AheadSegment): boolean {
  const apart = distance(left.sequence, right.sequence);
  return apart > 0 || (apart === 0 && left.order < right.order);
}
