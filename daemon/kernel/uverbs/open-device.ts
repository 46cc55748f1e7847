/**
 * The contents of one open of a uverbs device: its objects in one namespace of handles, its event
 * queues and the rings that the program maps. Commands operate on it; `file.ts` calls them.
 */
import { assert } from '#base/assert';
import type { ObjectOwner } from '#contract/protocol/control';
import { isVerbsError, VerbsError } from '#contract/verbs/errors';
import type { DeviceResources, ResourceOwner } from '#daemon/clients/objects/device-resources';
import type { DeviceEventSink } from '#daemon/clients/objects/event-router';
import { eventReport } from '#daemon/clients/objects/failure-report';
import { ObjectRegistry } from '#daemon/clients/objects/object-registry';
import { mrSummary, qpSummary } from '#daemon/clients/objects/object-summaries';
import type { ObjectWindow } from '#daemon/clients/objects/object-window';
import { QueueRings } from '#daemon/clients/objects/queue-rings';
import { WorkEpoch } from '#daemon/clients/objects/work-epoch';
import type { EmulatedDevice } from '#daemon/host/emulated-device';
import { hostAddresses } from '#daemon/host/host-addresses';
import type { HostAsyncEvent } from '#daemon/host/nic-effects';
import type { GidTableEntry } from '#daemon/host/roce/gid-table';
import { yieldCore } from '#native-bridge/libc/scheduling';
import { bytesToTake } from '../event-queue.ts';
import { EVENT_RING_BYTES, EventRing } from '../event-ring.ts';
import type { KernelClient } from '../kernel-client.ts';
import type { KernelCaller, KernelFileParts, KernelReply, KernelServices } from '../kernel-file.ts';
import { type Ring, RingMappings } from '../ring-mapping.ts';
import { ReplyFlag } from '../shim-protocol.ts';
import { newReply } from '../struct-fields.ts';
import { ASYNC_EVENT_BYTES, COMPLETION_EVENT_BYTES } from './layouts.ts';
import type { AsyncQueue, ChannelQueue, UverbsEventObject, UverbsObject } from './objects.ts';
import type { Persona } from './persona.ts';
import { PERSONAS } from './personas.ts';
import { SendWatch } from './send-watch.ts';

/** Limit of unread events of the device; see `UNREAD_MAX` of the objects. */
const DEVICE_EVENTS_UNREAD_MAX = 64;
/** The element of port events: the port number. */
const PORT_ELEMENT = Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0);

export class OpenDevice implements DeviceEventSink {
  readonly number: number;
  readonly client: KernelClient;
  readonly services: KernelServices;
  readonly device: EmulatedDevice;
  /** How the device presents itself to its rdma-core provider. */
  readonly persona: Persona;
  readonly table: ObjectRegistry<UverbsObject>;
  readonly mappings: RingMappings;
  readonly rings: QueueRings<Ring>;
  readonly asyncQueue: AsyncQueue;
  readonly channels = new Map<number, ChannelQueue>();
  readonly epoch = new WorkEpoch();
  readonly watch: SendWatch;
  readonly #resources: DeviceResources;
  readonly #owner: ResourceOwner;
  /** Completion events of the queue that the last command destroyed, if any. */
  eventsOfDestroyed = 0;
  #hasContext = false;
  #deviceEventsUnread = 0;

  /** ENODEV for a device that the host lacks; ENOMEM beyond the quota. */
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
    this.persona = PERSONAS[device.transport];
    this.#resources = services.resources(deviceIndex);
    this.#owner = { pid: client.credentials.pid, context: this };
    this.table = new ObjectRegistry(client.ledger, 0, () => device.name, {
      added: (object) => this.#resources.add(deviceObject(object), this.#owner),
      removed: (object) => this.#removed(deviceObject(object)),
    });
    const onFound = () => services.linger.end();
    this.watch = new SendWatch(services.host, { yieldCore, onFound });
    this.mappings = new RingMappings(client.ledger);
    this.rings = new QueueRings(this.mappings, client.ledger);
    this.asyncQueue = services.createQueue(client);
    services.events.add(this);
  }

  #removed(object: object): void {
    this.#resources.remove(object);
    this.client.judge(object, this.device.name);
  }

  /** Ends the event queues, before the objects: then no records of objects must be searched. */
  protected endQueues(): void {
    for (const channel of [...this.channels.values()]) channel.end();
    this.asyncQueue.end();
  }

  /** Releases the rings, once the objects are destroyed. */
  protected release(): void {
    this.mappings.close();
    if (this.#hasContext) this.#resources.removeContext(this);
    this.client.ledger.note('context', -1);
  }

  workEpoch(): number {
    return this.epoch.value(this.table.ofKind('qp'));
  }

  handleDeviceEvent(device: EmulatedDevice, event: HostAsyncEvent): void {
    if (device !== this.device || this.#deviceEventsUnread >= DEVICE_EVENTS_UNREAD_MAX) return;
    const report = eventReport(event, device.name, false);
    if (report !== undefined) this.client.record(report);
    this.#deviceEventsUnread += 1;
    this.asyncQueue.push({ element: PORT_ELEMENT, eventType: event.event }, undefined);
  }

  // Objects

  /** Recounts the objects, for tests. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.table.assertDeepInvariants();
    this.mappings.assertDeepInvariants();
    assert(this.#deviceEventsUnread >= 0, 'unread device events < 0');
  }

  /** Unread records of all objects, recounted for tests. */
  get unreadEvents(): number {
    const { table } = this;
    const [qps, srqs, cqs] = [table.ofKind('qp'), table.ofKind('srq'), table.ofKind('cq')];
    let unread = 0;
    for (const { asyncUnread } of [...qps, ...srqs, ...cqs]) unread += asyncUnread;
    for (const { completionsUnread } of cqs) unread += completionsUnread;
    return unread;
  }

  /** Offers its queue pairs, regions or completion queues for a reply. */
  listObjects(window: ObjectWindow): void {
    const { table } = this;
    const { id, credentials, program } = this.client;
    const { pid } = credentials;
    const { name: device } = this.device;
    const of = ({ handle }: UverbsObject): ObjectOwner => {
      return { client: id, pid, program, device, handle };
    };
    const offer = (object: UverbsObject, describe: () => void): void => {
      window.offer(device, pid, () => {
        if (table.find(object.handle) === object) describe();
      });
    };
    switch (window.kind) {
      case 'qps':
        for (const object of table.ofKind('qp')) {
          offer(object, () => window.qps.push(qpSummary(of(object), object.qp)));
        }
        break;
      case 'mrs':
        for (const object of table.ofKind('mr')) {
          offer(object, () => window.mrs.push(mrSummary(of(object), object.mr)));
        }
        break;
      case 'cqs':
        for (const object of table.ofKind('cq')) {
          offer(object, () => window.cqs.push({ ...of(object), entries: object.cq.count }));
        }
    }
  }

  /** True after GET_CONTEXT, which other commands require. */
  get hasContext(): boolean {
    return this.#hasContext;
  }

  /** GET_CONTEXT: lists its objects from now on. */
  giveContext(): void {
    this.#hasContext = true;
    this.#resources.addContext(this.#owner);
  }

  /** Creates a completion channel. ENOMEM beyond the quota. */
  createChannel(): ChannelQueue {
    const { ledger } = this.client;
    ledger.assertRoom('channel');
    const channel: ChannelQueue = this.services.createQueue(this.client);
    const ring = this.#showEvents(channel);
    this.channels.set(channel.number, channel);
    ledger.note('channel', 1);
    const { onEnded } = channel;
    channel.onEnded = () => {
      onEnded();
      if (ring !== undefined) this.mappings.release(ring);
      this.channels.delete(channel.number);
      ledger.note('channel', -1);
    };
    return channel;
  }

  /**
   * Removes the undelivered asynchronous events of an object. Returns its queue's number once for each byte to
   * take from the descriptor.
   */
  purgeAsync(object: UverbsEventObject): number[] {
    const bytes = this.asyncQueue.purge(object);
    object.forgetEvents();
    return bytesToTake(this.asyncQueue, bytes);
  }

  /** The GID table of the device's port. Its length does not depend on the host's addresses. */
  gids(): readonly GidTableEntry[] {
    return this.persona.gids(this.device.info, hostAddresses());
  }

  /** A response to a command: `coreBytes` and the persona's private part. */
  newReply(command: number, coreBytes: number): ReturnType<typeof newReply> {
    return newReply(coreBytes, this.persona.privateBytes[command]?.response ?? 0);
  }

  // Operations

  /** The oldest event of a queue. EBADF if there is no such queue, EAGAIN if it is empty. */
  protected pop(number: number): KernelReply {
    if (number === this.asyncQueue.number) return this.#popAsync();
    const channel = this.channels.get(number);
    if (channel === undefined) throw new VerbsError('EBADF', 'no event queue of this file');
    const taken = channel.pop();
    if (taken === undefined) throw new VerbsError('EAGAIN', 'no completion event is pending');
    const { record: cq, bytes } = taken;
    cq.noteRead();
    const response = new Uint8Array(COMPLETION_EVENT_BYTES);
    response.set(cq.userHandle);
    return { status: 0, flags: bytes > 0 ? ReplyFlag.takeByte : 0, response };
  }

  /** The ring for a channel's events; undefined beyond the quota: the program then requests each event. */
  #showEvents(channel: ChannelQueue): Ring | undefined {
    try {
      const memory = this.mappings.create(EVENT_RING_BYTES, EVENT_RING_BYTES);
      channel.showIn({
        ring: new EventRing(memory.view),
        place: memory.key,
        bytesOf: (cq) => cq.userHandle,
        onTaken: (cq) => cq.noteRead(),
      });
      return memory;
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return undefined;
    }
  }

  #popAsync(): KernelReply {
    const taken = this.asyncQueue.pop();
    if (taken === undefined) throw new VerbsError('EAGAIN', 'no asynchronous event is pending');
    const { record, owner, bytes } = taken;
    if (owner === undefined) this.#deviceEventsUnread -= 1;
    else owner.noteAsyncRead();
    const response = new Uint8Array(ASYNC_EVENT_BYTES);
    response.set(record.element);
    new DataView(response.buffer).setUint32(8, record.eventType, true);
    return { status: 0, flags: bytes > 0 ? ReplyFlag.takeByte : 0, response };
  }
}

/** The NIC's object for an object of a file. */
function deviceObject(object: UverbsObject): object {
  switch (object.kind) {
    case 'pd':
      return object.pd;
    case 'mr':
      return object.mr;
    case 'mw':
      return object.mw;
    case 'ah':
      return object.ah;
    case 'cq':
      return object.cq;
    case 'srq':
      return object.srq;
    case 'qp':
      return object.qp;
    default:
      return object satisfies never;
  }
}

/** Arguments of a command; borrowed until it returns. */
export interface CommandCall {
  readonly file: OpenDevice;
  /** All bytes of the write. Its size has been checked against the command's. */
  readonly fields: DataView;
  readonly bytes: Uint8Array;
  readonly caller: KernelCaller;
  /** Size of the program's response buffer, in bytes. */
  readonly outBytes: number;
}
