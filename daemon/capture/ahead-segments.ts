/** TCP segments that arrived before an earlier one, by sequence number. */
import { BinaryHeap } from './binary-heap.ts';

/** Half of the sequence numbers: a larger distance ahead counts as a negative one. */
export const HALF = 0x8000_0000;

/** Distance between sequence numbers, modulo 2^32; negative if `to` precedes `from`. */
export function distance(from: number, to: number): number {
  const forward = (to - from) >>> 0;
  return forward < HALF ? forward : forward - 2 * HALF;
}

interface AheadSegment {
  readonly sequence: number;
  /** Counts arrivals: of two with the same number, the first comes first. */
  readonly order: number;
  readonly bytes: Uint8Array;
}

/** All numbers must lie within half of the sequence space. */
export class AheadSegments {
  readonly #segments = new BinaryHeap(precedes);
  #order = 0;

  get count(): number {
    return this.#segments.count;
  }

  /** The segment with the lowest number. */
  get first(): AheadSegment | undefined {
    return this.#segments.first;
  }

  push(sequence: number, bytes: Uint8Array): void {
    this.#segments.push({ sequence, order: this.#order++, bytes });
  }

  /** Removes the first. */
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
