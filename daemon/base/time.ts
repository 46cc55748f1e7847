/** Time. Callers pass it in: pure code reads no clock. */

/** Microseconds since an arbitrary start; monotonic. */
export type Micros = number;

/** No deadline is set. */
export const NEVER: Micros = Number.POSITIVE_INFINITY;
