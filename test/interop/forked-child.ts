/**
 * The use of a parent's objects in a forked child (programs/forked-child.c): one table for Linux's
 * drivers and for ours, whether the parent is alive or gone.
 */
import type { DeviceTransport } from '#contract/verbs/attributes';

const OK = 'ok';
/** For a write(2) of the providers or librdmacm, which the kernel accepts only from the opener. */
const REFUSED = 'EACCES';

/** Each step of the child, with its outcome on siw and on rxe; null if it is not tried. */
const STEPS: readonly (readonly [step: string, siw: string | null, rxe?: string])[] = [
  ['ibv_query_device', OK],
  ['ibv_query_port', OK],
  ['ibv_query_qp', OK],
  ['ibv_query_srq', 'EOPNOTSUPP', OK],
  ['ibv_modify_qp', OK, 'EINVAL'],
  ['ibv_modify_srq', OK],
  ['ibv_get_cq_event', OK],
  ['ibv_poll_cq', "the parent's completion"],
  ['ibv_get_async_event', 'EAGAIN'],
  ['rdma_get_cm_event', REFUSED],
  ['ibv_req_notify_cq', OK],
  ['ibv_alloc_pd', OK],
  ['ibv_reg_mr', OK],
  ['ibv_create_comp_channel', OK],
  ['ibv_create_cq', OK],
  ['ibv_create_cq with a channel', OK],
  ['ibv_create_srq', OK],
  ['ibv_create_qp', OK],
  ['rdma_create_id', REFUSED],
  ['rdma_bind_addr', REFUSED],
  ['ibv_create_ah', null, OK],
  ['ibv_alloc_mw', null, OK],
  ['ibv_resize_cq', null, OK],
  ['ibv_post_recv', OK],
  ['ibv_post_srq_recv', OK],
  ['ibv_post_send', REFUSED],
  // siw's provider does not ring while an earlier request waits in the queue.
  ['ibv_post_send again', OK, REFUSED],
  ['ibv_destroy_qp', OK],
  ['ibv_destroy_srq', OK],
  ['ibv_destroy_cq', OK],
  ['ibv_dereg_mr', OK],
  ['ibv_dealloc_pd', OK],
  ['ibv_destroy_ah', null, OK],
  ['ibv_dealloc_mw', null, OK],
  // The completion queue of a step above still uses it.
  ['ibv_destroy_comp_channel', 'EBUSY'],
  ['rdma_destroy_id', REFUSED],
  ['again: ibv_open_device', OK],
  ['again: ibv_post_send', null, OK],
  ['again: got', null, 'child again'],
  ['again: ibv_close_device', OK],
];

/** The lines that a child on such a device prints. */
export function stepsOfChild(transport: DeviceTransport): string[] {
  return STEPS.flatMap(([step, siw, rxe]) => {
    const outcome = transport === 'roce' ? (rxe ?? siw) : siw;
    return outcome === null ? [] : [`${step}: ${outcome}`];
  });
}

/** The program's output, by process. */
export function linesOf(output: string): {
  readonly child: string[];
  readonly parent: string[];
  readonly peer: string[];
} {
  const lines = output.split('\n').filter((line) => line !== '');
  const after = (start: string) =>
    lines.filter((line) => line.startsWith(start)).map((line) => line.slice(start.length));
  return {
    child: lines.filter((line) => !/^(parent|peer got): /.test(line)),
    parent: after('parent: '),
    peer: after('peer got: '),
  };
}
