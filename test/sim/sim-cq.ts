/** A completion queue of a simulated program. */
import type { CommandReply } from '#contract/protocol/commands';
import { CQE_BYTES } from '#contract/protocol/queue-layout';
import type { WC } from '#contract/verbs/completion';
import { CompletionRing } from '#verbs-api/client/completion-ring';
import { must } from './rules.ts';

/** See the module's comment. */
export class SimCq {
  readonly handle: number;
  readonly #ring: CompletionRing;
  readonly #control: Int32Array;
  /** Number of completions written when the queue was armed; undefined while it is not armed. */
  #armedAt: number | undefined;
  /** The device sent an event that the program has not handled. */
  notified = false;
  /** Completions that the program has taken, modulo 2^32. */
  taken = 0;

  constructor(made: CommandReply<'createCQ'>, ring: Uint8Array) {
    this.handle = made.cq;
    this.#ring = new CompletionRing(ring, made.cqe);
    this.#control = new Int32Array(ring.buffer, ring.byteOffset + made.cqe * CQE_BYTES, 2);
  }

  take(): WC | undefined {
    const wc = this.#ring.take();
    if (wc !== undefined) this.taken = (this.taken + 1) | 0;
    return wc;
  }

  arm(): void {
    this.#ring.arm(false);
    this.#armedAt = this.written;
  }

  /** The device sent an event. */
  fire(): void {
    this.notified = true;
    this.#armedAt = undefined;
  }

  /** Checks that an armed queue has fired for every completion since. */
  checkWake(): void {
    const armedAt = this.#armedAt;
    if (armedAt === undefined) return;
    must(this.written === armedAt, 'wake', 'a completion without an event');
  }

  /** Completions that the device has written, modulo 2^32. */
  get written(): number {
    return this.#control[1] ?? 0;
  }
}
