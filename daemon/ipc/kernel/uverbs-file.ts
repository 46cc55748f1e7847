/**
 * One open of a uverbs device: its objects under one namespace of handles, its event queues, the
 * rings that the program maps, and the end of all of it at the last close.
 */
import type { ObjectOwner, ObjectSummaries } from '../../../verbs-api/contract/control.ts';
import { QPState } from '../../../verbs-api/contract/enums.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import { IpcFormatError } from '../../../verbs-api/contract/ipc-value.ts';
import type { Adapter } from '../../adapter/device-adapter.ts';
import type { HostAsyncEvent } from '../../adapter/rnic-host.ts';
import { DaemonMemory } from '../daemon-memory.ts';
import { EventRouter } from '../verbs/event-router.ts';
import { mrFields, qpFields } from '../verbs/object-summaries.ts';
import type { ObjectKind } from '../verbs/quotas.ts';
import { HandleSpace } from './handle-space.ts';
import type { KernelClient } from './kernel-client.ts';
import {
  DONE,
  type KernelCaller,
  type KernelFile,
  type KernelFileParts,
  type KernelReply,
  type KernelServices,
} from './kernel-file.ts';
import { RingMappings } from './ring-mapping.ts';
import { ReplyFlag, ShimOp, type ShimRequest } from './shim-protocol.ts';
import { executeWrite } from './uverbs-commands.ts';
import { ASYNC_EVENT_BYTES, COMPLETION_EVENT_BYTES } from './uverbs-layouts.ts';
import { destroyMR, destroyPD } from './uverbs-memory.ts';
import type {
  AsyncQueue,
  ChannelQueue,
  EventElement,
  UverbsObject,
  UverbsObjectOf,
} from './uverbs-objects.ts';
import { destroyQP, ringDoorbell } from './uverbs-queue-pairs.ts';
import { destroyCQ, destroySRQ } from './uverbs-queues.ts';

/** Octets of the payload of an mmap request. */
const MMAP_PAYLOAD_BYTES = 8;
/** Events of the device that may wait, see `UNREAD_MAX` of the objects. */
const DEVICE_EVENTS_UNREAD_MAX = 64;
/** The element of a port's events: its number. */
const PORT_ELEMENT = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

/** See the module's comment. */
export class UverbsFile implements KernelFile {
  readonly kind = 'uverbs';
  readonly ownQueue = undefined;
  readonly number: number;
  readonly client: KernelClient;
  readonly services: KernelServices;
  readonly device: Adapter;
  readonly rings: RingMappings;
  readonly asyncQueue: AsyncQueue;
  readonly channels = new Map<number, ChannelQueue>();
  /** GET_CONTEXT was called: the other commands are open. */
  hasContext = false;
  /** Commands that may have ended the work of a queue pair. */
  workCommands = 0;
  readonly #objects = new HandleSpace<UverbsObject>();
  readonly #ringMemory: DaemonMemory;
  #deviceEventsUnread = 0;

  /** ENODEV for a device that the host does not have; ENOMEM beyond the quota. */
  constructor(parts: KernelFileParts) {
    const { number, client, services, deviceIndex } = parts;
    const device = services.host.devices[deviceIndex];
    if (device === undefined) throw new VerbsError('ENODEV', `no device has index ${deviceIndex}`);
    client.ledger.assertRoom('context');
    client.ledger.note('context', 1);
    this.number = number;
    this.client = client;
    this.services = services;
    this.device = device;
    this.#ringMemory = new DaemonMemory(client.credentials, ['shared'], () => 0);
    this.rings = new RingMappings(this.#ringMemory, client.ledger);
    this.asyncQueue = services.createQueue(client);
    EventRouter.of(services.host).add(this);
  }

  /** See `KernelFile`. */
  execute(request: ShimRequest, caller: KernelCaller): KernelReply {
    switch (request.op) {
      case ShimOp.doorbell:
        return ringDoorbell(this, request.argument);
      case ShimOp.write:
        try {
          return executeWrite(this, request.payload, caller);
        } finally {
          this.services.host.drain();
        }
      case ShimOp.pop:
        return this.#pop(request.argument);
      case ShimOp.mmap:
        return this.#map(request);
      case ShimOp.child:
        return DONE;
      default:
        throw new IpcFormatError(`operation ${request.op} on a uverbs file`);
    }
  }

  /** See `MemoryUser`. */
  workEpoch(): number {
    let failed = 0;
    for (const object of this.#objects.values()) {
      if (object.kind !== 'qp') continue;
      const { state } = object.qp;
      if (state === QPState.ERR || state === QPState.SQE) failed += 1;
    }
    return this.workCommands * 0x1_0000 + failed;
  }

  /** Last close: dependants before what they depend on. */
  close(): void {
    EventRouter.of(this.services.host).remove(this);
    for (const object of this.ofKind('qp')) destroyQP(this, object);
    for (const object of this.ofKind('srq')) destroySRQ(this, object);
    for (const object of this.ofKind('cq')) destroyCQ(this, object);
    for (const object of this.ofKind('mr')) destroyMR(this, object);
    for (const object of this.ofKind('pd')) destroyPD(this, object);
    for (const channel of [...this.channels.values()]) channel.end();
    this.asyncQueue.end();
    this.#ringMemory.close();
    this.client.ledger.note('context', -1);
  }

  /** From the router: an event of a whole device. */
  handleDeviceEvent(device: Adapter, event: HostAsyncEvent): void {
    if (device !== this.device || this.#deviceEventsUnread >= DEVICE_EVENTS_UNREAD_MAX) return;
    this.#deviceEventsUnread += 1;
    this.asyncQueue.push({ element: PORT_ELEMENT, eventType: event.event }, undefined);
  }

  // Objects

  /** Adds an object under the next handle. ENOMEM beyond the quota; nothing stays if `make` throws. */
  add<T extends UverbsObject>(kind: ObjectKind, make: (handle: number) => T): T {
    const { ledger } = this.client;
    ledger.assertRoom(kind);
    const object = this.#objects.add(make);
    ledger.note(kind, 1);
    return object;
  }

  /** Takes an object out; what it holds is the caller's to give back. */
  remove(object: UverbsObject): void {
    this.#objects.remove(object.handle);
    this.client.ledger.note(object.kind, -1);
  }

  /** The object of a handle. ENOENT when there is none; EINVAL when it is of another kind. */
  expect<K extends UverbsObject['kind']>(kind: K, handle: number): UverbsObjectOf<K> {
    const object = this.#objects.find(handle);
    if (object === undefined) throw new VerbsError('ENOENT', `no object has handle ${handle}`);
    if (!isKind(object, kind)) {
      throw new VerbsError('EINVAL', `handle ${handle} is a ${object.kind}, no ${kind}`);
    }
    return object;
  }

  /** All objects of a kind. */
  ofKind<K extends UverbsObject['kind']>(kind: K): UverbsObjectOf<K>[] {
    const found: UverbsObjectOf<K>[] = [];
    for (const object of this.#objects.values()) if (isKind(object, kind)) found.push(object);
    return found;
  }

  /** Queue pairs, regions and completion queues, for those who look at the daemon. */
  objects(): ObjectSummaries {
    const { id, credentials, program } = this.client;
    const { name: device } = this.device;
    const of = ({ handle }: UverbsObject): ObjectOwner => {
      return { client: id, pid: credentials.pid, program, device, handle };
    };
    return {
      qps: this.ofKind('qp').map((object) => ({ ...of(object), ...qpFields(object.qp) })),
      mrs: this.ofKind('mr').map((object) => ({ ...of(object), ...mrFields(object.mr) })),
      cqs: this.ofKind('cq').map((object) => ({ ...of(object), entries: object.cq.count })),
    };
  }

  /** Makes a completion channel. ENOMEM beyond the quota. */
  createChannel(): ChannelQueue {
    const { ledger } = this.client;
    ledger.assertRoom('channel');
    const channel: ChannelQueue = this.services.createQueue(this.client);
    this.channels.set(channel.number, channel);
    ledger.note('channel', 1);
    const { onEnded } = channel;
    channel.onEnded = () => {
      onEnded();
      this.channels.delete(channel.number);
      ledger.note('channel', -1);
    };
    return channel;
  }

  /** Removes the undelivered asynchronous events of an object; the queues that this emptied. */
  purgeAsync(object: EventElement): number[] {
    object.asyncUnread = 0;
    return this.asyncQueue.purge(object) ? [this.asyncQueue.number] : [];
  }

  // Operations

  #pop(number: number): KernelReply {
    if (number === this.asyncQueue.number) return this.#popAsync();
    const channel = this.channels.get(number);
    if (channel === undefined) throw new VerbsError('EBADF', 'no event queue of this file');
    const taken = channel.pop();
    if (taken === undefined) throw new VerbsError('EAGAIN');
    const { record: cq, emptied } = taken;
    cq.completionsDelivered += 1;
    cq.completionsUnread -= 1;
    const response = new Uint8Array(COMPLETION_EVENT_BYTES);
    response.set(cq.userHandle);
    return { status: 0, flags: emptied ? ReplyFlag.emptied : 0, response };
  }

  #popAsync(): KernelReply {
    const taken = this.asyncQueue.pop();
    if (taken === undefined) throw new VerbsError('EAGAIN');
    const { record, owner, emptied } = taken;
    if (owner === undefined) this.#deviceEventsUnread -= 1;
    else {
      owner.asyncDelivered += 1;
      owner.asyncUnread -= 1;
    }
    const response = new Uint8Array(ASYNC_EVENT_BYTES);
    response.set(record.element);
    new DataView(response.buffer).setUint32(8, record.eventType, true);
    return { status: 0, flags: emptied ? ReplyFlag.emptied : 0, response };
  }

  #map({ argument, payload }: ShimRequest): KernelReply {
    if (payload.length !== MMAP_PAYLOAD_BYTES) throw new IpcFormatError('an mmap without a length');
    const fields = new DataView(payload.buffer, payload.byteOffset, MMAP_PAYLOAD_BYTES);
    const lengthBytes = fields.getUint32(4, true) * 2 ** 32 + fields.getUint32(0, true);
    return this.rings.map(argument, lengthBytes);
  }
}

function isKind<K extends UverbsObject['kind']>(
  object: UverbsObject,
  kind: K,
): object is UverbsObjectOf<K> {
  return object.kind === kind;
}
