/** Commands for completion channels, completion queues and shared receive queues. */

import {
  cqBytes,
  ringCount,
  rqBytes,
} from '../../../../verbs-api/contract/protocol/queue-layout.ts';
import { VerbsError } from '../../../../verbs-api/contract/verbs/errors.ts';
import { DONE, type KernelReply } from '../kernel-file.ts';
import { newStruct } from '../struct-fields.ts';
import {
  CountedDestroy,
  CreateCompChannel,
  CreateCQ,
  CreateSRQ,
  DestroyCQ,
  EventsReported,
  ModifySRQ,
  UverbsCommandNumber as N,
  SRQAttrBit,
} from './layouts.ts';
import { type ChannelQueue, CqElement, SrqElement } from './objects.ts';
import type { CommandCall, OpenDevice } from './open-device.ts';
import { COMP_VECTORS } from './queries.ts';

/** CREATE_COMP_CHANNEL. */
export function createCompChannel({ file }: CommandCall): KernelReply {
  const { token } = file.createChannel();
  const { bytes } = newStruct(CreateCompChannel.response.bytes);
  const descriptors = [{ offset: CreateCompChannel.response.fd, token }];
  return { status: 0, response: bytes, descriptors };
}

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
  file.persona.putCQ(reply.own, { handle, entries: cq.count, key: ring.key });
  return { status: 0, response: reply.bytes };
}

/** DESTROY_CQ: EBUSY while a queue pair completes to it. */
export function destroyCQCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.table.expect('cq', fields.getUint32(CountedDestroy.request.handle, true));
  const purged = destroyCQ(file, object);
  const { response } = DestroyCQ;
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.compEventsReported, object.completionsDelivered, true);
  reply.fields.setUint32(response.asyncEventsReported, object.asyncDelivered, true);
  return { status: 0, response: reply.bytes, purged };
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
  file.persona.putSRQ(reply.own, { handle, entries: srq.count, key: ring.key });
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

/** DESTROY_SRQ: EBUSY while a queue pair receives from it. */
export function destroySRQCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.table.expect('srq', fields.getUint32(CountedDestroy.request.handle, true));
  return { ...eventsReported(object.asyncDelivered), purged: destroySRQ(file, object) };
}

/** The response with the number of events of an object that the program has read. */
export function eventsReported(count: number): KernelReply {
  const { bytes, fields } = newStruct(EventsReported.response.bytes);
  fields.setUint32(EventsReported.response.eventsReported, count, true);
  return { status: 0, response: bytes };
}

/**
 * Destroys a completion queue and its undelivered events. Returns the event queues that this
 * emptied.
 */
export function destroyCQ(file: OpenDevice, object: CqElement): number[] {
  object.cq.close();
  file.table.remove(object);
  file.rings.release(object.ring, object.cq.count);
  const purged = file.purgeAsync(object);
  const { channel } = object;
  if (channel?.purge(object) === true) purged.push(channel.number);
  return purged;
}

/** Destroys a shared receive queue; see `destroyCQ`. */
export function destroySRQ(file: OpenDevice, object: SrqElement): number[] {
  object.srq.close();
  file.table.remove(object);
  file.rings.release(object.ring, object.srq.count);
  return file.purgeAsync(object);
}

/**
 * The channel with the number that the preload library put in place of a descriptor; -1 means none.
 * EBADF.
 */
function channelOf(file: OpenDevice, number: number): ChannelQueue | undefined {
  if (number < 0) return undefined;
  const channel = file.channels.get(number);
  if (channel === undefined) throw new VerbsError('EBADF', 'no completion channel of this file');
  return channel;
}
