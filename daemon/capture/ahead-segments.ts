/**
 * TCP segments that arrived before an earlier one, by sequence number: a binary heap. Each costs the
 * same few steps to add and to take, whatever the order in which they arrive.
 */

/** Half of the sequence numbers: what is further ahead counts as behind. */
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

/** See the module's comment. The numbers lie within half of the sequence space. */
export class AheadSegments {
  /** Each comes before the two at twice its index and one or two more. */
  readonly #heap: AheadSegment[] = [];
  #order = 0;

  get count(): number {
    return this.#heap.length;
  }

  /** The segment with the lowest number. */
  get first(): AheadSegment | undefined {
    return this.#heap[0];
  }

  push(sequence: number, bytes: Uint8Array): void {
    const heap = this.#heap;
    const segment = { sequence, order: this.#order++, bytes };
    let at = heap.length;
    heap.push(segment);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !precedes(segment, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = segment;
  }

  /** Removes the first. */
  pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      const left = heap[child];
      const right = heap[child + 1];
      if (left === undefined) break;
      if (right !== undefined && precedes(right, left)) child += 1;
      const least = heap[child];
      if (least === undefined || !precedes(least, last)) break;
      heap[at] = least;
      at = child;
    }
    heap[at] = last;
  }

  clear(): void {
    this.#heap.length = 0;
  }
}

function precedes(left: AheadSegment, right: AheadSegment): boolean {
  const apart = distance(left.sequence, right.sequence);
  return apart > 0 || (apart === 0 && left.order < right.order);
}
