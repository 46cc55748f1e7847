/** Allocates parts of a file: first fit; adjacent free parts are merged. */
import { assert } from '#base/assert';

interface Gap {
  offset: number;
  lengthBytes: number;
}

export class FreeSpace {
  readonly lengthBytes: number;
  /** Sorted by offset; no two are adjacent. */
  readonly #gaps: Gap[];

  constructor(lengthBytes: number) {
    this.lengthBytes = lengthBytes;
    this.#gaps = [{ offset: 0, lengthBytes }];
  }

  get empty(): boolean {
    return this.#gaps[0]?.lengthBytes === this.lengthBytes;
  }

  /** The free parts. The next call may change them. */
  get gaps(): readonly Readonly<Gap>[] {
    return this.#gaps;
  }

  /** Allocates the first part that is large enough. Returns its offset, or undefined. */
  take(lengthBytes: number): number | undefined {
    const index = this.#gaps.findIndex((gap) => gap.lengthBytes >= lengthBytes);
    const gap = this.#gaps[index];
    if (gap === undefined) return undefined;
    const { offset } = gap;
    gap.offset += lengthBytes;
    gap.lengthBytes -= lengthBytes;
    if (gap.lengthBytes === 0) this.#gaps.splice(index, 1);
    return offset;
  }

  give(offset: number, lengthBytes: number): void {
    const index = this.#firstAfter(offset);
    const before = this.#gaps[index - 1];
    const next = this.#gaps[index];
    const end = offset + lengthBytes;
    const start = before === undefined ? 0 : before.offset + before.lengthBytes;
    const inside = start <= offset && end <= (next?.offset ?? this.lengthBytes);
    assert(inside, 'freed part was not allocated');
    const joinsNext = next?.offset === end;
    if (before !== undefined && before.offset + before.lengthBytes === offset) {
      before.lengthBytes += lengthBytes + (joinsNext ? next.lengthBytes : 0);
      if (joinsNext) this.#gaps.splice(index, 1);
    } else if (joinsNext) {
      next.offset = offset;
      next.lengthBytes += lengthBytes;
    } else {
      this.#gaps.splice(index, 0, { offset, lengthBytes });
    }
  }

  #firstAfter(offset: number): number {
    let low = 0;
    let high = this.#gaps.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#gaps[middle]?.offset ?? 0) < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
