/**
 * Sends that were posted before there is a connection. Devices refuse them, or forget them (libsiw
 * writes them to its queue and nobody looks); the contract has them wait.
 */
import type { SendWR } from '../../verbs-api/contract/work-request.ts';
import { NativeError } from '../rdma/errors.ts';
import type { NativeQP } from '../rdma/queue-pair.ts';

/** Sends in the order in which they were posted. */
export class HeldSends {
  #requests: SendWR[] = [];

  /** Checks the requests as the queue pair would, and keeps copies. Errors as `postSend`. */
  add(qp: NativeQP, requests: readonly SendWR[]): void {
    const room = qp.capabilities.maxSendWr - this.#requests.length;
    const refusal = qp.checkSend(requests);
    const sound = refusal?.badIndex ?? requests.length;
    this.#keep(requests.slice(0, Math.min(sound, room)));
    if (sound > room) {
      throw new NativeError('refused', 'ENOMEM', `${qp.subject}: the queue is full`, room);
    }
    if (refusal !== undefined) throw refusal;
  }

  /** Takes out what waited. */
  take(): readonly SendWR[] {
    const requests = this.#requests;
    this.#requests = [];
    return requests;
  }

  /** The caller may reuse its lists and inline payload once the call has returned. */
  #keep(requests: readonly SendWR[]): void {
    for (const wr of requests) {
      this.#requests.push({
        ...wr,
        ...(wr.sgList === undefined ? {} : { sgList: wr.sgList.map((sge) => ({ ...sge })) }),
        ...(wr.inlineData === undefined ? {} : { inlineData: wr.inlineData.slice() }),
      });
    }
  }
}
