/**
 * Puts one direction of a TCP connection together by sequence number (RFC 9293 §3.4). Segments that
 * came late, twice or in part leave the octets as their receiver saw them.
 */

/** Octets kept while an earlier segment is missing; a receiver's window is seldom larger. */
export const AHEAD_MAX_BYTES = 8 * 1024 * 1024;
/** Segments kept, for those that carry next to nothing. */
const AHEAD_MAX_COUNT = 16_384;
const HALF = 0x8000_0000;

interface AheadSegment {
  readonly sequence: number;
  readonly octets: Uint8Array;
}

/** See the module's comment. Octets are handed over in order, each once. */
export class TcpReassembly {
  #next: number;
  readonly #ahead: AheadSegment[] = [];
  #aheadBytes = 0;
  readonly #deliver: (octets: Uint8Array) => void;
  #lostBytes = 0;

  /** `firstSequence`: of the first octet. */
  constructor(firstSequence: number, deliver: (octets: Uint8Array) => void) {
    this.#next = firstSequence;
    this.#deliver = deliver;
  }

  /**
   * Takes a segment, whose octets are borrowed. `wireBytes` is its length on the wire: octets that
   * the recorder left out are a gap. Returns false once octets are missing for good.
   */
  take(sequence: number, octets: Uint8Array, wireBytes: number): boolean {
    if (this.#lostBytes > 0) return false;
    if (wireBytes > octets.length) {
      const missesFrom = (sequence + octets.length) >>> 0;
      this.#accept(sequence, octets);
      // A repeated segment may have been cut behind what was seen whole before.
      const cutBytes = wireBytes - octets.length;
      if (distance(this.#next, (missesFrom + cutBytes) >>> 0) > 0) this.#lostBytes = cutBytes;
    } else this.#accept(sequence, octets);
    if (this.#aheadBytes > AHEAD_MAX_BYTES || this.#ahead.length > AHEAD_MAX_COUNT) this.#giveUp();
    return this.#lostBytes === 0;
  }

  /** Octets missing from the recording where it stopped; 0 while nothing is known to be. */
  get lostBytes(): number {
    return this.#lostBytes;
  }

  /** To be called at the end: what is still kept lacks something before it. */
  finish(): void {
    if (this.#lostBytes === 0 && this.#ahead.length > 0) this.#giveUp();
  }

  #accept(sequence: number, octets: Uint8Array): void {
    const skipBytes = distance(sequence, this.#next);
    if (skipBytes < 0) {
      if (octets.length === 0) return;
      this.#ahead.push({ sequence, octets: octets.slice() });
      this.#aheadBytes += octets.length;
      return;
    }
    if (skipBytes >= octets.length) return;
    this.#pass(octets.subarray(skipBytes));
    this.#passAhead();
  }

  #passAhead(): void {
    for (let moved = true; moved && this.#ahead.length > 0; ) {
      moved = false;
      for (let index = this.#ahead.length - 1; index >= 0; index--) {
        const segment = this.#ahead[index];
        if (segment === undefined) continue;
        const skipBytes = distance(segment.sequence, this.#next);
        if (skipBytes < 0) continue;
        this.#ahead.splice(index, 1);
        this.#aheadBytes -= segment.octets.length;
        if (skipBytes < segment.octets.length) this.#pass(segment.octets.subarray(skipBytes));
        moved = true;
      }
    }
  }

  #pass(octets: Uint8Array): void {
    this.#next = (this.#next + octets.length) >>> 0;
    this.#deliver(octets);
  }

  #giveUp(): void {
    const gaps = this.#ahead.map(({ sequence }) => distance(this.#next, sequence));
    this.#lostBytes = gaps.reduce((least, gap) => Math.min(least, gap), HALF);
    this.#ahead.length = 0;
    this.#aheadBytes = 0;
  }
}

/** Octets from one sequence number to another, modulo 2^32; negative when `to` comes first. */
function distance(from: number, to: number): number {
  const forward = (to - from) >>> 0;
  return forward < HALF ? forward : forward - 2 * HALF;
}
