/**
 * What MODIFY_QP does with a requested state: the answers that siw gives. The states within an idle
 * queue pair are kept, so that a query tells the truth about them.
 */
import { QPState } from '../../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import { isIdle, qpAction } from '../../rnic/qp-state.ts';
import type { QP } from '../../rnic/queue-pair.ts';

/** Requests that a connected queue pair acts on; the others succeed without effect. */
const CONNECTED_REQUESTS: Readonly<Partial<Record<QPState, readonly QPState[]>>> = {
  [QPState.RTS]: [QPState.SQD, QPState.SQE, QPState.ERR],
  [QPState.SQD]: [QPState.ERR],
  [QPState.SQE]: [QPState.ERR],
};

/** Moves the queue pair, or does nothing. EINVAL for RTS without a connection. */
export function requestState(qp: QP, requested: QPState, now: number): void {
  const { state } = qp;
  if (!isIdle(state)) {
    if (CONNECTED_REQUESTS[state]?.includes(requested) === true) qp.modify(requested, now);
    return;
  }
  if (requested === QPState.RTS) {
    throw new VerbsError('EINVAL', 'a queue pair reaches RTS by its connection');
  }
  if (requested === QPState.ERR) {
    qp.modify(requested, now);
    return;
  }
  // A stream that is being set up would be dropped by a reset, which siw does not do.
  const steps = requested !== state && qp.stream === undefined;
  if (steps && isIdle(requested) && qpAction(state, requested) !== undefined) {
    qp.modify(requested, now);
  }
}
