/** A queue pair with a deep receive queue, which a host flushes in several turns. */
import { QPState, WCStatus } from '#contract/verbs/enums';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { must } from '../rules.ts';
import type { SimCq } from '../sim-cq.ts';
import type { PacketProgram } from './packet-program.ts';

const DEPTH = 8192;
/** Completions of one queue in one turn; the device aims at 1,000. */
const TURN_COMPLETIONS_MAX = 2048;
/** Calls of `poll` in which all must be flushed. */
const POLLS_MAX = 100;

export class DeepQueue {
  readonly #program: PacketProgram;
  readonly #cq: SimCq;
  readonly #qp: number;
  readonly #qpn: number;
  #flushed = 0;
  #polls = 0;

  constructor(program: PacketProgram) {
    this.#program = program;
    this.#cq = program.createCq(DEPTH);
    const made = program.call('createQP', {
      pd: program.pd,
      sendCQ: this.#cq.handle,
      recvCQ: this.#cq.handle,
      srq: undefined,
      capabilities: {
        maxSendWr: 1,
        maxRecvWr: DEPTH,
        maxSendSge: 1,
        maxRecvSge: 1,
        maxInlineData: 0,
      },
      sqSigAll: false,
    });
    this.#qp = made.qp;
    this.#qpn = made.qpNum;
    program.deepQpns.add(this.#qpn);
    const attributes = { accessFlags: 0, pkeyIndex: 0, portNum: 1 };
    program.call('modifyQP', { qp: this.#qp, state: QPState.INIT, attributes });
    const ring = new ReceiveRing(program.view(made.ring), made.rqOffset, made.rqCount, 1);
    for (let wrId = 0; wrId < DEPTH; wrId += 1) ring.post({ wrId, sgList: [] });
  }

  fail(): void {
    const { written } = this.#cq;
    this.#program.call('modifyQP', { qp: this.#qp, state: QPState.ERR });
    const flushed = this.#cq.written - written;
    must(flushed <= TURN_COMPLETIONS_MAX, 'bounded', `${flushed} completions in one turn`);
  }

  /** Takes completions. True once all have come, and the queues are destroyed. */
  poll(): boolean {
    this.#polls += 1;
    for (let wc = this.#cq.take(); wc !== undefined; wc = this.#cq.take()) {
      const flushed = wc.status === WCStatus.wrFlushErr && Number(wc.wrId) === this.#flushed;
      must(flushed, 'once', () => `${wc?.wrId} completes, not ${this.#flushed}`);
      this.#flushed += 1;
    }
    must(this.#polls < POLLS_MAX, 'once', () => `${this.#flushed} of ${DEPTH} are flushed`);
    if (this.#flushed < DEPTH) return false;
    this.#program.call('destroyQP', { qp: this.#qp });
    this.#program.dropEventsOf(this.#qpn);
    this.#program.deepQpns.delete(this.#qpn);
    this.#program.call('destroyCQ', { cq: this.#cq.handle });
    return true;
  }
}
