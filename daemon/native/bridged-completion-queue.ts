/**
 * A completion queue of a native device, moved into the ring of its client.
 *
 * The native queue is always armed: the client polls its ring and asks nobody. What it arms is the
 * notify word of the ring.
 */
import type { WC } from '../../verbs-api/contract/completion.ts';
import type { DeviceCQ } from '../adapter/device-backend.ts';
import type { CQ } from '../rnic/completion-queue.ts';
import { giveBack } from './give-back.ts';
import type { LowerCQ } from './lower.ts';
import { BATCH } from './request-number.ts';

/** Completions that one turn of the event loop moves at most, so that others have their turn. */
const TURN_BUDGET = 512;

/** See the module's comment. */
export class BridgedCQ implements DeviceCQ {
  tag: unknown;
  readonly lower: LowerCQ;
  /** Writes the client's ring; it is tagged with this object. */
  readonly writer: CQ;
  /**
   * Completions in flight that the client did not ask for, and how many the native queue has room
   * for beside those that the client sized it for.
   */
  unreported = 0;
  readonly unreportedMax: number;
  readonly #route: (wc: WC) => void;
  readonly #onClose: () => void;

  constructor(parts: {
    lower: LowerCQ;
    writer: CQ;
    tag: unknown;
    route: (wc: WC) => void;
    onClose: () => void;
  }) {
    this.lower = parts.lower;
    this.writer = parts.writer;
    this.writer.tag = this;
    this.tag = parts.tag;
    this.unreportedMax = Math.max(1, parts.lower.cqe - parts.writer.count);
    this.#route = parts.route;
    this.#onClose = parts.onClose;
  }

  get count(): number {
    return this.writer.count;
  }

  /** Moves what has completed. True when there may be more, for another turn. */
  move(): boolean {
    for (let moved = 0; moved < TURN_BUDGET; moved += BATCH) {
      const completions = this.lower.poll(BATCH);
      for (const wc of completions) this.#route(wc);
      if (completions.length < BATCH) return false;
    }
    return true;
  }

  /** The native queue fired: moves, arms it anew, and looks once more. */
  fired(): boolean {
    this.lower.requestNotify(false);
    // Armed before the look: what completes after it fires, what completed before is seen.
    return this.move();
  }

  close(): void {
    if (this.writer.closed) return;
    this.writer.close();
    this.#onClose();
    giveBack(() => this.lower.dispose());
  }
}
