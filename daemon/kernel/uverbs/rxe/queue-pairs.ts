/** Creates, modifies and queries queue pairs like rxe. */
import type { QPCapabilities } from '#contract/verbs/attributes';
import { QPState, QPType } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
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
import { UverbsQp } from '../objects.ts';
import type { CommandCall } from '../open-device.ts';
import { SEND_WORDS_BYTES, SendWords } from '../send-words.ts';
import { RxeLimit } from './limits.ts';
import { MMINFO_BYTES, putMmInfo, ringEntries } from './mminfo.ts';

/** Offsets of the request's fields, for either command. */
type CreateFields = Omit<typeof CreateQP.request, 'bytes'>;
type CreateOffsets = { readonly [Field in keyof CreateFields]: number };

const SGE_BYTES = 16;
/** IBV_QP_CREATE flags; librxe itself refuses all but 0. */
const CREATE_FLAGS_BIT = 1;

/** CREATE_QP: EOPNOTSUPP for an unknown type; EINVAL for sizes beyond rxe's. */
export function createQP(call: CommandCall): KernelReply {
  const object = addQP(call, CreateQP.request);
  const reply = call.file.newReply(N.createQP, CreateQP.response.bytes);
  describeQP(object, call, CreateQP.request, reply.fields);
  putRings(object, reply.own);
  return { status: 0, response: reply.bytes };
}

/** EX_CREATE_QP: issued if the program sets creation flags, even to 0. EINVAL for any flag. */
export function extendedCreateQP(call: CommandCall): KernelReply {
  const { request, response } = ExtendedCreateQP;
  const { fields } = call;
  const compMask = fields.getUint32(request.compMask, true);
  if ((compMask & ~CREATE_FLAGS_BIT) !== 0 || fields.getUint32(request.createFlags, true) !== 0) {
    throw new VerbsError(
      'EINVAL',
      'create_flags and comp_mask must be 0: not supported by the device',
    );
  }
  const object = addQP(call, request);
  const { bytes, fields: reply } = newStruct(response.bytes + 2 * MMINFO_BYTES);
  describeQP(object, call, request, reply);
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

function addQP(call: CommandCall, at: CreateOffsets): UverbsQp {
  const { file, fields, bytes } = call;
  const asked = fields.getUint8(at.qpType);
  const type = Object.values(QPType).find((known) => known === asked);
  if (type === undefined)
    throw new VerbsError(
      'EOPNOTSUPP',
      `qp_type must be IBV_QPT_RC (2), IBV_QPT_UC (3) or IBV_QPT_UD (4) on a RoCE device, not ${asked}`,
    );
  const pd = file.table.expect('pd', fields.getUint32(at.pdHandle, true));
  const sendCQ = file.table.expect('cq', fields.getUint32(at.sendCQ, true));
  const recvCQ = file.table.expect('cq', fields.getUint32(at.recvCQ, true));
  const srq =
    fields.getUint8(at.isSrq) === 0
      ? undefined
      : file.table.expect('srq', fields.getUint32(at.srqHandle, true));
  const capabilities = capabilitiesOf(fields, at, srq !== undefined);
  const object = file.table.add('qp', (handle) =>
    file.rings.make((rings) => {
      const words = new SendWords();
      const qp = file.device.nic.createQP(pd.pd, {
        type,
        kind: 'indices',
        sendCQ: sendCQ.cq,
        recvCQ: recvCQ.cq,
        srq: srq?.srq,
        capabilities,
        inlineAsked: fields.getUint32(at.maxInlineData, true),
        sqSigAll: fields.getUint8(at.sqSigAll) !== 0,
        ring: (ringBytes) => {
          const memory = rings.take(ringBytes, ringBytes + SEND_WORDS_BYTES);
          words.place(memory);
          return memory;
        },
        receiveRing: (ringBytes) => rings.take(ringBytes),
        progress: () => words.progress,
        onState: (state) => words.handleState(state),
        tag: undefined,
      });
      const userHandle = bytes.slice(at.userHandle, at.userHandle + 8);
      rings.charge(qp.sqCount + qp.rqCount, () => qp.close(file.services.host.now()));
      const receiveRing = srq === undefined ? rings.at(1) : undefined;
      const sendRing = rings.at(0);
      return new UverbsQp(file, handle, { userHandle, qp, words, sendRing, receiveRing });
    }),
  );
  object.qp.tag = object;
  return object;
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
    if (value > most)
      throw new VerbsError('EINVAL', `cap.${name} must be at most ${most}, not ${value}`);
  }
  return asked;
}

/** The sizes of the receive queue are the requested ones, even without such a queue. */
function describeQP(
  { handle, qp }: UverbsQp,
  { fields }: CommandCall,
  asked: CreateOffsets,
  reply: DataView,
): void {
  const { response } = CreateQP;
  const { capabilities } = qp;
  const words: readonly (readonly [number, number])[] = [
    [response.handle, handle],
    [response.qpn, qp.qpn],
    [response.maxSendWr, capabilities.maxSendWr],
    [response.maxRecvWr, fields.getUint32(asked.maxRecvWr, true)],
    [response.maxSendSge, capabilities.maxSendSge],
    [response.maxRecvSge, fields.getUint32(asked.maxRecvSge, true)],
    [response.maxInlineData, capabilities.maxInlineData],
  ];
  for (const [offset, value] of words) reply.setUint32(offset, value, true);
}

/** The receive queue's ring first; the program maps none if the QP has a shared receive queue. */
function putRings({ sendRing, receiveRing }: UverbsQp, own: DataView): void {
  if (receiveRing !== undefined) putMmInfo(own, 0, receiveRing);
  putMmInfo(own, MMINFO_BYTES, sendRing);
}

function stateOf(value: number): QPState {
  const state = Object.values(QPState).find((known) => known === value);
  if (state === undefined)
    throw new VerbsError(
      'EINVAL',
      `qp_state or cur_qp_state must be 0 (RESET) to 6 (ERR), not ${value}`,
    );
  return state;
}
