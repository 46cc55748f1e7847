/** Creates, modifies and queries queue pairs like siw. */
import { INLINE_MAX } from '#contract/protocol/queue-layout';
import type { QPCapabilities } from '#contract/verbs/attributes';
import { QPState } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { ALL_QP_ATTRIBUTES, QPAttribute } from '#contract/verbs/qp-attributes';
import { isIdle, qpAction } from '#contract/verbs/qp-state';
import { putAttributes, readAttributes } from '#daemon/kernel/attribute-fields';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { newStruct, setUint64 } from '#daemon/kernel/struct-fields';
import type { QP } from '#daemon/rnic/queue-pair';
import { CreateQP, ModifyQP, UverbsCommandNumber as N, QueryQP } from '../layouts.ts';
import type { CommandCall } from '../open-device.ts';
import { addQP, describeQP } from '../queue-pairs.ts';
import { CreatedQP } from './layouts.ts';

/** IBV_QPT_RC */
const TYPE_RC = 2;
/** `enum ibv_mtu`: 4096. */
const PATH_MTU = 5;

/** CREATE_QP: EOPNOTSUPP for any type but RC; EINVAL for sizes beyond the device's. */
export function createQP(call: CommandCall): KernelReply {
  const { file, fields } = call;
  const { request, response } = CreateQP;
  if (fields.getUint8(request.qpType) !== TYPE_RC) {
    throw new VerbsError(
      'EOPNOTSUPP',
      'qp_type must be IBV_QPT_RC on an iWARP device: UD and UC need a RoCE device',
    );
  }
  const object = addQP(call, request, () => ({ capabilities: capabilitiesOf(fields) }));
  const { qp, sendRing, receiveRing } = object;
  // The first state of an RNIC is "idle", INIT in verbs: programs that check the state expect it.
  qp.modify(QPState.INIT, file.services.host.now());
  const reply = file.newReply(N.createQP, response.bytes);
  describeQP(object, call, request, INLINE_MAX, reply.fields);
  const { own } = reply;
  own.setUint32(CreatedQP.id, qp.qpn, true);
  own.setUint32(CreatedQP.sendCount, qp.sqCount, true);
  own.setUint32(CreatedQP.receiveCount, qp.rqCount, true);
  setUint64(own, CreatedQP.sendKey, sendRing.key);
  setUint64(own, CreatedQP.receiveKey, receiveRing?.key ?? 0);
  return { status: 0, response: reply.bytes };
}

/** QUERY_QP: the true state, unlike siw. */
export function queryQP({ file, fields }: CommandCall): KernelReply {
  const { request, response } = QueryQP;
  const object = file.table.expect('qp', fields.getUint32(request.handle, true));
  const { state, capabilities, maxRdAtomic, maxDestRdAtomic, sqSigAll } = object.qp.query();
  const { bytes, fields: reply } = newStruct(response.bytes);
  reply.setUint32(response.maxSendWr, capabilities.maxSendWr, true);
  reply.setUint32(response.maxRecvWr, capabilities.maxRecvWr, true);
  reply.setUint32(response.maxSendSge, capabilities.maxSendSge, true);
  reply.setUint32(response.maxRecvSge, capabilities.maxRecvSge, true);
  reply.setUint32(response.maxInlineData, INLINE_MAX, true);
  putAttributes(reply, response.attributes, 'uverbs', {
    state,
    curState: state,
    accessFlags: object.accessFlags,
    pathMtu: PATH_MTU,
    maxRdAtomic,
    maxDestRdAtomic,
    portNum: 1,
  });
  reply.setUint8(response.sqSigAll, sqSigAll ? 1 : 0);
  return { status: 0, response: bytes };
}

/** MODIFY_QP: only the state and the access flags have an effect. */
export function modifyQP({ file, fields }: CommandCall): KernelReply {
  const { request } = ModifyQP;
  const object = file.table.expect('qp', fields.getUint32(request.handle, true));
  const mask = fields.getUint32(request.attrMask, true);
  if ((mask & ~ALL_QP_ATTRIBUTES) !== 0) {
    throw new VerbsError('EOPNOTSUPP', `attr_mask has unknown bits: 0x${mask.toString(16)}`);
  }
  const given = readAttributes(fields, request.attributes);
  checkPort(mask, QPAttribute.portNum, given.portNum);
  checkPort(mask, QPAttribute.ahAttr, fields.getUint8(request.destPortNum));
  const state = stateOf(mask, QPAttribute.state, given.state);
  stateOf(mask, QPAttribute.curState, given.curState);
  if (state !== undefined) {
    file.epoch.noteCommand();
    requestState(object.qp, state, file.services.host.now());
  }
  if ((mask & QPAttribute.accessFlags) !== 0) object.accessFlags = given.accessFlags;
  return DONE;
}

function capabilitiesOf(fields: DataView): QPCapabilities {
  const { request } = CreateQP;
  const maxSendWr = fields.getUint32(request.maxSendWr, true);
  const maxRecvWr = fields.getUint32(request.maxRecvWr, true);
  return {
    // An empty ring cannot be mapped, so a program that only receives gets one object.
    maxSendWr: maxSendWr === 0 && maxRecvWr > 0 ? 1 : maxSendWr,
    maxRecvWr,
    maxSendSge: fields.getUint32(request.maxSendSge, true),
    maxRecvSge: fields.getUint32(request.maxRecvSge, true),
    maxInlineData: fields.getUint32(request.maxInlineData, true),
  };
}

function checkPort(mask: number, bit: number, port: number): void {
  if ((mask & bit) !== 0 && port !== 1)
    throw invalid(`port_num must be 1 on an iWARP device, not ${port}`);
}

function stateOf(mask: number, bit: number, value: number): QPState | undefined {
  if ((mask & bit) === 0) return undefined;
  const state = Object.values(QPState).find((known) => known === value);
  if (state === undefined)
    throw invalid(`qp_state must be 0 (RESET) to 6 (ERR) on an iWARP device, not ${value}`);
  return state;
}

/** Requests that take effect on a connected queue pair; others succeed without effect. */
const CONNECTED_REQUESTS: Readonly<Partial<Record<QPState, readonly QPState[]>>> = {
  [QPState.RTS]: [QPState.SQD, QPState.SQE, QPState.ERR],
  [QPState.SQD]: [QPState.ERR],
  [QPState.SQE]: [QPState.ERR],
  // Copies into its program's memory end before the answer.
  [QPState.ERR]: [QPState.ERR],
};

/**
 * Moves the queue pair, or does nothing, with siw's results. Unlike siw, this keeps the states of an
 * idle queue pair, and a query returns them. EINVAL for RTS without a connection. */
function requestState(qp: QP, requested: QPState, now: number): void {
  const { state } = qp;
  if (!isIdle(state)) {
    if (CONNECTED_REQUESTS[state]?.includes(requested) === true) qp.modify(requested, now);
    return;
  }
  if (requested === QPState.RTS) {
    throw invalid(
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
