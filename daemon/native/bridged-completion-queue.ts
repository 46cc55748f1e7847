/**
 * Moves the completions of a native device's queue into its client's ring.
 *
 * The native queue is always armed, because the client polls its ring without calling the daemon.
 * The client arms the notify word of the ring.
 */
import type { WC } from '#contract/verbs/completion';
import type { DeviceCQ } from '../host/served-device.ts';
import type { CQ } from '../rnic/queues/completion-queue.ts';
import { giveBack } from './give-back.ts';
import type { LowerCQ } from './lower.ts';
import { BATCH } from './request-number.ts';

/** Completions to move in one turn of the event loop, so that other work gets its turn. */
const TURN_BUDGET = 512;

export class BridgedCQ implements DeviceCQ {
  tag: unknown;
  readonly lower: LowerCQ;
  /** Writes the client's ring; its tag is this object. */
  readonly writer: CQ;
  /**
   * Outstanding completions that the client did not request; the native queue has room for them
   * beyond the client's size.
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

  /** Moves finished completions. Returns true if there may be more, for another turn. */
  move(): boolean {
    for (let moved = 0; moved < TURN_BUDGET; moved += BATCH) {
      const completions = this.lower.poll(BATCH);
      for (const wc of completions) this.#route(wc);
      if (completions.length < BATCH) return false;
    }
    return true;
  }

  /** The native queue fired: moves, rearms it, and moves again. */
  fired(): boolean {
    this.lower.requestNotify(false);
    // Rearmed before moving: later completions fire, earlier ones are moved.
    return this.move();
  }

  close(): void {
    if (this.writer.closed) return;
    this.writer.close();
    this.#onClose();
    giveBack(() => this.lower.dispose());
  }
}
