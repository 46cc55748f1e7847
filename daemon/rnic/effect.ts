/** What the NIC tells its host: effects, drained after every call into the NIC or a stream. */
import type { AsyncEventType } from '../../verbs-api/contract/enums.ts';
import type { CQ } from './completion-queue.ts';
import type { QP } from './queue-pair.ts';
import type { SRQ } from './shared-receive-queue.ts';

/** One effect. Those without data of their own are reused objects: read them, do not keep them. */
export type NicEffect =
  /** An armed CQ fired; its tag tells the host whose it is. */
  | { readonly type: 'completion'; readonly cq: CQ }
  | {
      readonly type: 'async';
      readonly event: AsyncEventType;
      readonly element: QP | CQ | SRQ | undefined;
      readonly text: string;
    }
  /**
   * The QP closes its stream (modify to SQD or SQE, a failed work request). The stream was told
   * and may have octets to transmit; the connection manager has to tell its id.
   */
  | { readonly type: 'disconnect'; readonly qp: QP }
  /** The QP reset its stream (modify to ERR or RESET, close). The stream was told already. */
  | { readonly type: 'abort'; readonly qp: QP }
  /** The QP used up its budget and has work left: call `qp.doorbell(now)` in a later turn. */
  | { readonly type: 'resume'; readonly qp: QP }
  /** Memory that the QP waited for has come: its stream may have octets to transmit. */
  | { readonly type: 'transmit'; readonly qp: QP };

/** First-in, first-out queue of effects; its memory is reused once it is empty. */
export class EffectQueue {
  private effects: (NicEffect | undefined)[] = [];
  private head = 0;

  push(effect: NicEffect): void {
    this.effects.push(effect);
  }

  poll(): NicEffect | undefined {
    if (this.head === this.effects.length) return undefined;
    const effect = this.effects[this.head];
    this.effects[this.head] = undefined;
    this.head += 1;
    if (this.head === this.effects.length) {
      this.effects.length = 0;
      this.head = 0;
    }
    return effect;
  }
}
