/**
 * Files that were closed for the last time. Few objects are destroyed at once, more in later turns of the
 * event loop, a share of each turn for all files together. So neither a program that ends with ten
 * thousand queue pairs, nor a hundred programs that end at once, delay others.
 */
import { noteWork } from '../../host/turn-note.ts';
import type { KernelFile } from './kernel-file.ts';

/** Work of one turn, in objects of the expensive kind: some ten milliseconds. */
const TURN_COST_MAX = 512;

interface EndingFile {
  readonly file: KernelFile;
  /** Called when everything is destroyed. */
  readonly ended: () => void;
}

/** See the module's comment. */
export class EndingFiles {
  readonly #soon: (run: () => void) => void;
  /** Oldest first. */
  readonly #waiting: EndingFile[] = [];
  #share = TURN_COST_MAX;
  #scheduled = false;

  /** `soon` calls back in the next turn. */
  constructor(soon: (run: () => void) => void) {
    this.#soon = soon;
  }

  /** Files with objects left. */
  get files(): readonly KernelFile[] {
    return this.#waiting.map(({ file }) => file);
  }

  /** Destroys the objects of `file`, now or later, then calls `ended`. */
  add(file: KernelFile, ended: () => void): void {
    if (this.#waiting.length === 0 && this.#take(file)) ended();
    else this.#waiting.push({ file, ended });
    if (this.#share < TURN_COST_MAX) this.#awaitTurn();
  }

  /** Destroys all that is left, at once. */
  finish(): void {
    for (const { file, ended } of this.#waiting.splice(0)) {
      file.close(Number.POSITIVE_INFINITY);
      ended();
    }
  }

  /** Destroys as much as the share permits. True if nothing is left. */
  #take(file: KernelFile): boolean {
    if (this.#share <= 0) return false;
    const cost = file.close(this.#share);
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
    noteWork('closed files');
    this.#scheduled = false;
    this.#share = TURN_COST_MAX;
    for (let [oldest] = this.#waiting; oldest !== undefined; [oldest] = this.#waiting) {
      if (!this.#take(oldest.file)) break;
      this.#waiting.shift();
      oldest.ended();
    }
    if (this.#share < TURN_COST_MAX) this.#awaitTurn();
  };
}
