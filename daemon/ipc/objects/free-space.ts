/** Which parts of a file are taken: first fit, and neighbours that are free become one part. */
import { assert } from '#base/assert';

/** A free part. */
interface Gap {
  offset: number;
  lengthBytes: number;
}

export class FreeSpace {
  readonly lengthBytes: number;
  /** In the order of their offsets; none touches the next. */
  readonly #gaps: Gap[];

  constructor(lengthBytes: number) {
    this.lengthBytes = lengthBytes;
    this.#gaps = [{ offset: 0, lengthBytes }];
  }

  /** True when nothing is taken. */
  get empty(): boolean {
    return this.#gaps[0]?.lengthBytes === this.lengthBytes;
  }

  /** The free parts. They change with the next call. */
  get gaps(): readonly Readonly<Gap>[] {
    return this.#gaps;
  }

  /** Takes the first part that is large enough. Returns its offset; undefined if there is none. */
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

  /** Gives back a part that was taken. */
  give(offset: number, lengthBytes: number): void {
    const index = this.#firstBehind(offset);
    const before = this.#gaps[index - 1];
    const behind = this.#gaps[index];
    const end = offset + lengthBytes;
    const start = before === undefined ? 0 : before.offset + before.lengthBytes;
    const inside = start <= offset && end <= (behind?.offset ?? this.lengthBytes);
    assert(inside, 'what is given back was taken');
    const joinsBehind = behind?.offset === end;
    if (before !== undefined && before.offset + before.lengthBytes === offset) {
      before.lengthBytes += lengthBytes + (joinsBehind ? behind.lengthBytes : 0);
      if (joinsBehind) this.#gaps.splice(index, 1);
    } else if (joinsBehind) {
      behind.offset = offset;
      behind.lengthBytes += lengthBytes;
    } else {
      this.#gaps.splice(index, 0, { offset, lengthBytes });
    }
  }

  /** Index of the first gap behind `offset`. */
  #firstBehind(offset: number): number {
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
