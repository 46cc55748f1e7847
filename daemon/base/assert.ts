/**
 * Invariants: conditions that no peer and no client can break.
 *
 * Classes with counters have `assertInvariants`, which is cheap and always runs at the end of commands.
 * `assertDeepInvariants` recounts every object, in simulations and tests only.
 *
 * Nothing catches an `InvariantError`. A NIC with wrong counts may grant access to the wrong memory, so
 * it must stop: the daemon logs the invariant as fatal, removes its socket and exits with status 70;
 * peers and clients see their connections end and flush. An embedded NIC throws into its program.
 */

/** An invariant does not hold. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError';
}

/** Throws `InvariantError` if `condition` is false. `text` describes the failure. */
export function assert(condition: boolean, text: string): asserts condition {
  if (!condition) throw new InvariantError(text);
}
