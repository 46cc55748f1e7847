/** Runs rows against a peer, one after the other, each on new connections. */
import { isVerbsError } from '#contract/verbs/errors';
import { CommandFailure } from '#daemon/console/failure';
import { type ConformRow, Deviation, NotApplicable, type RowResult, type Verdict } from './row.ts';

/** A peer between rows. */
interface Resettable {
  /** Closes the connections of the last row. */
  reset(): Promise<void>;
}

/**
 * Yields the result of each row, which fails if it takes longer than `limitMs`. Throws when `signal` fires,
 * and for an error that is neither the peer's nor the system's.
 */
export async function* runRows<Peer extends Resettable>(
  rows: readonly ConformRow<Peer>[],
  peer: Peer,
  signal: AbortSignal,
  limitMs: number,
): AsyncGenerator<RowResult> {
  for (const row of rows) {
    signal.throwIfAborted();
    const startedMs = performance.now();
    const [verdict, detail] = await judge(within(row.run(peer), signal, limitMs));
    await peer.reset();
    const seconds = (performance.now() - startedMs) / 1000;
    const { id, area, level, source, title } = row;
    yield { id, area, level, source, title, verdict, detail, seconds };
  }
}

async function judge(run: Promise<void>): Promise<readonly [Verdict, string | undefined]> {
  try {
    await run;
    return ['pass', undefined];
  } catch (error) {
    if (error instanceof Deviation) return ['fail', error.message];
    if (error instanceof NotApplicable) return ['skip', error.message];
    if (isVerbsError(error) || error instanceof CommandFailure) return ['error', error.message];
    throw error;
  }
}

/**
 * Rejects when `signal` fires or the time is up. The caller ends the exchange by resetting its
 * connections.
 */
async function within(run: Promise<void>, signal: AbortSignal, limitMs: number): Promise<void> {
  const over = new AbortController();
  const ended = AbortSignal.any([over.signal, signal]);
  const timer = setTimeout(() => {
    over.abort(new Deviation(`the exchange is not over after ${limitMs / 1000} s`));
  }, limitMs);
  const interrupted = new Promise<never>((_, reject) => {
    ended.addEventListener('abort', () => reject(ended.reason));
  });
  try {
    await Promise.race([run, interrupted]);
  } finally {
    clearTimeout(timer);
  }
}
