/**
 * What a host may have go wrong within a NIC, to see how programs bear it. The NIC asks at each
 * occasion where somebody is there to answer, and decides nothing itself.
 */

/** Who answers; all undefined in a NIC that works. */
export interface NicFaults {
  /** A completion of this queue pair is about to be written: true loses it as a full queue would. */
  overrun: ((qpNum: number) => boolean) | undefined;
  /** A receive was taken from a shared receive queue: true raises its limit event. */
  srqLimit: (() => boolean) | undefined;
}

/** A NIC that works. */
export function noNicFaults(): NicFaults {
  return { overrun: undefined, srqLimit: undefined };
}
