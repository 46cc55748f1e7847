/** Creation options of a queue pair. */
import type { QPCapabilities } from '#contract/verbs/attributes';
import type { QPState, QPType } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type { CQ } from './queues/completion-queue.ts';
import type { SRQ } from './queues/shared-receive-queue.ts';
import type { RingKind, WorkRing } from './rings/ring.ts';

export interface QPInit {
  /** Default: reliable, the only type of iWARP. */
  readonly type?: QPType;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly capabilities: QPCapabilities;
  /** Inline payload requested by the program, in bytes. Default: that of `capabilities`. */
  readonly inlineAsked?: number;
  /** Default: 'flags'. With an SRQ, the kind of the SRQ. */
  readonly kind?: RingKind;
  /** Every work request completes, flagged or not. */
  readonly sqSigAll: boolean;
  /** Supplies the memory of SQ and RQ: zeroed, aligned to 8, shared with the client. */
  readonly ring: (bytes: number) => Uint8Array;
  /** Supplies the memory of the RQ. Default: the RQ is in `ring`, with the SQ. */
  readonly receiveRing?: (bytes: number) => Uint8Array;
  /**
   * Where the send queue publishes its progress, so the preload library can flush the queue if the
   * daemon dies. In the first element, the lower 16 bits are those of the index of the ring's next
   * element; the upper ones count the work requests before it that are not completed. Called after
   * `ring`.
   */
  readonly progress?: () => Int32Array | undefined;
  /** Called with every state that the QP enters; must not call the QP. */
  readonly onState?: (state: QPState) => void;
  readonly tag: unknown;
}

/**
 * The sizes of a queue pair. With a shared receive queue, its own receive sizes are ignored, as
 * ibv_create_qp(3) specifies: programs leave arbitrary values there.
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

export interface QPLayout {
  readonly kind: RingKind;
  readonly ring: Uint8Array;
  readonly sqCount: number;
  readonly sends: WorkRing;
  /** Its own ring, for queue pairs without a shared receive queue. */
  readonly receives: WorkRing;
  readonly rqOffset: number;
  /** 0 with a shared receive queue. */
  readonly rqCount: number;
}

/** Throws EINVAL unless a size of an object is an integer in these limits. */
export function checkCount(what: string, value: number, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return;
  throw invalid(`${what} must be ${least} to ${most}, not ${value}`);
}
