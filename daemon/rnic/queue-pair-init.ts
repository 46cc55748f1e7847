/** What a queue pair is made with. */
import type { QPCapabilities } from '#contract/verbs/attributes';
import type { QPState, QPType } from '#contract/verbs/enums';
import type { CQ } from './completion-queue.ts';
import type { RingKind, WorkRing } from './ring.ts';
import type { SRQ } from './shared-receive-queue.ts';

/** Options of a queue pair. */
export interface QPInit {
  /** Reliable unless given. iWARP has no other. */
  readonly type?: QPType;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly capabilities: QPCapabilities;
  /** The inline payload that the program asked for, in bytes. Default: that of `capabilities`. */
  readonly inlineAsked?: number;
  /** Flags unless given. With an SRQ, its kind is that of the SRQ. */
  readonly kind?: RingKind;
  /** Every work request completes, flagged or not. */
  readonly sqSigAll: boolean;
  /** Supplies the memory of SQ and RQ: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  /** Supplies the memory of the RQ apart from the SQ's. Default: both are in `ring`. */
  readonly receiveRing?: (bytes: number) => Uint8Array;
  /**
   * Where the send queue keeps how far it is, for whoever has to flush it should this process end
   * all of a sudden: in the first element, the lower 16 bits are those of the index of the ring's
   * next element, the upper ones count the work requests before it that are not completed yet.
   * Asked for after the ring.
   */
  readonly progress?: () => Int32Array | undefined;
  /** Told of every state that the QP enters; it must not call the QP. */
  readonly onState?: (state: QPState) => void;
  readonly tag: unknown;
}

/**
 * The sizes of a queue pair. With a shared receive queue, those of its own are ignored, as
 * ibv_create_qp(3) says: programs leave arbitrary values there.
 */
export function grantedCapabilities({
  capabilities,
  srq,
}: {
  readonly capabilities: QPCapabilities;
  readonly srq: object | undefined;
}): QPCapabilities {
  return srq === undefined ? capabilities : { ...capabilities, maxRecvWr: 0, maxRecvSge: 0 };
}

/** Where the queues are in the ring memory. */
export interface QPLayout {
  readonly kind: RingKind;
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly sends: WorkRing;
  /** Its own, without a shared receive queue. */
  readonly receives: WorkRing;
  readonly rqOffset: number;
  /** 0 with a shared receive queue. */
  readonly rqCount: number;
}
