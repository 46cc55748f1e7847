/**
 * Queue pairs that used up their share of a turn and have work left. Each waits once, however often it
 * asks; a turn of the event loop has a few of them, so that sockets and clients are served between
 * thousands.
 */
import type { QP } from '../rnic/queue-pair.ts';
import { noteWork } from './turn-note.ts';

/** Queue pairs that go on in one turn: each may take some two milliseconds. */
const TURN_QPS_MAX = 2;

/** See the module's comment. */
export class LaterTurns {
  readonly #soon: (run: () => void) => void;
  readonly #goOn: (qp: QP) => void;
  readonly #waiting = new Set<QP>();
  #scheduled = false;

  /** `soon` calls back in the next turn. */
  constructor(soon: (run: () => void) => void, goOn: (qp: QP) => void) {
    this.#soon = soon;
    this.#goOn = goOn;
  }

  /** `qp` goes on in a later turn. */
  add(qp: QP): void {
    this.#waiting.add(qp);
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#soon(this.#takeTurn);
  }

  /** Queue pairs that wait. */
  get count(): number {
    return this.#waiting.size;
  }

  readonly #takeTurn = (): void => {
    this.#scheduled = false;
    noteWork('queue pairs that continue');
    let share = TURN_QPS_MAX;
    for (const qp of this.#waiting) {
      if (share === 0) break;
      share -= 1;
      // First: it may ask again, and then waits behind the others.
      this.#waiting.delete(qp);
      this.#goOn(qp);
    }
    if (this.#waiting.size === 0 || this.#scheduled) return;
    this.#scheduled = true;
    this.#soon(this.#takeTurn);
  };
}
