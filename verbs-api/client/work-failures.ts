/** Why work of one queue pair failed, for the `reason` of its completions. */
import type { WorkFailure } from '#contract/protocol/commands';
import type { WC } from '#contract/verbs/completion';
import { WCOpcode, WCStatus } from '#contract/verbs/enums';

/** Failed work requests that are remembered: one of each queue ends a queue pair. */
const FAILURES_MAX = 4;

/** Reason of work that was flushed without a failure. */
const ENDED = 'flushed: its connection ended, or its queue pair was moved to ERR or destroyed';

export class WorkFailures {
  readonly #failed: WorkFailure[] = [];
  #flushed: string | undefined = undefined;

  /** The device has sent one. */
  add(failure: WorkFailure): void {
    if (failure.work === undefined) {
      this.#flushed = failure.sentence;
      return;
    }
    if (this.#failed.length === FAILURES_MAX) this.#failed.shift();
    this.#failed.push(failure);
  }

  /** The queue pair starts over. */
  clear(): void {
    this.#failed.length = 0;
    this.#flushed = undefined;
  }

  /** Why this work request failed; undefined if the device has not reported it. */
  readonly reasonOf = (wc: WC): string | undefined => {
    if (wc.status === WCStatus.wrFlushErr) return this.#flushed ?? ENDED;
    const queue = isReceive(wc.opcode) ? 'receive' : 'send';
    return this.#failed.findLast(({ work }) => work?.queue === queue && work.wrId === wc.wrId)
      ?.sentence;
  };
}

function isReceive(opcode: WCOpcode): boolean {
  return opcode === WCOpcode.recv || opcode === WCOpcode.recvImmediate;
}
