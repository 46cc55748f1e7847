/** Effects that the NIC reports to its host, drained after every call into the NIC or a stream. */

import type { AsyncEffect } from './effect-sink.ts';
import type { QPEffect } from './queue-pair.ts';
import type { CQEffect } from './queues/completion-queue.ts';
import type { SRQEffect } from './queues/shared-receive-queue.ts';

/** One effect. Objects are reused where possible: read them, do not keep them. */
export type NicEffect =
  | CQEffect
  | QPEffect
  | SRQEffect
  /** An event of the port or the device. */
  | AsyncEffect<undefined>;

/** Places that an empty queue keeps: more than the effects of most turns. */
const KEPT_MAX = 1024;

/** First-in, first-out queue of effects; its memory is reused once it is empty. */
export class EffectQueue {
  /** The effects from `#head` up to `#tail`; the rest is kept for reuse, since setting a length is a slow call. */
  readonly #effects: (NicEffect | undefined)[] = [];
  #head = 0;
  #tail = 0;

  push(effect: NicEffect): void {
    this.#effects[this.#tail] = effect;
    this.#tail += 1;
  }

  get count(): number {
    return this.#tail - this.#head;
  }

  poll(): NicEffect | undefined {
    if (this.#head === this.#tail) return undefined;
    const effect = this.#effects[this.#head];
    this.#effects[this.#head] = undefined;
    this.#head += 1;
    if (this.#head === this.#tail) {
      this.#head = 0;
      this.#tail = 0;
      if (this.#effects.length > KEPT_MAX) this.#effects.length = KEPT_MAX;
    }
    return effect;
  }
}
