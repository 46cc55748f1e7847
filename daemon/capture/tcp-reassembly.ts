/**
 * Reassembles one direction of a TCP connection by sequence number (RFC 9293 §3.4). Late, repeated
 * and partial segments yield the bytes as their receiver saw them.
 */

/** Maximum bytes kept while an earlier segment is missing; receive windows are seldom larger. */
export const AHEAD_MAX_BYTES = 8 * 1024 * 1024;
/** Maximum segments kept, in case they carry almost nothing. */
const AHEAD_MAX_COUNT = 16_384;
const HALF = 0x8000_0000;

interface AheadSegment {
  readonly sequence: number;
  readonly bytes: Uint8Array;
}

/** See the module's comment. Delivers bytes in order, each once. */
export class TcpReassembly {
  #next: number;
  /** In descending sequence order, so the next one is removed from the end. */
  readonly #ahead: AheadSegment[] = [];
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
      // A retransmission may be truncated after bytes that were already seen.
      const cutBytes = wireBytes - bytes.length;
      if (distance(this.#next, (missesFrom + cutBytes) >>> 0) > 0) this.#lostBytes = cutBytes;
    } else this.#accept(sequence, bytes);
    if (this.#aheadBytes > AHEAD_MAX_BYTES || this.#ahead.length > AHEAD_MAX_COUNT) this.#giveUp();
    return this.#lostBytes === 0;
  }

  /** Bytes missing from the recording where it stopped; 0 if none are known to be. */
  get lostBytes(): number {
    return this.#lostBytes;
  }

  /** Call at the end: segments still kept have a gap before them. */
  finish(): void {
    if (this.#lostBytes === 0 && this.#ahead.length > 0) this.#giveUp();
  }

  #accept(sequence: number, bytes: Uint8Array): void {
    const skipBytes = distance(sequence, this.#next);
    if (skipBytes < 0) {
      if (bytes.length === 0) return;
      this.#ahead.splice(this.#placeOf(sequence), 0, { sequence, bytes: bytes.slice() });
      this.#aheadBytes += bytes.length;
      return;
    }
    if (skipBytes >= bytes.length) return;
    this.#pass(bytes.subarray(skipBytes));
    this.#passAhead();
  }

  /** The insertion index of a segment; after others with the same number. */
  #placeOf(sequence: number): number {
    let low = 0;
    let high = this.#ahead.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const other = this.#ahead[middle];
      if (other !== undefined && distance(sequence, other.sequence) > 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #passAhead(): void {
    for (;;) {
      const segment = this.#ahead.at(-1);
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
    const first = this.#ahead.at(-1);
    this.#lostBytes = first === undefined ? HALF : distance(this.#next, first.sequence);
    this.#ahead.length = 0;
    this.#aheadBytes = 0;
  }
}

/** Distance between sequence numbers, modulo 2^32; negative if `to` precedes `from`. */
function distance(from: number, to: number): number {
  const forward = (to - from) >>> 0;
  return forward < HALF ? forward : forward - 2 * HALF;
}
