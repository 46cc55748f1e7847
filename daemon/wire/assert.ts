/** An invariant of ours does not hold. Nothing in the pure zone catches it. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError';
}

/** Throws when `condition` is false. `text` names the invariant; no octet from a peer may trip it. */
export function assert(condition: boolean, text: string): asserts condition {
  if (!condition) throw new InvariantError(text);
}
