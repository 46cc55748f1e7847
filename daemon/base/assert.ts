/**
 * What must hold whatever peers and clients do.
 *
 * Classes that count have `assertInvariants`: cheap, called at the ends of commands, always on. What
 * compares counts with everything there is (`assertDeepInvariants`) is for simulations and tests.
 *
 * Nothing catches an `InvariantError`. A NIC whose books are wrong can no longer say whose memory a
 * key opens, so it must not serve on: the daemon logs the invariant as fatal, removes its socket and
 * ends with status 70; peers and clients see their connections end and flush. An embedded NIC throws
 * into its program.
 */

/** An invariant of ours does not hold. Nothing in the pure zone catches it. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError';
}

/** Throws when `condition` is false. `text` names the invariant; no byte from a peer may trip it. */
export function assert(condition: boolean, text: string): asserts condition {
  if (!condition) throw new InvariantError(text);
}
