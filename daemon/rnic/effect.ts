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

/** First-in, first-out queue of effects; its memory is reused once it is empty. */
export class EffectQueue {
  #effects: (NicEffect | undefined)[] = [];
  #head = 0;

  push(effect: NicEffect): void {
    this.#effects.push(effect);
  }

  get count(): number {
    return this.#effects.length - this.#head;
  }

  poll(): NicEffect | undefined {
    if (this.#head === this.#effects.length) return undefined;
    const effect = this.#effects[this.#head];
    this.#effects[this.#head] = undefined;
    this.#head += 1;
    if (this.#head === this.#effects.length) {
      this.#effects.length = 0;
      this.#head = 0;
    }
    return effect;
  }
}
