/** Creates, modifies and queries queue pairs like rxe. */
import type { QPCapabilities } from '#contract/verbs/attributes';
import { QPState, QPType } from '#contract/verbs/enums';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { ALL_QP_ATTRIBUTES, QPAttribute } from '#contract/verbs/qp-attributes';
import { assertMayHaveQkey } from '#daemon/clients/objects/user-rights';
import { putAttributes, readAttributes } from '#daemon/kernel/attribute-fields';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { newStruct } from '#daemon/kernel/struct-fields';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import { putAddressVector, readAddressVector } from '../address-vector.ts';
import {
  CreateQP,
  ExtendedCreateQP,
  ModifyQP,
  UverbsCommandNumber as N,
  QPDestination,
  QueryQP,
} from '../layouts.ts';
import type { UverbsQp } from '../objects.ts';
import type { CommandCall } from '../open-device.ts';
import { addQP, type CreateOffsets, describeQP } from '../queue-pairs.ts';
import { RxeLimit } from './limits.ts';
import { MMINFO_BYTES, putMmInfo, ringEntries } from './mminfo.ts';

const SGE_BYTES = 16;
/** IBV_QP_CREATE flags; librxe itself refuses all but 0. */
const CREATE_FLAGS_BIT = 1;

/** CREATE_QP: EOPNOTSUPP for an unknown type; EINVAL for sizes beyond rxe's. */
export function createQP(call: CommandCall): KernelReply {
  const object = makeQP(call, CreateQP.request);
  const reply = call.file.newReply(N.createQP, CreateQP.response.bytes);
  describeQP(object, call, CreateQP.request, object.qp.capabilities.maxInlineData, reply.fields);
  putRings(object, reply.own);
  return { status: 0, response: reply.bytes };
}

/** EX_CREATE_QP: issued if the program sets creation flags, even to 0. EINVAL for any flag. */
export function extendedCreateQP(call: CommandCall): KernelReply {
  const { request, response } = ExtendedCreateQP;
  const { fields } = call;
  const compMask = fields.getUint32(request.compMask, true);
  if ((compMask & ~CREATE_FLAGS_BIT) !== 0 || fields.getUint32(request.createFlags, true) !== 0) {
    throw invalid('create_flags and comp_mask must be 0: not supported by the device');
  }
  const object = makeQP(call, request);
  const { bytes, fields: reply } = newStruct(response.bytes + 2 * MMINFO_BYTES);
  describeQP(object, call, request, object.qp.capabilities.maxInlineData, reply);
  reply.setUint32(response.responseLength, response.bytes, true);
  putRings(object, new DataView(bytes.buffer, response.bytes));
  return { status: 0, response: bytes };
}

/** QUERY_QP: the true state, and the sizes of the rings. */
export function queryQP({ file, fields }: CommandCall): KernelReply {
  const { request, response: at } = QueryQP;
  const { qp } = file.table.expect('qp', fields.getUint32(request.handle, true));
  const path = qp.queryPath();
  const { capabilities } = qp;
  const { sqSigAll } = qp.query();
  const { bytes, fields: reply } = newStruct(at.bytes);
  putAddressVector(bytes, 0, path.ahAttr, QPDestination);
  // The device has no alternate path; the kernel reports this one field of it.
  bytes[at.altDestination + QPDestination.isGlobal] = 1;
  const words: readonly (readonly [number, number])[] = [
    [at.maxSendWr, ringEntries(capabilities.maxSendWr)],
    [at.maxRecvWr, ringEntries(capabilities.maxRecvWr)],
    [at.maxSendSge, capabilities.maxSendSge],
    [at.maxRecvSge, capabilities.maxRecvSge],
    [at.maxInlineData, capabilities.maxInlineData],
  ];
  for (const [offset, value] of words) reply.setUint32(offset, value, true);
  putAttributes(reply, at.attributes, 'uverbs', path);
  reply.setUint8(at.sqDraining, path.draining ? 1 : 0);
  reply.setUint8(at.sqSigAll, sqSigAll ? 1 : 0);
  return { status: 0, response: bytes };
}

/** MODIFY_QP: see `QPLifecycle.modifyPath`. */
export function modifyQP({ file, fields, bytes }: CommandCall): KernelReply {
  const { request: at } = ModifyQP;
  const { qp } = file.table.expect('qp', fields.getUint32(at.handle, true));
  const mask = fields.getUint32(at.attrMask, true);
  if ((mask & ~ALL_QP_ATTRIBUTES) !== 0) {
    throw new VerbsError('EOPNOTSUPP', `attr_mask 0x${mask.toString(16)} has unknown bits`);
  }
  const { state, curState, ...numbers } = readAttributes(fields, at.attributes);
  const change: QPModification = {
    ...numbers,
    mask,
    state: (mask & QPAttribute.state) === 0 ? undefined : stateOf(state),
    curState: (mask & QPAttribute.curState) === 0 ? undefined : stateOf(curState),
    ahAttr: readAddressVector(fields, bytes, at.destination, QPDestination),
  };
  if ((mask & QPAttribute.qkey) !== 0) assertMayHaveQkey(file.client.rights, numbers.qkey);
  file.epoch.noteCommand();
  qp.modifyPath(change, file.services.host.now());
  return DONE;
}

function makeQP(call: CommandCall, at: CreateOffsets): UverbsQp {
  const { fields } = call;
  const asked = fields.getUint8(at.qpType);
  const type = Object.values(QPType).find((known) => known === asked);
  if (type === undefined)
    throw new VerbsError(
      'EOPNOTSUPP',
      `qp_type must be IBV_QPT_RC (2), IBV_QPT_UC (3) or IBV_QPT_UD (4) on a RoCE device, not ${asked}`,
    );
  return addQP(call, at, (shared) => ({
    type,
    kind: 'indices',
    capabilities: capabilitiesOf(fields, at, shared),
    inlineAsked: fields.getUint32(at.maxInlineData, true),
  }));
}

/** A size: its name, the requested value, and the maximum. */
type SizeLimit = readonly [name: string, value: number, most: number];

/** Sizes as rxe grants them: space for inline data also holds SGEs, and vice versa. */
function capabilitiesOf(fields: DataView, at: CreateOffsets, shared: boolean): QPCapabilities {
  const sendSge = fields.getUint32(at.maxSendSge, true);
  const inline = fields.getUint32(at.maxInlineData, true);
  const asked = {
    maxSendWr: fields.getUint32(at.maxSendWr, true),
    maxRecvWr: fields.getUint32(at.maxRecvWr, true),
    maxSendSge: Math.max(sendSge, Math.floor(inline / SGE_BYTES)),
    maxRecvSge: fields.getUint32(at.maxRecvSge, true),
    maxInlineData: Math.max(inline, sendSge * SGE_BYTES),
  };
  // Ignored with a shared receive queue: programs leave arbitrary values there.
  const receives: readonly SizeLimit[] = [
    ['max_recv_wr', asked.maxRecvWr, RxeLimit.workRequests],
    ['max_recv_sge', asked.maxRecvSge, RxeLimit.elements],
  ];
  const limits: readonly SizeLimit[] = [
    ['max_send_wr', asked.maxSendWr, RxeLimit.workRequests],
    ['max_send_sge', sendSge, RxeLimit.elements],
    ['max_inline_data', inline, RxeLimit.inlineBytes],
    ...(shared ? [] : receives),
  ];
  for (const [name, value, most] of limits) {
    if (value > most) throw invalid(`cap.${name} must be at most ${most}, not ${value}`);
  }
  return asked;
}

/** The receive queue's ring first; the program maps none if the QP has a shared receive queue. */
function putRings({ sendRing, receiveRing }: UverbsQp, own: DataView): void {
  if (receiveRing !== undefined) putMmInfo(own, 0, receiveRing);
  putMmInfo(own, MMINFO_BYTES, sendRing);
}

function stateOf(value: number): QPState {
  const state = Object.values(QPState).find((known) => known === value);
  if (state === undefined)
    throw invalid(`qp_state or cur_qp_state must be 0 (RESET) to 6 (ERR), not ${value}`);
  return state;
}
