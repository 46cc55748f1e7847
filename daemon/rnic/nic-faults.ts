/**
 * Hooks by which a host injects failures into a NIC, to test how programs handle them. The NIC
 * calls the hooks and decides nothing itself.
 */

/** The hooks; all undefined in a NIC without faults. */
export interface NicFaults {
  /** Called before a completion of this queue pair is written: true drops it, as a full queue would. */
  overrun: ((qpNum: number) => boolean) | undefined;
  /** Called after a receive was taken from a shared receive queue: true raises its limit event. */
  srqLimit: (() => boolean) | undefined;
}

/** A NIC without faults. */
export function noNicFaults(): NicFaults {
  return { overrun: undefined, srqLimit: undefined };
}
