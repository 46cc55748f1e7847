/** Completion and shared receive queues, with rings that rxe's provider maps. */
import { invalid, VerbsError } from '#contract/verbs/errors';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { newStruct } from '#daemon/kernel/struct-fields';
import {
  CreateCQ,
  CreateSRQ,
  ModifySRQ,
  UverbsCommandNumber as N,
  QuerySRQ,
  RequestNotify,
  ResizeCQ,
  SRQAttrBit,
} from '../layouts.ts';
import type { CommandCall } from '../open-device.ts';
import { addCQ, addSRQ, requestedChannel } from '../queues.ts';
import { RxeLimit } from './limits.ts';
import { MMINFO_BYTES, putMmInfo, ringEntries } from './mminfo.ts';

/** The kernel numbers shared receive queues from here. */
const FIRST_SRQ_NUMBER = 0x2_0001;
const SRQ_NUMBER_AT = MMINFO_BYTES;

/** CREATE_CQ: EINVAL for a bad size or vector, EBADF for an invalid channel. */
export function createCQ(call: CommandCall): KernelReply {
  const { request, response } = CreateCQ;
  const { file, fields } = call;
  const channel = requestedChannel(call);
  const cqe = checkedCompletions(fields.getUint32(request.cqe, true));
  const { cq, handle, ring } = addCQ(call, channel, (rings) => {
    const ring = (ringBytes: number) => rings.take(ringBytes);
    return file.device.nic.createCQ({ cqe, kind: 'indices', ring, tag: undefined });
  });
  const reply = file.newReply(N.createCQ, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.cqe, cq.count, true);
  putMmInfo(reply.own, 0, ring);
  return { status: 0, response: reply.bytes };
}

/**
 * RESIZE_CQ: moves to a new ring, which starts with the pending completions. EINVAL for a bad size or
 * one below their number; the old ring then stays.
 */
export function resizeCQ({ file, fields }: CommandCall): KernelReply {
  const { request, response } = ResizeCQ;
  const object = file.table.expect('cq', fields.getUint32(request.handle, true));
  const cqe = checkedCompletions(fields.getUint32(request.cqe, true));
  const { cq, ring: before } = object;
  const entriesBefore = cq.count;
  object.ring = file.rings.make((rings) => {
    rings.charge(ringEntries(cqe), () => undefined);
    cq.resize(cqe, (ringBytes) => rings.take(ringBytes));
    return rings.at(0);
  });
  file.rings.release(before, entriesBefore);
  const reply = file.newReply(N.resizeCQ, response.bytes);
  reply.fields.setUint32(response.cqe, cq.count, true);
  putMmInfo(reply.own, 0, object.ring);
  return { status: 0, response: reply.bytes };
}

/** REQ_NOTIFY_CQ: arms the queue for one event. */
export function requestNotify({ file, fields }: CommandCall): KernelReply {
  const { request } = RequestNotify;
  const { cq } = file.table.expect('cq', fields.getUint32(request.handle, true));
  cq.arm(fields.getUint32(request.solicitedOnly, true) !== 0);
  return DONE;
}

/** CREATE_SRQ: EINVAL for a bad size. */
export function createSRQ(call: CommandCall): KernelReply {
  const { request, response } = CreateSRQ;
  const { file, fields } = call;
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  const maxWr = checkedReceives(fields.getUint32(request.maxWr, true));
  const maxSge = Math.max(1, fields.getUint32(request.maxSge, true));
  if (maxSge > RxeLimit.sharedElements) {
    throw invalid(
      `max_sge of a shared receive queue must be 1 to ${RxeLimit.sharedElements}, not ${maxSge}`,
    );
  }
  // Like rxe, accept any limit, even one that raises the event with the first message.
  const srqLimit = fields.getUint32(request.srqLimit, true);
  const { handle, ring } = addSRQ(call, (rings) => {
    const ring = (ringBytes: number) => rings.take(ringBytes);
    return file.device.nic.createSRQ(pd.pd, {
      maxWr,
      maxSge,
      srqLimit,
      kind: 'indices',
      ring,
      tag: undefined,
    });
  });
  const reply = file.newReply(N.createSRQ, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.maxWr, maxWr, true);
  reply.fields.setUint32(response.maxSge, maxSge, true);
  putMmInfo(reply.own, 0, ring);
  reply.own.setUint32(SRQ_NUMBER_AT, FIRST_SRQ_NUMBER + handle, true);
  return { status: 0, response: reply.bytes };
}

/** QUERY_SRQ: the sizes of the ring. */
export function querySRQ({ file, fields }: CommandCall): KernelReply {
  const { request, response } = QuerySRQ;
  const { srq } = file.table.expect('srq', fields.getUint32(request.handle, true));
  const { maxSge, srqLimit } = srq.query();
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.maxWr, srq.capacity, true);
  reply.fields.setUint32(response.maxSge, maxSge, true);
  reply.fields.setUint32(response.srqLimit, srqLimit, true);
  return { status: 0, response: reply.bytes };
}

/**
 * MODIFY_SRQ: EINVAL for a bad size or limit. The response is the mapping of a new ring, which the
 * preload library stores at the pointer in the request.
 */
export function modifySRQ({ file, fields }: CommandCall): KernelReply {
  const { request } = ModifySRQ;
  const object = file.table.expect('srq', fields.getUint32(request.handle, true));
  const { srq } = object;
  const mask = fields.getUint32(request.attrMask, true);
  if ((mask & ~(SRQAttrBit.maxWr | SRQAttrBit.limit)) !== 0) {
    throw invalid(
      `srq_attr_mask must be IBV_SRQ_MAX_WR, IBV_SRQ_LIMIT or both, not 0x${mask.toString(16)}`,
    );
  }
  const resizes = (mask & SRQAttrBit.maxWr) !== 0;
  const maxWr = resizes ? checkedReceives(fields.getUint32(request.maxWr, true)) : 0;
  const limit = fields.getUint32(request.srqLimit, true);
  const entries = resizes ? ringEntries(maxWr) : srq.capacity;
  if ((mask & SRQAttrBit.limit) !== 0 && limit > entries) {
    throw invalid(`srq_limit must be 0 to ${entries}, the size of the queue, not ${limit}`);
  }
  if (!resizes) {
    if ((mask & SRQAttrBit.limit) !== 0) srq.modify({ srqLimit: limit });
    return DONE;
  }
  const { ring: before } = object;
  const slotsBefore = srq.count;
  object.ring = file.rings.make((rings) => {
    rings.charge(entries + 1, () => undefined);
    // Earlier receives are still taken from the old ring.
    const emptied = (): void => file.rings.release(before, slotsBefore);
    srq.resize(maxWr, (ringBytes) => rings.take(ringBytes), emptied);
    return rings.at(0);
  });
  if ((mask & SRQAttrBit.limit) !== 0) srq.modify({ srqLimit: limit });
  const reply = newStruct(MMINFO_BYTES);
  putMmInfo(reply.fields, 0, object.ring);
  return { status: 0, response: reply.bytes };
}

/** EX_CREATE_CQ and CREATE_XSRQ: issued by the provider for objects that rxe lacks. */
export function refuseExtended(): KernelReply {
  throw new VerbsError(
    'EOPNOTSUPP',
    'extended completion queues and shared receive queues for XRC or tag matching are not supported, as on rxe',
  );
}

function checkedCompletions(cqe: number): number {
  if (cqe >= 1 && cqe <= RxeLimit.completions) return cqe;
  throw invalid(`cqe must be 1 to ${RxeLimit.completions} (max_cqe), not ${cqe}`);
}

function checkedReceives(maxWr: number): number {
  if (maxWr >= 1 && maxWr <= RxeLimit.workRequests) return maxWr;
  throw invalid(
    `max_wr of a shared receive queue must be 1 to ${RxeLimit.workRequests} (max_srq_wr), not ${maxWr}`,
  );
}
