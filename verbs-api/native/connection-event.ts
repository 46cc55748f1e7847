/** Translates events of rdma_cm to the contract. */
import { CMEventType } from '#contract/verbs/enums';
import type { ErrnoCode } from '#contract/verbs/errors';
import type { NativeCMEvent } from '#native-bridge/rdma/cm-id';
import { codeOf } from '#native-bridge/rdma/errors';

/** Texts of the events in the contract. rdma_cm has others, which have no meaning on iWARP. */
export const CM_EVENT_NAMES: ReadonlyMap<CMEventType, string> = new Map<CMEventType, string>([
  [CMEventType.addrResolved, 'the address is resolved'],
  [CMEventType.addrError, 'the address cannot be resolved'],
  [CMEventType.routeResolved, 'the route is resolved'],
  [CMEventType.routeError, 'the route cannot be resolved'],
  [CMEventType.connectRequest, 'a peer wants to connect'],
  [CMEventType.connectResponse, 'the peer answered'],
  [CMEventType.connectError, 'connecting failed'],
  [CMEventType.unreachable, 'the peer cannot be reached'],
  [CMEventType.rejected, 'the peer rejected the connection, or nothing listens there'],
  [CMEventType.established, 'the connection is established'],
  [CMEventType.disconnected, 'the connection has ended'],
  [CMEventType.deviceRemoval, 'the device was removed'],
  [CMEventType.timewaitExit, 'the connection left TIMEWAIT'],
]);

/** undefined on success, otherwise the reason. */
export function errorOf({ type, status }: NativeCMEvent): ErrnoCode | undefined {
  if (status === 0) return undefined;
  // A positive status of a rejection is the transport's own reason.
  if (type === CMEventType.rejected && status > 0) return 'ECONNREFUSED';
  return codeOf(status);
}

/** One readable line. */
export function textOf(event: NativeCMEvent): string {
  const error = errorOf(event);
  const name = CM_EVENT_NAMES.get(event.type as CMEventType) ?? `event ${event.type}`;
  return error === undefined ? name : `${name} (${error})`;
}
