/** Shared by connections and datagrams: an id while it is in use, its objects, and errors of dialing. */
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import type { QPType } from '#contract/verbs/enums';
import { type ErrnoCode, isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { CancelSignal, ConnectionId, CQ, PD, SRQ } from '#contract/verbs/provider';
import { throwIfAborted } from './client/cancellation.ts';
import type { ConnectionParts } from './connection.ts';
import { shareContext } from './shared-context.ts';

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

type SizeName = 'maxSendWr' | 'maxRecvWr' | 'maxSendSge' | 'maxRecvSge' | 'maxInlineData';

/** Options that connections and datagrams share. */
interface SharedOptions extends Partial<Readonly<Record<SizeName, number | undefined>>> {
  readonly pd?: PD | undefined;
  readonly cq?: CQ | undefined;
  readonly srq?: SRQ | undefined;
  readonly sqSigAll?: boolean | undefined;
}

/** The sizes of the queues, with defaults; at least `messages`, which also replaces that of receives. */
export function queueSizes(
  options: SharedOptions,
  messages?: Omit<Record<SizeName, number>, 'maxRecvSge'>,
) {
  const { maxSendWr = 64, maxSendSge = 4, maxRecvSge = 4, maxInlineData = 64 } = options;
  const { maxRecvWr = messages === undefined ? 64 : 0, sqSigAll = true } = options;
  return {
    maxSendWr: Math.max(maxSendWr, messages?.maxSendWr ?? 0),
    maxRecvWr: options.srq === undefined ? Math.max(maxRecvWr, messages?.maxRecvWr ?? 0) : 0,
    maxSendSge: Math.max(maxSendSge, messages?.maxSendSge ?? 0),
    maxRecvSge,
    maxInlineData: Math.max(maxInlineData, messages?.maxInlineData ?? 0),
    sqSigAll,
  };
}

/** Functions that close objects, in order of creation. */
export type Undo = (() => Promise<unknown>)[];

/** Creates the queue pair of an id, and the objects that `given` lacks. */
export async function createParts(
  id: ConnectionId,
  given: SharedOptions,
  init: ReturnType<typeof queueSizes> & { readonly type?: QPType },
  undo: Undo,
): Promise<ConnectionParts> {
  let { pd, cq } = given;
  if (pd === undefined) {
    const shared = await shareContext(id.provider, id.device);
    undo.push(() => shared.release());
    const own = await shared.context.allocPD();
    undo.push(() => own.closeAll());
    pd = own;
  }
  if (cq === undefined) {
    const own = await pd.context.createCQ({ cqe: Math.max(init.maxSendWr + init.maxRecvWr, 1) });
    // Closed after the queue pairs of the domain.
    undo.splice(given.pd === undefined ? 1 : 0, 0, () => own.close());
    cq = own;
  }
  const qp = await id.createQP(pd, { ...init, sendCQ: cq, recvCQ: cq, srq: given.srq });
  return { id, context: pd.context, pd, cq, qp };
}

/** In reverse order; continues after errors, and throws the first. */
export async function undoAll(undo: Undo): Promise<void> {
  const outcomes: PromiseSettledResult<unknown>[] = [];
  for (const step of undo.splice(0).reverse()) {
    outcomes.push(...(await Promise.allSettled([step()])));
  }
  for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
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
