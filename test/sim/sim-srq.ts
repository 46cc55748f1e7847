/** A shared receive queue of a simulated program. */
import type { CommandReply } from '#contract/protocol/commands';
import { QueueFlag, RQE, RQE_BYTES } from '#contract/protocol/queue-layout';
import type { RecvWR } from '#contract/verbs/work-request';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import type { Registered } from './sim-memory.ts';

/** Scatter and gather elements of a work request, in every queue. */
export const MAX_SGE = 4;

/** A queue pair that receives from it: its life, and the messages of the peer. */
interface SrqUser {
  readonly party: {
    readonly peer: { readonly messages: readonly unknown[] } | undefined;
    readonly delivered: number;
  };
}

/** See the module's comment. */
export class SimSrq {
  readonly handle: number;
  readonly inbox: Registered;
  readonly freeSlots: number[] = [];
  readonly users = new Set<SrqUser>();
  readonly #bytes: Uint8Array;
  readonly #count: number;
  readonly #ring: ReceiveRing;

  constructor(made: CommandReply<'createSRQ'>, ring: Uint8Array, inbox: Registered) {
    this.handle = made.srq;
    this.inbox = inbox;
    this.#bytes = ring;
    this.#count = made.count;
    this.#ring = new ReceiveRing(ring, 0, made.count, MAX_SGE);
    for (let slot = 0; slot < made.count; slot += 1) this.freeSlots.push(slot);
  }

  post(wr: RecvWR): boolean {
    return this.#ring.post(wr) === undefined;
  }

  /** Receives that no message in flight will take. */
  get spare(): number {
    let outstanding = 0;
    for (const { party } of this.users) {
      const { peer } = party;
      if (peer !== undefined) outstanding += Math.max(0, peer.messages.length - party.delivered);
    }
    return this.#posted - outstanding;
  }

  /** Receives not yet taken by a queue pair. A taken one may be lost with its queue pair. */
  get #posted(): number {
    let posted = 0;
    for (let element = 0; element < this.#count; element += 1) {
      const flags = this.#bytes[element * RQE_BYTES + RQE.flags] ?? 0;
      if ((flags & QueueFlag.valid) !== 0) posted += 1;
    }
    return posted;
  }
}
