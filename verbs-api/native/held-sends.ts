/**
 * Sends posted before the connection is established. Devices refuse or lose them (libsiw writes
 * them to a queue that nothing reads yet); the contract requires that they wait.
 */
import type { SendFields } from '#contract/verbs/work-request';
import { NativeError } from '#native-bridge/rdma/errors';
import type { NativeQP } from '#native-bridge/rdma/queue-pair';

/** Sends in the order in which they were posted. */
export class HeldSends {
  #requests: SendFields[] = [];

  /** Checks the requests as the queue pair would, and keeps copies. Errors as `postSend`. */
  add(qp: NativeQP, requests: readonly SendFields[]): void {
    const room = qp.capabilities.maxSendWr - this.#requests.length;
    const refusal = qp.checkSend(requests);
    const sound = refusal?.badIndex ?? requests.length;
    this.#keep(requests.slice(0, Math.min(sound, room)));
    if (sound > room) {
      throw new NativeError('refused', 'ENOMEM', `${qp.subject}: the queue is full`, room);
    }
    if (refusal !== undefined) throw refusal;
  }

  take(): readonly SendFields[] {
    const requests = this.#requests;
    this.#requests = [];
    return requests;
  }

  /** The caller may reuse its lists and inline payload after the call. */
  #keep(requests: readonly SendFields[]): void {
    for (const wr of requests) {
      this.#requests.push({
        ...wr,
        ...(wr.sgList === undefined ? {} : { sgList: wr.sgList.map((sge) => ({ ...sge })) }),
        ...(wr.inlineData === undefined ? {} : { inlineData: wr.inlineData.slice() }),
      });
    }
  }
}
