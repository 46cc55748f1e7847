/**
 * Owners of objects that have ended: files that were closed for the last time, clients that disconnected.
 * Few objects are destroyed at once, more in later turns of the event loop, a share of each turn for all
 * of a kind together. So neither a program that ends with ten
 * thousand queue pairs, nor a hundred programs that end at once, delay others.
 */
import { noteWork } from '../../host/turn-note.ts';

/** Work of one turn, in objects of the expensive kind: some ten milliseconds. */
const TURN_COST_MAX = 512;
/** Completions that take as long as destroying a queue pair: what one flushes counts, too. */
export const COMPLETIONS_OF_OBJECT = 16;

/** An owner of objects. */
interface Owner {
  /**
   * Destroys everything in dependency order, up to about `costMax` objects' worth of work in each call.
   * Returns the work done: less than `costMax` when nothing is left.
   */
  close(costMax: number): number;
}

interface Ending<T> {
  readonly owner: T;
  /** Called when everything is destroyed. */
  readonly ended: () => void;
}

/** See the module's comment. */
export class EndingOwners<T extends Owner> {
  readonly #soon: (run: () => void) => void;
  /** Oldest first. */
  readonly #waiting: Ending<T>[] = [];
  #share = TURN_COST_MAX;
  #scheduled = false;

  /** `soon` calls back in the next turn. */
  constructor(soon: (run: () => void) => void) {
    this.#soon = soon;
  }

  /** Those with objects left. */
  get owners(): readonly T[] {
    return this.#waiting.map(({ owner }) => owner);
  }

  /** Destroys the objects of `owner`, now or later, then calls `ended`. */
  add(owner: T, ended: () => void): void {
    if (this.#waiting.length === 0 && this.#take(owner)) ended();
    else this.#waiting.push({ owner, ended });
    if (this.#share < TURN_COST_MAX) this.#awaitTurn();
  }

  /** Resolves once nothing is left. */
  async idle(): Promise<void> {
    while (this.#waiting.length > 0) {
      await new Promise<void>((resolve) => this.#soon(resolve));
    }
  }

  /** Destroys as much as the share permits. True if nothing is left. */
  #take(owner: T): boolean {
    if (this.#share <= 0) return false;
    const cost = owner.close(this.#share);
    const all = cost < this.#share;
    this.#share -= cost;
    return all;
  }

  #awaitTurn(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#soon(this.#takeTurn);
  }

  readonly #takeTurn = (): void => {
    noteWork('ended owners');
    this.#scheduled = false;
    this.#share = TURN_COST_MAX;
    for (let [oldest] = this.#waiting; oldest !== undefined; [oldest] = this.#waiting) {
      if (!this.#take(oldest.owner)) break;
      this.#waiting.shift();
      oldest.ended();
    }
    if (this.#share < TURN_COST_MAX) this.#awaitTurn();
  };
}
