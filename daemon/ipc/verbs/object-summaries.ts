/** The objects of a client as `status` pages and `iwarpd` commands show them. */
import type {
  ObjectOwner,
  ObjectSummaries,
  QPSummary,
} from '../../../verbs-api/contract/control.ts';
import type { DeviceMR, DeviceQP } from '../../adapter/device-backend.ts';
import { qpStateName } from '../../rnic/qp-state.ts';
import type { ContextObject, HandleTable } from './client-objects.ts';

/** Whose the objects are. */
export type ClientOwner = Pick<ObjectOwner, 'client' | 'pid' | 'program'>;

/** Summaries of the objects in a table. */
export function summarize(table: HandleTable, owner: ClientOwner): ObjectSummaries {
  const of = (object: { readonly handle: number }, context: ContextObject): ObjectOwner => {
    return { ...owner, device: context.device.name, handle: object.handle };
  };
  return {
    qps: table
      .ofKind('qp')
      .map((object) => ({ ...of(object, object.pd.context), ...qpFields(object.qp) })),
    mrs: table
      .ofKind('mr')
      .map((object) => ({ ...of(object, object.pd.context), ...mrFields(object.mr) })),
    cqs: table
      .ofKind('cq')
      .map((object) => ({ ...of(object, object.context), entries: object.cq.count })),
  };
}

/** What of a queue pair is not its owner's. */
export function qpFields(qp: DeviceQP): Omit<QPSummary, keyof ObjectOwner> {
  const { maxSendWr, maxRecvWr } = qp.capabilities;
  return {
    qpNum: qp.qpn,
    state: qpStateName(qp.state),
    maxSendWr,
    maxRecvWr,
    srq: qp.rqCount === 0,
    sendsTaken: qp.sendsTaken,
    receivesTaken: qp.receivesTaken,
  };
}

/** What of a memory region is not its owner's. */
export function mrFields(mr: DeviceMR) {
  const { lkey, address, lengthBytes, backing } = mr;
  return { key: lkey, address: `0x${address.toString(16)}`, lengthBytes, tier: backing.tier };
}
