/** The fields of queue pairs and memory regions that `iwarpd` commands and pages show. */
import type { ObjectOwner, QPSummary } from '../../../verbs-api/contract/protocol/control.ts';
import { QPType } from '../../../verbs-api/contract/verbs/enums.ts';
import type { DeviceMR, DeviceQP } from '../../host/device-backend.ts';
import { qpStateName } from '../../rnic/qp-state.ts';

const TYPE_NAMES: Readonly<Record<QPType, string>> = {
  [QPType.rc]: 'RC',
  [QPType.uc]: 'UC',
  [QPType.ud]: 'UD',
};

/** The fields of a queue pair beside those of its owner. */
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
    type: TYPE_NAMES[qp.type],
  };
}

/** The fields of a memory region beside those of its owner. */
export function mrFields(mr: DeviceMR) {
  const { lkey, address, lengthBytes, backing } = mr;
  return { key: lkey, address: `0x${address.toString(16)}`, lengthBytes, tier: backing.tier };
}
