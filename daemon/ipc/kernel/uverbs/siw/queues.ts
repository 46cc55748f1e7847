/** Creating completion and shared receive queues, with the rings that siw's provider maps. */
import {
  cqBytes,
  ringCount,
  rqBytes,
} from '../../../../../verbs-api/contract/protocol/queue-layout.ts';
import { VerbsError } from '../../../../../verbs-api/contract/verbs/errors.ts';
import { DONE, type KernelReply } from '../../kernel-file.ts';
import { setUint64 } from '../../struct-fields.ts';
import {
  CreateCQ,
  CreateSRQ,
  ModifySRQ,
  UverbsCommandNumber as N,
  SRQAttrBit,
} from '../layouts.ts';
import { CqElement, SrqElement } from '../objects.ts';
import type { CommandCall } from '../open-device.ts';
import { COMP_VECTORS } from '../queries.ts';
import { channelOf } from '../queues.ts';

/** CREATE_CQ: EINVAL for a bad size or vector, EBADF for an invalid channel. */
export function createCQ({ file, fields, bytes }: CommandCall): KernelReply {
  const { request, response } = CreateCQ;
  if (fields.getUint32(request.compVector, true) >= COMP_VECTORS) {
    throw new VerbsError('EINVAL', `the device has ${COMP_VECTORS} completion vector`);
  }
  const channel = channelOf(file, fields.getInt32(request.compChannel, true));
  const cqe = fields.getUint32(request.cqe, true);
  const element = file.table.add('cq', (handle) => {
    return file.rings.make((rings) => {
      const ring = () => rings.take(cqBytes(ringCount(cqe)));
      const cq = file.device.nic.createCQ({ cqe, ring, tag: undefined });
      const userHandle = bytes.slice(request.userHandle, request.userHandle + 8);
      rings.charge(cq.count, () => cq.close());
      return new CqElement(file, handle, { userHandle, cq, ring: rings.at(0), channel });
    });
  });
  const { cq, handle, ring } = element;
  cq.tag = element;
  const reply = file.newReply(N.createCQ, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.cqe, cq.count, true);
  reply.own.setUint32(0, handle, true);
  reply.own.setUint32(4, cq.count, true);
  setUint64(reply.own, 8, ring.key);
  return { status: 0, response: reply.bytes };
}

/** CREATE_SRQ: EINVAL for a bad size or limit. */
export function createSRQ({ file, fields, bytes }: CommandCall): KernelReply {
  const { request, response } = CreateSRQ;
  const pd = file.table.expect('pd', fields.getUint32(request.pdHandle, true));
  const maxWr = fields.getUint32(request.maxWr, true);
  const maxSge = fields.getUint32(request.maxSge, true);
  const srqLimit = fields.getUint32(request.srqLimit, true);
  const element = file.table.add('srq', (handle) => {
    return file.rings.make((rings) => {
      const ring = () => rings.take(rqBytes(ringCount(maxWr)));
      const init = { maxWr, maxSge, srqLimit, ring, tag: undefined };
      const srq = file.device.nic.createSRQ(pd.pd, init);
      const userHandle = bytes.slice(request.userHandle, request.userHandle + 8);
      rings.charge(srq.count, () => srq.close());
      return new SrqElement(file, handle, { userHandle, srq, ring: rings.at(0) });
    });
  });
  const { srq, handle, ring } = element;
  srq.tag = element;
  const reply = file.newReply(N.createSRQ, response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.maxWr, maxWr, true);
  reply.fields.setUint32(response.maxSge, maxSge, true);
  reply.fields.setUint32(response.srqn, handle, true);
  reply.own.setUint32(0, srq.count, true);
  setUint64(reply.own, 8, ring.key);
  return { status: 0, response: reply.bytes };
}

/** MODIFY_SRQ: arms or disarms the limit event; EOPNOTSUPP for a new size. */
export function modifySRQ({ file, fields }: CommandCall): KernelReply {
  const { request } = ModifySRQ;
  const { srq } = file.table.expect('srq', fields.getUint32(request.handle, true));
  const mask = fields.getUint32(request.attrMask, true);
  if ((mask & SRQAttrBit.maxWr) !== 0) {
    throw new VerbsError('EOPNOTSUPP', 'a shared receive queue cannot be resized');
  }
  if ((mask & SRQAttrBit.limit) !== 0) {
    srq.modify({ srqLimit: fields.getUint32(request.srqLimit, true) });
  }
  return DONE;
}
