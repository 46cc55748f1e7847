/**
 * Hooks by which a host injects failures into a NIC, to test how programs handle them. The NIC
 * calls a hook at each occasion and decides nothing itself.
 */

/** The hooks; all undefined in a NIC without faults. */
export interface NicFaults {
  /** Before a completion of this queue pair is written: true loses it, as a full queue would. */
  overrun: ((qpNum: number) => boolean) | undefined;
  /** After a receive was taken from a shared receive queue: true raises its limit event. */
  srqLimit: (() => boolean) | undefined;
}

/** A NIC without faults. */
export function noNicFaults(): NicFaults {
  return { overrun: undefined, srqLimit: undefined };
}
