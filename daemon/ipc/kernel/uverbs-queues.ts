/** Commands for completion channels, completion queues and shared receive queues. */
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import { cqBytes, ringCount, rqBytes } from '../../../verbs-api/contract/queue-layout.ts';
import { DONE, type KernelReply } from './kernel-file.ts';
import type { Ring } from './ring-mapping.ts';
import { newStruct, setUint64 } from './struct-fields.ts';
import type { CommandCall } from './uverbs-commands.ts';
import type { UverbsFile } from './uverbs-file.ts';
import {
  CountedDestroy,
  CreateCompChannel,
  CreateCQ,
  CreateSRQ,
  DestroyCQ,
  EventsReported,
  ModifySRQ,
  SRQAttrBit,
} from './uverbs-layouts.ts';
import { type ChannelQueue, CqElement, SrqElement } from './uverbs-objects.ts';
import { COMP_VECTORS } from './uverbs-queries.ts';

/** CREATE_COMP_CHANNEL. */
export function createCompChannel({ file }: CommandCall): KernelReply {
  const { token } = file.createChannel();
  const { octets } = newStruct(CreateCompChannel.response.bytes);
  const descriptors = [{ offset: CreateCompChannel.response.fd, token }];
  return { status: 0, response: octets, descriptors };
}

/** CREATE_CQ: EINVAL for a bad size or vector, EBADF for a channel that is none. */
export function createCQ({ file, fields, octets }: CommandCall): KernelReply {
  const { request, response } = CreateCQ;
  if (fields.getUint32(request.compVector, true) >= COMP_VECTORS) {
    throw new VerbsError('EINVAL', `the device has ${COMP_VECTORS} completion vector`);
  }
  const channel = channelOf(file, fields.getInt32(request.compChannel, true));
  const cqe = fields.getUint32(request.cqe, true);
  const element = file.add('cq', (handle) => {
    const rings = new NewRings(file);
    return rings.keepOrRelease(() => {
      const ring = () => rings.take(cqBytes(ringCount(cqe)));
      const cq = file.device.nic.createCQ({ cqe, ring, tag: undefined });
      const userHandle = octets.slice(request.userHandle, request.userHandle + 8);
      rings.charge(cq.count, () => cq.close());
      return new CqElement(file, handle, { userHandle, cq, ring: rings.at(0), channel });
    });
  });
  const { cq, handle, ring } = element;
  cq.tag = element;
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.cqe, cq.count, true);
  reply.fields.setUint32(response.cqId, handle, true);
  reply.fields.setUint32(response.numCqe, cq.count, true);
  setUint64(reply.fields, response.key, ring.key);
  return { status: 0, response: reply.octets };
}

/** DESTROY_CQ: EBUSY while a queue pair completes to it. */
export function destroyCQCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.expect('cq', fields.getUint32(CountedDestroy.request.handle, true));
  const purged = destroyCQ(file, object);
  const { response } = DestroyCQ;
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.compEventsReported, object.completionsDelivered, true);
  reply.fields.setUint32(response.asyncEventsReported, object.asyncDelivered, true);
  return { status: 0, response: reply.octets, purged };
}

/** CREATE_SRQ: EINVAL for a bad size or limit. */
export function createSRQ({ file, fields, octets }: CommandCall): KernelReply {
  const { request, response } = CreateSRQ;
  const pd = file.expect('pd', fields.getUint32(request.pdHandle, true));
  const maxWr = fields.getUint32(request.maxWr, true);
  const maxSge = fields.getUint32(request.maxSge, true);
  const srqLimit = fields.getUint32(request.srqLimit, true);
  const element = file.add('srq', (handle) => {
    const rings = new NewRings(file);
    return rings.keepOrRelease(() => {
      const ring = () => rings.take(rqBytes(ringCount(maxWr)));
      const init = { maxWr, maxSge, srqLimit, ring, tag: undefined };
      const srq = file.device.nic.createSRQ(pd.pd, init);
      const userHandle = octets.slice(request.userHandle, request.userHandle + 8);
      rings.charge(srq.count, () => srq.close());
      return new SrqElement(file, handle, { userHandle, srq, ring: rings.at(0) });
    });
  });
  const { srq, handle, ring } = element;
  srq.tag = element;
  const reply = newStruct(response.bytes);
  reply.fields.setUint32(response.handle, handle, true);
  reply.fields.setUint32(response.maxWr, maxWr, true);
  reply.fields.setUint32(response.maxSge, maxSge, true);
  reply.fields.setUint32(response.srqn, handle, true);
  reply.fields.setUint32(response.numRqe, srq.count, true);
  setUint64(reply.fields, response.key, ring.key);
  return { status: 0, response: reply.octets };
}

/** MODIFY_SRQ: arms or disarms the limit event; EOPNOTSUPP for a new size. */
export function modifySRQ({ file, fields }: CommandCall): KernelReply {
  const { request } = ModifySRQ;
  const { srq } = file.expect('srq', fields.getUint32(request.handle, true));
  const mask = fields.getUint32(request.attrMask, true);
  if ((mask & SRQAttrBit.maxWr) !== 0) {
    throw new VerbsError('EOPNOTSUPP', 'a shared receive queue keeps its size');
  }
  if ((mask & SRQAttrBit.limit) !== 0) {
    srq.modify({ srqLimit: fields.getUint32(request.srqLimit, true) });
  }
  return DONE;
}

/** DESTROY_SRQ: EBUSY while a queue pair receives from it. */
export function destroySRQCommand({ file, fields }: CommandCall): KernelReply {
  const object = file.expect('srq', fields.getUint32(CountedDestroy.request.handle, true));
  return { ...eventsReported(object.asyncDelivered), purged: destroySRQ(file, object) };
}

/** The response that tells how many events of an object the program has read. */
export function eventsReported(count: number): KernelReply {
  const { octets, fields } = newStruct(EventsReported.response.bytes);
  fields.setUint32(EventsReported.response.eventsReported, count, true);
  return { status: 0, response: octets };
}

/** Destroys a completion queue and its undelivered events; the event queues that this emptied. */
export function destroyCQ(file: UverbsFile, object: CqElement): number[] {
  object.cq.close();
  file.remove(object);
  giveRing(file, object.ring, object.cq.count);
  const purged = file.purgeAsync(object);
  const { channel } = object;
  if (channel?.purge(object) === true) purged.push(channel.number);
  return purged;
}

/** Destroys a shared receive queue; see `destroyCQ`. */
export function destroySRQ(file: UverbsFile, object: SrqElement): number[] {
  object.srq.close();
  file.remove(object);
  giveRing(file, object.ring, object.srq.count);
  return file.purgeAsync(object);
}

/** Gives the ring of a queue of `entries` back. */
export function giveRing(file: UverbsFile, ring: Ring, entries: number): void {
  file.rings.release(ring);
  file.client.ledger.give('queueEntries', entries);
}

/** The rings of an object that is being made: it is made with all of them, or none stays. */
export class NewRings {
  readonly #file: UverbsFile;
  readonly #rings: Ring[] = [];
  #discard: (() => void) | undefined;

  constructor(file: UverbsFile) {
    this.#file = file;
  }

  /** The memory of the next ring; `memoryBytes` when more is needed than the program maps. */
  take(mappedBytes: number, memoryBytes = mappedBytes): Uint8Array {
    const ring = this.#file.rings.create(mappedBytes, memoryBytes);
    this.#rings.push(ring);
    return ring.memory.view;
  }

  /** The ring that was taken as number `index`. */
  at(index: number): Ring {
    const ring = this.#rings[index];
    if (ring === undefined) throw new Error('a queue without a ring');
    return ring;
  }

  /** Charges the entries of the object that was made; `discard` unmakes it if that fails. */
  charge(entries: number, discard: () => void): void {
    this.#discard = discard;
    this.#file.client.ledger.take('queueEntries', entries);
  }

  /** Runs `make`; if it throws, everything taken so far is given back. */
  keepOrRelease<T>(make: () => T): T {
    try {
      return make();
    } catch (error) {
      this.#discard?.();
      for (const ring of this.#rings) this.#file.rings.release(ring);
      throw error;
    }
  }
}

/** The channel of a number that the shim put in the place of a descriptor; -1 is none. EBADF. */
function channelOf(file: UverbsFile, number: number): ChannelQueue | undefined {
  if (number < 0) return undefined;
  const channel = file.channels.get(number);
  if (channel === undefined) throw new VerbsError('EBADF', 'no completion channel of this file');
  return channel;
}
