/** Shared by calls that dial a peer: an id while it is in use, and their errors. */
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { type ErrnoCode, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { CancelSignal, ConnectionId } from '#contract/verbs/provider';
import { throwIfAborted } from './client/cancellation.ts';

/** Codes of a connection that the network or the peer prevents. */
const PEER_FAILURES: ReadonlySet<ErrnoCode> = new Set<ErrnoCode>([
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ETIMEDOUT',
]);

/** Runs `body` with an id; closes the id at once if the signal aborts or `body` fails. */
export async function owned<T>(
  id: ConnectionId,
  signal: CancelSignal | undefined,
  body: (id: ConnectionId) => Promise<T>,
): Promise<T> {
  // Closing the id ends everything that waits on it. The close below reports the error.
  const abandon = (): void => void id.close().catch(() => {});
  signal?.addEventListener('abort', abandon);
  try {
    throwIfAborted(signal);
    return await body(id);
  } catch (error) {
    await id.close();
    throwIfAborted(signal);
    throw error;
  } finally {
    signal?.removeEventListener('abort', abandon);
  }
}

/** True for an error whose cause is the network or the peer. */
export function isPeerFailure(error: unknown): error is VerbsError {
  return isVerbsError(error) && PEER_FAILURES.has(error.code);
}

/** The error with the peer's name, if the network or the peer is its cause. */
export function connectFailure(error: unknown, what: string): unknown {
  if (error instanceof ConnectionRejectedError) {
    return new ConnectionRejectedError(error.event, what);
  }
  if (!isPeerFailure(error)) return error;
  return new VerbsError(error.code, `${what}: ${error.message}`);
}
