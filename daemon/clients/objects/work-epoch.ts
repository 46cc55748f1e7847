/**
 * A number that changes whenever a queue pair of a client may have abandoned work. Bytes fetched
 * from the client's memory for that work must not be used for later work.
 */
import { QPState } from '#contract/verbs/enums';

/** Exceeds the number of queue pairs that a client can have. */
const FAILED_MAX = 0x1_0000;

export class WorkEpoch {
  #commands = 0;

  /** Call for every command that may end work of a queue pair. */
  noteCommand(): void {
    this.#commands += 1;
  }

  /** The epoch of a client with these queue pairs; a failed one stays so until a command. */
  value(pairs: readonly { readonly qp: { readonly state: QPState } }[]): number {
    let failed = 0;
    for (const { qp } of pairs) {
      if (qp.state === QPState.ERR || qp.state === QPState.SQE) failed += 1;
    }
    return this.#commands * FAILED_MAX + failed;
  }
}
