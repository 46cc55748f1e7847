/**
 * Invariants: conditions that no peer and no client can break.
 *
 * Classes with counters have `assertInvariants`: cheap, always on, called at the end of commands.
 * `assertDeepInvariants` recounts every object; it is for simulations and tests.
 *
 * Nothing catches an `InvariantError`. A NIC with wrong counts may grant access to the wrong memory, so
 * it must stop: the daemon logs the invariant as fatal, removes its socket and exits with status 70;
 * peers and clients see their connections end and flush. An embedded NIC throws into its program.
 */

/** An invariant does not hold. Nothing in the pure zone catches it. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError';
}

/** Throws when `condition` is false. `text` names the invariant. No input from a peer may make it fail. */
export function assert(condition: boolean, text: string): asserts condition {
  if (!condition) throw new InvariantError(text);
}
