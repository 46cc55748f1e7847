/** Commands for completion channels, and the shared parts of completion and receive queues. */
import { invalid, VerbsError } from '#contract/verbs/errors';
import type { NewRings } from '#daemon/clients/objects/queue-rings';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import { bytesToTake } from '../event-queue.ts';
import type { KernelReply } from '../kernel-file.ts';
import type { Ring } from '../ring-mapping.ts';
import { newStruct } from '../struct-fields.ts';
import {
  CountedDestroy,
  CreateCompChannel,
  CreateCQ,
  CreateSRQ,
  DestroyCQ,
  EventsReported,
} from './layouts.ts';
import { type ChannelQueue, UverbsCq, UverbsSrq } from './objects.ts';
import type { CommandCall, OpenDevice } from './open-device.ts';
import { COMP_VECTORS } from './queries.ts';

export function createCompChannel({ file }: CommandCall): KernelReply {
  const { token } = file.createChannel();
  const { bytes } = newStruct(CreateCompChannel.response.bytes);
  const descriptors = [{ offset: CreateCompChannel.response.fd, token }];
  return { status: 0, response: bytes, descriptors };
}

/** The channel that CREATE_CQ names. EINVAL for a bad vector, EBADF for an invalid channel. */
export function requestedChannel({ file, fields }: CommandCall): ChannelQueue | undefined {
  const { request } = CreateCQ;
  if (fields.getUint32(request.compVector, true) >= COMP_VECTORS) {
    throw invalid(`comp_vector must be below ${COMP_VECTORS} (num_comp_vectors)`);
  }
  return channelOf(file, fields.getInt32(request.compChannel, true));
}

/** Registers the completion queue of a CREATE_CQ, which `make` creates with one ring. */
export function addCQ(
  { file, bytes }: CommandCall,
  channel: ChannelQueue | undefined,
  make: (rings: NewRings<Ring>) => CQ,
): UverbsCq {
  const { request } = CreateCQ;
  const object = file.table.add('cq', (handle) =>
    file.rings.make((rings) => {
      const cq = make(rings);
      const userHandle = bytes.slice(request.userHandle, request.userHandle + 8);
      rings.charge(cq.count, () => cq.close());
      return new UverbsCq(file, handle, { userHandle, cq, ring: rings.at(0), channel });
    }),
  );
  object.cq.tag = object;
  return object;
}

/** Registers the shared receive queue of a CREATE_SRQ, which `make` creates with one ring. */
export function addSRQ(
  { file, bytes }: CommandCall,
  make: (rings: NewRings<Ring>) => SRQ,
): UverbsSrq {
  const { request } = CreateSRQ;
  const object = file.table.add('srq', (handle) =>
    file.rings.make((rings) => {
      const srq = make(rings);
      const userHandle = bytes.slice(request.userHandle, request.userHandle + 8);
      rings.charge(srq.count, () => srq.close());
      return new UverbsSrq(file, handle, { userHandle, srq, ring: rings.at(0) });
    }),
  );
  object.srq.tag = object;
  return object;
}

/** DESTROY_CQ: EBUSY while a queue pair completes to it. */
export function destroyCQCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.table.expect('cq', fields.getUint32(CountedDestroy.request.handle, true));
  const purged = destroyCQ(file, object);
  file.eventsOfDestroyed = object.completionsDelivered;
  const { response } = DestroyCQ;
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.compEventsReported, object.completionsDelivered, true);
  reply.fields.setUint32(response.asyncEventsReported, object.asyncDelivered, true);
  return { status: 0, response: reply.bytes, purged };
}

/** DESTROY_SRQ: EBUSY while a queue pair receives from it. */
export function destroySRQCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.table.expect('srq', fields.getUint32(CountedDestroy.request.handle, true));
  return { ...eventsReported(object.asyncDelivered), purged: destroySRQ(file, object) };
}

/** The response with the number of an object's events that the program has read. */
export function eventsReported(count: number): KernelReply {
  const { bytes, fields } = newStruct(EventsReported.response.bytes);
  fields.setUint32(EventsReported.response.eventsReported, count, true);
  return { status: 0, response: bytes };
}

/**
 * Destroys a completion queue and its undelivered events. Returns the number of an event queue for
 * each byte to take from its descriptor.
 */
export function destroyCQ(file: OpenDevice, object: UverbsCq): number[] {
  object.cq.close();
  file.table.remove(object);
  file.rings.release(object.ring, object.cq.count);
  const { channel } = object;
  const purged = channel === undefined ? [] : bytesToTake(channel, channel.purge(object));
  return [...file.purgeAsync(object), ...purged];
}

/** Destroys a shared receive queue; see `destroyCQ`. */
export function destroySRQ(file: OpenDevice, object: UverbsSrq): number[] {
  object.srq.close();
  file.table.remove(object);
  file.rings.release(object.ring, object.srq.count);
  return file.purgeAsync(object);
}

/**
 * The channel with the number that the preload library substituted for a descriptor; -1 means none.
 * EBADF.
 */
function channelOf(file: OpenDevice, number: number): ChannelQueue | undefined {
  if (number < 0) return undefined;
  const channel = file.channels.get(number);
  if (channel === undefined) {
    throw new VerbsError('EBADF', 'channel is not a completion channel of this context');
  }
  return channel;
}
