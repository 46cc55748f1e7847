/** One simulated host: a NIC and a consumer that posts to its queues and polls its completions. */

import type { CQ } from '../../daemon/rnic/completion-queue.ts';
import { ViewBacking } from '../../daemon/rnic/memory-backing.ts';
import type { MR } from '../../daemon/rnic/memory-region.ts';
import { Nic } from '../../daemon/rnic/nic.ts';
import type { PD } from '../../daemon/rnic/protection-domain.ts';
import type { QP } from '../../daemon/rnic/queue-pair.ts';
import { CompletionRing } from '../../verbs-api/client/completion-ring.ts';
import { ReceiveRing } from '../../verbs-api/client/receive-ring.ts';
import { SendRing } from '../../verbs-api/client/send-ring.ts';
import type { WC } from '../../verbs-api/contract/completion.ts';
import { Access } from '../../verbs-api/contract/enums.ts';
import type { RecvWR, SendWR } from '../../verbs-api/contract/work-request.ts';

/** Work requests that a queue holds. */
export const QUEUE_DEPTH = 32;
const CQ_DEPTH = 4096;
const ALL_ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;

/** A queue pair and its consumer's ends of the rings. */
export interface SimQP {
  readonly qp: QP;
  readonly send: SendRing;
  readonly receive: ReceiveRing;
}

/** A host of the simulation. */
export class SimNode {
  readonly nic: Nic;
  readonly #pd: PD;
  readonly #cq: CQ;
  readonly #completions: CompletionRing;

  constructor(name: string, seed: number) {
    this.nic = new Nic({ name, seed });
    this.#pd = this.nic.allocPD();
    this.#cq = this.nic.createCQ({ cqe: CQ_DEPTH, ring: newRing, tag: undefined });
    this.#completions = new CompletionRing(this.#cq.ring, this.#cq.count);
  }

  /** Registers octets with every right, at an address of its own. */
  register(octets: Uint8Array, address: number): MR {
    return this.nic.regMR(this.#pd, {
      backing: new ViewBacking(octets),
      backingOffset: 0,
      lengthBytes: octets.length,
      address,
      iova: address,
      access: ALL_ACCESS,
      key: undefined,
    });
  }

  createQP(): SimQP {
    const qp = this.nic.createQP(this.#pd, {
      sendCQ: this.#cq,
      recvCQ: this.#cq,
      srq: undefined,
      capabilities: {
        maxSendWr: QUEUE_DEPTH,
        maxRecvWr: QUEUE_DEPTH,
        maxSendSge: 4,
        maxRecvSge: 4,
        maxInlineData: 64,
      },
      sqSigAll: false,
      ring: newRing,
      tag: undefined,
    });
    const send = new SendRing(qp.ring.subarray(0, qp.rqOffset), {
      count: qp.sqCount,
      maxSge: 4,
      maxInline: 64,
      sqSigAll: false,
    });
    return { qp, send, receive: new ReceiveRing(qp.ring, qp.rqOffset, qp.rqCount, 4) };
  }

  /** Posts; false when the queue is full. Any other refusal is the simulation's own mistake. */
  postSend(pair: SimQP, wr: SendWR, now: number): boolean {
    const refused = pair.send.post(wr);
    if (refused !== undefined && refused !== 'ENOMEM') throw new Error(`post refused: ${refused}`);
    if (pair.send.doorbellDue()) pair.qp.doorbell(now);
    return refused === undefined;
  }

  postReceive(pair: SimQP, wr: RecvWR): boolean {
    return pair.receive.post(wr) === undefined;
  }

  poll(): WC | undefined {
    return this.#completions.take();
  }

  /** Drops the NIC's effects but lets QPs go on whose budget ran out. */
  drain(now: number): void {
    for (let effect = this.nic.pollEffect(); effect; effect = this.nic.pollEffect()) {
      if (effect.type === 'resume') effect.qp.doorbell(now);
    }
  }
}

function newRing(bytes: number): Uint8Array {
  return new Uint8Array(new ArrayBuffer(Math.ceil(bytes / 8) * 8), 0, bytes);
}
