/**
 * The rings of a shared receive queue behind a resize: what was posted before stays in the ring in which
 * the client wrote it, and is taken from there, before anything of the newest ring. To copy a million
 * elements would stop the device meanwhile.
 *
 * The client sees the newest ring only, with as many elements posted in its first slots; it does not
 * look at those.
 */
import type { IndexRing } from './index-ring.ts';
import type { WorkRing } from './ring.ts';

/** A ring that was resized, and what is left in it. */
interface OlderRing {
  readonly ring: IndexRing;
  left: number;
  /** The ring's memory is not needed any more. */
  readonly emptied: () => void;
}

/** See the module's comment. */
export class JoinedRings implements WorkRing {
  /** What was posted last. */
  readonly newest: IndexRing;
  /** Oldest first; each has elements left. */
  readonly #older: OlderRing[];
  #left = 0;

  private constructor(newest: IndexRing, older: OlderRing[]) {
    this.newest = newest;
    this.#older = older;
    for (const { left } of older) this.#left += left;
    newest.startBehind(this.#left);
  }

  /**
   * Continues `before`, which holds `posted` elements, in `newest`: the caller has read how many there
   * are, since the client may say something else by now. They fit. `emptied` is called once the ring
   * of `before` that the client had is not needed any more.
   */
  static behind(
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

  /** Nothing is left but what is in the newest ring. */
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
