/**
 * State changes of MODIFY_QP, with siw's results. Unlike siw, this keeps the states of an idle queue
 * pair, and a query returns them.
 */
import { QPState } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import { isIdle, qpAction } from '#contract/verbs/qp-state';
import type { QP } from '#daemon/rnic/queue-pair';

/** Requests that take effect on a connected queue pair; others succeed without effect. */
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
    throw new VerbsError(
      'EINVAL',
      'an iWARP queue pair enters RTS by rdma_connect or rdma_accept, not by ibv_modify_qp',
    );
  }
  if (requested === QPState.ERR) {
    qp.modify(requested, now);
    return;
  }
  // A reset would drop a stream being set up, which siw does not do.
  const steps = requested !== state && qp.wire === undefined;
  if (steps && isIdle(requested) && qpAction(state, requested) !== undefined) {
    qp.modify(requested, now);
  }
}
