/** A shared receive queue of a simulated program on RoCE. */
import type { CommandReply } from '#contract/protocol/commands';
import type { RecvWR } from '#contract/verbs/work-request';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { MAX_SGE } from '../sim-srq.ts';
import type { Pieces } from './pieces.ts';

export class PacketSrq {
  readonly handle: number;
  readonly count: number;
  readonly inbox: Pieces;
  /** Receives that were posted and have not completed. */
  posted = 0;
  /** How often the program requested an event, and how many arrived. */
  asked = 0;
  reached = 0;
  readonly #ring: ReceiveRing;

  constructor(made: CommandReply<'createSRQ'>, ring: Uint8Array, inbox: Pieces) {
    this.handle = made.srq;
    this.count = made.count;
    this.inbox = inbox;
    this.#ring = new ReceiveRing(ring, 0, made.count, MAX_SGE);
  }

  post(wr: RecvWR): boolean {
    return this.#ring.post(wr) === undefined;
  }
}
