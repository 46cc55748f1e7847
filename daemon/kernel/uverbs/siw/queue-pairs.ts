/** Creates, modifies and queries queue pairs like siw. */
import { INLINE_MAX } from '#contract/protocol/queue-layout';
import type { QPCapabilities } from '#contract/verbs/attributes';
import { QPState } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import { ALL_QP_ATTRIBUTES, QPAttribute } from '#contract/verbs/qp-attributes';
import { putAttributes, readAttributes } from '#daemon/kernel/attribute-fields';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { newStruct, setUint64 } from '#daemon/kernel/struct-fields';
import { CreateQP, ModifyQP, UverbsCommandNumber as N, QueryQP } from '../layouts.ts';
import { UverbsQp } from '../objects.ts';
import type { CommandCall } from '../open-device.ts';
import { SEND_WORDS_BYTES, SendWords } from '../send-words.ts';
import { CreatedQP } from './layouts.ts';
import { requestState } from './qp-state.ts';

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
  const object = file.table.add('qp', (handle) => makeQP(call, handle));
  const { qp, sendRing, receiveRing } = object;
  qp.tag = object;
  // The first state of an RNIC is "idle", INIT in verbs: programs that check the state expect it.
  qp.modify(QPState.INIT, file.services.host.now());
  const { capabilities } = qp;
  const reply = file.newReply(N.createQP, response.bytes);
  const words: readonly (readonly [number, number])[] = [
    [response.handle, object.handle],
    [response.qpn, qp.qpn],
    [response.maxSendWr, capabilities.maxSendWr],
    [response.maxRecvWr, fields.getUint32(request.maxRecvWr, true)],
    [response.maxSendSge, capabilities.maxSendSge],
    [response.maxRecvSge, fields.getUint32(request.maxRecvSge, true)],
    [response.maxInlineData, INLINE_MAX],
  ];
  for (const [offset, value] of words) reply.fields.setUint32(offset, value, true);
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

function makeQP({ file, fields, bytes }: CommandCall, handle: number): UverbsQp {
  const { request } = CreateQP;
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  const sendCQ = file.table.expect('cq', fields.getUint32(request.sendCQ, true));
  const recvCQ = file.table.expect('cq', fields.getUint32(request.recvCQ, true));
  const srq =
    fields.getUint8(request.isSrq) === 0
      ? undefined
      : file.table.expect('srq', fields.getUint32(request.srqHandle, true));
  const capabilities = capabilitiesOf(fields);
  return file.rings.make((rings) => {
    const words = new SendWords();
    const qp = file.device.nic.createQP(pd.pd, {
      sendCQ: sendCQ.cq,
      recvCQ: recvCQ.cq,
      srq: srq?.srq,
      capabilities,
      sqSigAll: fields.getUint8(request.sqSigAll) !== 0,
      ring: (bytes) => {
        const memory = rings.take(bytes, bytes + SEND_WORDS_BYTES);
        words.place(memory);
        return memory;
      },
      receiveRing: (bytes) => rings.take(bytes),
      progress: () => words.progress,
      onState: (state) => words.handleState(state),
      tag: undefined,
    });
    const userHandle = bytes.slice(request.userHandle, request.userHandle + 8);
    rings.charge(qp.sqCount + qp.rqCount, () => qp.close(file.services.host.now()));
    const receiveRing = qp.rqCount === 0 ? undefined : rings.at(1);
    const sendRing = rings.at(0);
    return new UverbsQp(file, handle, { userHandle, qp, words, sendRing, receiveRing });
  });
}

function capabilitiesOf(fields: DataView): QPCapabilities {
  const { request } = CreateQP;
  const maxSendWr = fields.getUint32(request.maxSendWr, true);
  const maxRecvWr = fields.getUint32(request.maxRecvWr, true);
  return {
    // An empty ring cannot be mapped, so a program that only receives gets one element.
    maxSendWr: maxSendWr === 0 && maxRecvWr > 0 ? 1 : maxSendWr,
    maxRecvWr,
    maxSendSge: fields.getUint32(request.maxSendSge, true),
    maxRecvSge: fields.getUint32(request.maxRecvSge, true),
    maxInlineData: fields.getUint32(request.maxInlineData, true),
  };
}

function checkPort(mask: number, bit: number, port: number): void {
  if ((mask & bit) !== 0 && port !== 1)
    throw new VerbsError('EINVAL', `port_num must be 1 on an iWARP device, not ${port}`);
}

function stateOf(mask: number, bit: number, value: number): QPState | undefined {
  if ((mask & bit) === 0) return undefined;
  const state = Object.values(QPState).find((known) => known === value);
  if (state === undefined)
    throw new VerbsError(
      'EINVAL',
      `qp_state must be 0 (RESET) to 6 (ERR) on an iWARP device, not ${value}`,
    );
  return state;
}
