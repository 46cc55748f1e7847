/** Creates completion and shared receive queues, with rings that siw's provider maps. */
import { cqBytes, ringCount, rqBytes } from '#contract/protocol/queue-layout';
import { VerbsError } from '#contract/verbs/errors';
import { DONE, type KernelReply } from '#daemon/kernel/kernel-file';
import { setUint64 } from '#daemon/kernel/struct-fields';
import {
  CreateCQ,
  CreateSRQ,
  ModifySRQ,
  UverbsCommandNumber as N,
  SRQAttrBit,
} from '../layouts.ts';
import type { CommandCall } from '../open-device.ts';
import { addCQ, addSRQ, requestedChannel } from '../queues.ts';
import { CreatedCQ, CreatedSRQ } from './layouts.ts';

/** CREATE_CQ: EINVAL for a bad size or vector, EBADF for an invalid channel. */
export function createCQ(call: CommandCall): KernelReply {
  const { request, response } = CreateCQ;
  const { file, fields } = call;
  const channel = requestedChannel(call);
  const cqe = fields.getUint32(request.cqe, true);
  const { cq, handle, ring } = addCQ(call, channel, (rings) => {
    const ring = () => rings.take(cqBytes(ringCount(cqe)));
    return file.device.nic.createCQ({ cqe, ring, tag: undefined });
  });
  const reply = file.newReply(N.createCQ, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.cqe, cq.count, true);
  reply.own.setUint32(CreatedCQ.id, handle, true);
  reply.own.setUint32(CreatedCQ.count, cq.count, true);
  setUint64(reply.own, CreatedCQ.key, ring.key);
  return { status: 0, response: reply.bytes };
}

/** CREATE_SRQ: EINVAL for a bad size or limit. */
export function createSRQ(call: CommandCall): KernelReply {
  const { request, response } = CreateSRQ;
  const { file, fields } = call;
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  const maxWr = fields.getUint32(request.maxWr, true);
  const maxSge = fields.getUint32(request.maxSge, true);
  const srqLimit = fields.getUint32(request.srqLimit, true);
  const { srq, handle, ring } = addSRQ(call, (rings) => {
    const ring = () => rings.take(rqBytes(ringCount(maxWr)));
    return file.device.nic.createSRQ(pd.pd, { maxWr, maxSge, srqLimit, ring, tag: undefined });
  });
  const reply = file.newReply(N.createSRQ, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.maxWr, maxWr, true);
  reply.fields.setUint32(response.maxSge, maxSge, true);
  reply.fields.setUint32(response.srqn, handle, true);
  reply.own.setUint32(CreatedSRQ.count, srq.count, true);
  setUint64(reply.own, CreatedSRQ.key, ring.key);
  return { status: 0, response: reply.bytes };
}

/** MODIFY_SRQ: arms or disarms the limit event; EOPNOTSUPP for a new size. */
export function modifySRQ({ file, fields }: CommandCall): KernelReply {
  const { request } = ModifySRQ;
  const { srq } = file.table.expect('srq', fields.getUint32(request.handle, true));
  const mask = fields.getUint32(request.attrMask, true);
  if ((mask & SRQAttrBit.maxWr) !== 0) {
    throw new VerbsError(
      'EOPNOTSUPP',
      'IBV_SRQ_MAX_WR: shared receive queues of iWARP devices cannot be resized',
    );
  }
  if ((mask & SRQAttrBit.limit) !== 0) {
    srq.modify({ srqLimit: fields.getUint32(request.srqLimit, true) });
  }
  return DONE;
}
