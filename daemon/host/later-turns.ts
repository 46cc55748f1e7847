/**
 * Queue pairs that used up their share of a turn and have work left. Each is queued once. A few of them run
 * in each turn of the event loop, so thousands do not starve sockets and clients.
 */
import type { QP } from '../rnic/queue-pair.ts';
import { noteWork } from './turn-note.ts';

/** Queue pairs that continue in one turn: each may take some two milliseconds. */
const TURN_QPS_MAX = 2;

export class LaterTurns {
  readonly #soon: (run: () => void) => void;
  readonly #resume: (qp: QP) => void;
  readonly #waiting = new Set<QP>();
  #scheduled = false;

  /** `soon` calls back in the next turn. */
  constructor(soon: (run: () => void) => void, resume: (qp: QP) => void) {
    this.#soon = soon;
    this.#resume = resume;
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
      // Before it runs: it may queue itself again, after the others.
      this.#waiting.delete(qp);
      this.#resume(qp);
    }
    if (this.#waiting.size === 0 || this.#scheduled) return;
    this.#scheduled = true;
    this.#soon(this.#takeTurn);
  };
}
