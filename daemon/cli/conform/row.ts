/** A row of the conformance table: one requirement, and the exchange that shows whether a peer meets it. */

/** How a specification words a requirement. Only a `must` that fails makes a peer nonconforming. */
type Level = 'must' | 'should' | 'may';

/** See the module's comment. `Peer` opens connections to the peer of one wire. */
export interface ConformRow<Peer> {
  /** The requirement in `test/spec/requirements.tsv`. */
  readonly id: string;
  /** Group of rows. */
  readonly area: string;
  readonly level: Level;
  /** Chapter of the specification. */
  readonly source: string;
  /** Behaviour of a conforming peer. */
  readonly title: string;
  /** `memory`: needs a peer that offers some, see `offer.ts`. */
  readonly needs?: 'memory';
  /** Resolves if the peer conforms. Throws `Deviation` if it does not. */
  readonly run: (peer: Peer) => Promise<void>;
}

/** The peer's answer, or its silence, violates the row. */
export class Deviation extends Error {
  override readonly name = 'Deviation';
}

/** The row does not apply to this peer. The message says why. */
export class NotApplicable extends Error {
  override readonly name = 'NotApplicable';
}

/** Why rows that need memory are skipped. */
export const NO_MEMORY = 'the peer offers no memory: run `iwarpd conform --serve` there';

/** Throws `Deviation` with this text unless `met`. */
export function demand(met: boolean, text: string): asserts met {
  if (!met) throw new Deviation(text);
}

/** Throws `Deviation` unless the bytes are equal; `what` says which ones. */
export function demandSame(actual: Uint8Array, expected: Uint8Array, what: string): void {
  const { length } = expected;
  demand(actual.length === length, `${what}: ${actual.length} bytes instead of ${length}`);
  const at = expected.findIndex((byte, index) => byte !== actual[index]);
  demand(at < 0, `${what}: byte ${at} is ${actual[at]} instead of ${expected[at]}`);
}

export type Verdict = 'pass' | 'fail' | 'skip' | 'error';

/** The result of a row. */
export interface RowResult {
  readonly id: string;
  readonly area: string;
  readonly level: Level;
  readonly source: string;
  readonly title: string;
  readonly verdict: Verdict;
  /** Why it is not `pass`. */
  readonly detail: string | undefined;
  readonly seconds: number;
}
