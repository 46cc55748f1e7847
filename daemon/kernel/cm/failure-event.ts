/** Why a connection or a resolution failed, for the refusals of the program's user. */
import { CMEventType } from '#contract/verbs/enums';
import { ERRNO } from '#contract/verbs/errors';
import type { OwnReport } from '#daemon/clients/objects/failure-report';
import type { HostCmEvent } from '#daemon/host/host-id';

/** Events that report a failure, with the program's name for the failed step. */
const FAILURES: ReadonlyMap<CMEventType, string> = new Map([
  [CMEventType.addrError, 'RDMA_CM_EVENT_ADDR_ERROR'],
  [CMEventType.routeError, 'RDMA_CM_EVENT_ROUTE_ERROR'],
  [CMEventType.connectError, 'RDMA_CM_EVENT_CONNECT_ERROR'],
  [CMEventType.unreachable, 'RDMA_CM_EVENT_UNREACHABLE'],
  [CMEventType.rejected, 'RDMA_CM_EVENT_REJECTED'],
]);

/** The system's message for a port without a listener. */
const REFUSED = ERRNO.ECONNREFUSED.text;

/** Undefined for an event that reports no failure. `number` identifies the id; `passive`: it accepted. */
export function failedEvent(
  event: HostCmEvent,
  number: number,
  passive: boolean,
): OwnReport | undefined {
  const code = FAILURES.get(event.type);
  if (code === undefined) return undefined;
  const { device, peerAddress } = event.id;
  const to =
    peerAddress === undefined || passive
      ? ''
      : `connecting to ${peerAddress.address} port ${peerAddress.port}: `;
  return {
    api: 'event',
    verb: 'rdma_get_cm_event',
    code,
    sentence: to + (event.text === REFUSED ? 'nothing listens there' : event.text),
    ...(device === undefined ? {} : { device }),
    objects: { id: number },
  };
}
