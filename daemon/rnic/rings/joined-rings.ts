/**
 * The rings of a shared receive queue after a resize. Receives posted earlier stay in the ring in which
 * the client wrote them and are taken first: copying a million elements would block the device.
 *
 * The client sees only the newest ring. Its first slots count as posted in their place; the client never
 * reads them.
 */
import type { IndexRing } from './index-ring.ts';
import type { WorkRing } from './ring.ts';

/** A ring that was resized, and the receives left in it. */
interface OlderRing {
  readonly ring: IndexRing;
  left: number;
  /** Called when the ring's memory can be freed. */
  readonly emptied: () => void;
}

export class JoinedRings implements WorkRing {
  readonly newest: IndexRing;
  /** Oldest first; each has receives left. */
  readonly #older: OlderRing[];
  #left = 0;

  private constructor(newest: IndexRing, older: OlderRing[]) {
    this.newest = newest;
    this.#older = older;
    for (const { left } of older) this.#left += left;
    newest.startAfter(this.#left);
  }

  /**
   * Continues `before` in `newest`. `posted` is the number of elements; the caller read it once, since
   * the client may change it, and they fit. Calls `emptied` once the previous ring's memory can be
   * freed.
   */
  static after(
    before: IndexRing | JoinedRings,
    posted: number,
    newest: IndexRing,
    emptied: () => void,
  ): IndexRing | JoinedRings {
    const joined = before instanceof JoinedRings;
    const older = joined ? [...before.#older] : [];
    const left = joined ? posted - before.#left : posted;
    const ring = joined ? before.newest : before;
    if (left > 0) older.push({ ring, left, emptied });
    else emptied();
    return older.length === 0 ? newest : new JoinedRings(newest, older);
  }

  /** True if only the newest ring has receives left. */
  get drained(): boolean {
    return this.#left === 0;
  }

  get #current(): IndexRing {
    return this.#older[0]?.ring ?? this.newest;
  }

  get bytes(): Uint8Array {
    return this.#current.bytes;
  }

  get view(): DataView {
    return this.#current.view;
  }

  get position(): number {
    return this.#current.position;
  }

  get count(): number {
    return this.newest.count;
  }

  get index(): number {
    return (this.newest.index - this.#left) >>> 0;
  }

  get memory(): Uint8Array {
    return this.newest.memory;
  }

  ready(): boolean {
    return this.#left > 0 || this.newest.ready();
  }

  readyAt(distance: number): boolean {
    return distance < this.#left || this.newest.readyAt(distance - this.#left);
  }

  readyCount(): number {
    return this.#left + this.newest.readyCount();
  }

  release(): void {
    const [oldest] = this.#older;
    if (oldest === undefined) {
      this.newest.release();
      return;
    }
    oldest.ring.release();
    oldest.left -= 1;
    this.#left -= 1;
    if (oldest.left > 0) return;
    this.#older.shift();
    oldest.emptied();
  }

  giveBack(): void {
    this.newest.giveBack();
  }

  clear(): void {
    this.end();
    this.newest.clear();
  }

  sgeRoom(offset: number): number {
    return this.newest.sgeRoom(offset);
  }

  end(): void {
    for (const { emptied } of this.#older) emptied();
    this.#older.length = 0;
    this.#left = 0;
  }
}
