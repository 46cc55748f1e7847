/**
 * Queue pairs that used up their share of a turn and have work left. Each is queued once, however often
 * it asks. A few of them run in each turn of the event loop, so thousands do not starve sockets and
 * clients.
 */
import type { QP } from '../rnic/queue-pair.ts';
import { noteWork } from './turn-note.ts';

/** Queue pairs that continue in one turn: each may take some two milliseconds. */
const TURN_QPS_MAX = 2;

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

  /** Queues `qp` for a later turn. */
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
      // Before it runs: it may ask again, and then queues after the others.
      this.#waiting.delete(qp);
      this.#goOn(qp);
    }
    if (this.#waiting.size === 0 || this.#scheduled) return;
    this.#scheduled = true;
    this.#soon(this.#takeTurn);
  };
}
