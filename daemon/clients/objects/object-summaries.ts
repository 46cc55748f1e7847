/**
 * Queue pairs and memory regions in the form of `iwarpd` commands and pages. Copied field by field: a
 * spread takes some microseconds, and a list has thousands.
 */
import type { MRSummary, ObjectOwner, QPSummary } from '#contract/protocol/control';
import { QPType } from '#contract/verbs/enums';
import { qpStateName } from '#contract/verbs/qp-state';
import type { DeviceMR, DeviceQP } from '#daemon/host/served-device';

const TYPE_NAMES: Readonly<Record<QPType, string>> = {
  [QPType.rc]: 'RC',
  [QPType.uc]: 'UC',
  [QPType.ud]: 'UD',
};

export function qpSummary(owner: ObjectOwner, qp: DeviceQP): QPSummary {
  const { client, pid, program, device, handle } = owner;
  const { maxSendWr, maxRecvWr } = qp.capabilities;
  return {
    client,
    pid,
    program,
    device,
    handle,
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

export function mrSummary(owner: ObjectOwner, mr: DeviceMR): MRSummary {
  const { client, pid, program, device, handle } = owner;
  const { lkey: key, lengthBytes } = mr;
  const address = `0x${mr.address.toString(16)}`;
  const { tier } = mr.backing;
  return { client, pid, program, device, handle, key, address, lengthBytes, tier };
}
