/** Runs rows against a peer, one after the other, each on connections of its own. */
import { isVerbsError } from '#contract/verbs/errors';
import { type ConformRow, Deviation, NotApplicable, type RowResult, type Verdict } from './row.ts';

/** A peer between rows. */
interface Resettable {
  /** Ends what the last row opened. */
  reset(): Promise<void>;
}

/** Yields the result of each row. Rethrows what is neither a deviation nor an error of the tester's system. */
export async function* runRows<Peer extends Resettable>(
  rows: readonly ConformRow<Peer>[],
  peer: Peer,
  signal: AbortSignal,
): AsyncGenerator<RowResult> {
  for (const row of rows) {
    signal.throwIfAborted();
    const startedMs = performance.now();
    const [verdict, detail] = await judge(row, peer);
    await peer.reset();
    const seconds = (performance.now() - startedMs) / 1000;
    const { id, area, level, source, title } = row;
    yield { id, area, level, source, title, verdict, detail, seconds };
  }
}

async function judge<Peer>(
  row: ConformRow<Peer>,
  peer: Peer,
): Promise<readonly [Verdict, string | undefined]> {
  try {
    await row.run(peer);
    return ['pass', undefined];
  } catch (error) {
    if (error instanceof Deviation) return ['fail', error.message];
    if (error instanceof NotApplicable) return ['skip', error.message];
    if (isVerbsError(error)) return ['error', error.message];
    throw error;
  }
}
