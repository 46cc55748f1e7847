/**
 * Destroys the objects of ended owners: files after their last close, clients after they disconnect.
 * A few objects at once, more in later turns of the event loop, within a share of each turn for all
 * owners of a kind. So neither a program that ends with ten thousand queue pairs, nor a hundred
 * programs that end at once, delay others.
 */
import type { Micros } from '#base/time';
import { noteWork } from '#daemon/host/turn-note';

/**
 * Microseconds per turn. A number of objects alone does not suffice: the first ones take several times
 * as long as later ones, until their code is compiled.
 */
const SHARE_MICROS = 4000;
/** Work per turn, in expensive objects; needed on a clock that stands still during a turn. */
const SHARE_COST = 512;
/** Expensive objects between two reads of the clock. */
const PIECE_COST = 16;
/** Completions that take as long to flush as destroying a queue pair. */
export const COMPLETIONS_OF_OBJECT = 16;

interface Owner {
  /**
   * Destroys everything in dependency order, up to about `costMax` objects' worth of work in each call.
   * Returns the work done: less than `costMax` when nothing is left.
   */
  close(costMax: number): number;
}

interface EndingHost {
  now(): Micros;
  soon(run: () => void): void;
}

interface Ending<T> {
  readonly owner: T;
  /** Called when everything is destroyed. */
  readonly ended: () => void;
}

export class EndingOwners<T extends Owner> {
  readonly #host: EndingHost;
  /** Oldest first. */
  readonly #waiting: Ending<T>[] = [];
  /** Time used of this turn's share. */
  #spentMicros = 0;
  #spentCost = 0;
  #scheduled = false;

  constructor(host: EndingHost) {
    this.#host = host;
  }

  /** Owners with objects left. */
  get owners(): readonly T[] {
    return this.#waiting.map(({ owner }) => owner);
  }

  /** Destroys the objects of `owner`, now or later, then calls `ended`. */
  add(owner: T, ended: () => void): void {
    this.#waiting.push({ owner, ended });
    if (this.#waiting.length === 1) this.#takeOldest();
    this.#awaitTurn();
  }

  /** Resolves once no owner is left. */
  async idle(): Promise<void> {
    while (this.#waiting.length > 0) {
      await new Promise<void>((resolve) => this.#host.soon(resolve));
    }
  }

  get #spent(): boolean {
    return this.#spentMicros >= SHARE_MICROS || this.#spentCost >= SHARE_COST;
  }

  /** Destroys objects of the oldest owner, within the share. */
  #takeOldest(): void {
    const [oldest] = this.#waiting;
    const before = this.#spentMicros;
    const begun = this.#host.now();
    let isLeft = true;
    while (oldest !== undefined && isLeft && !this.#spent) {
      const cost = oldest.owner.close(PIECE_COST);
      isLeft = cost >= PIECE_COST;
      if (!isLeft) {
        this.#waiting.shift();
        oldest.ended();
      }
      // An owner without objects takes some time, too.
      this.#spentCost += cost + 1;
      this.#spentMicros = before + this.#host.now() - begun;
    }
  }

  #awaitTurn(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#host.soon(this.#takeTurn);
  }

  readonly #takeTurn = (): void => {
    noteWork('ended owners');
    this.#scheduled = false;
    this.#spentMicros = 0;
    this.#spentCost = 0;
    while (this.#waiting.length > 0 && !this.#spent) this.#takeOldest();
    if (this.#spentCost > 0) this.#awaitTurn();
  };
}
