/** The objects of one client, by handle. */
import type { Handle } from '#contract/protocol/commands';
import type { ProcessAllocation, SharedAllocation } from '#daemon/clients/objects/client-memory';
import type { ListedId } from '#daemon/clients/objects/device-resources';
import { EventSink } from '#daemon/clients/objects/event-router';
import type { ObjectKind } from '#daemon/clients/objects/quotas';
import type {
  DeviceAH,
  DeviceAsyncEvent,
  DeviceCQ,
  DeviceFailure,
  DeviceHost,
  DeviceMR,
  DeviceMW,
  DevicePD,
  DeviceQP,
  DeviceSRQ,
  ServedCmEvent,
  ServedDevice,
  ServedId,
} from '#daemon/host/served-device';

export interface ClientEvents {
  handleCompletion(object: CqObject): void;
  handleObjectEvent(object: CqObject | QpObject | SrqObject, event: DeviceAsyncEvent): void;
  handleFailure(object: QpObject, failure: DeviceFailure): void;
  readonly user: number | object | undefined;
  handleCmEvent(owner: IdObject, event: ServedCmEvent, host: DeviceHost): void;
}

/** An object with a handle. `users` counts the objects that keep it from being destroyed. */
interface Held<K extends ObjectKind> {
  readonly kind: K;
  readonly handle: Handle;
  users: number;
}

/** An opened device. */
export interface ContextObject extends Held<'context'> {
  readonly host: DeviceHost;
  readonly device: ServedDevice;
}

export interface PdObject extends Held<'pd'> {
  readonly context: ContextObject;
  readonly pd: DevicePD;
}

/** Shared memory for registrations. */
export interface BufferObject extends Held<'buffer'> {
  readonly memory: SharedAllocation;
  /** Local address of the first byte, if the client gives none. */
  readonly address: number;
}

/** A memory region and its memory: a shared buffer or a piece of the process. */
export interface MrObject extends Held<'mr'> {
  readonly pd: PdObject;
  readonly mr: DeviceMR;
  readonly source: BufferObject | ProcessAllocation;
  readonly reason: string;
}

export interface MwObject extends Held<'mw'> {
  readonly pd: PdObject;
  readonly mw: DeviceMW;
}

export interface AhObject extends Held<'ah'> {
  readonly pd: PdObject;
  readonly ah: DeviceAH;
}

/** A completion channel. */
export interface ChannelObject extends Held<'channel'> {
  readonly context: ContextObject;
  readonly token: string;
}

/** The tag of a device object, which routes its events to the client. */
abstract class TagObject extends EventSink {
  readonly client: ClientEvents;
  readonly handle: Handle;
  users = 0;

  constructor(client: ClientEvents, handle: Handle) {
    super();
    this.client = client;
    this.handle = handle;
  }

  override get user(): number | object | undefined {
    return this.client.user;
  }
}

export class CqObject extends TagObject {
  readonly kind = 'cq';
  readonly context: ContextObject;
  readonly cq: DeviceCQ;
  readonly ring: SharedAllocation;
  readonly channel: ChannelObject | undefined;

  constructor(
    client: ClientEvents,
    handle: Handle,
    parts: Pick<CqObject, 'context' | 'cq' | 'ring' | 'channel'>,
  ) {
    super(client, handle);
    this.context = parts.context;
    this.cq = parts.cq;
    this.ring = parts.ring;
    this.channel = parts.channel;
  }

  override handleCompletion(): void {
    this.client.handleCompletion(this);
  }

  override handleObjectEvent(event: DeviceAsyncEvent): void {
    this.client.handleObjectEvent(this, event);
  }
}

export class SrqObject extends TagObject {
  readonly kind = 'srq';
  readonly pd: PdObject;
  readonly host: DeviceHost;
  readonly srq: DeviceSRQ;
  readonly ring: SharedAllocation;

  constructor(client: ClientEvents, handle: Handle, parts: Pick<SrqObject, 'pd' | 'srq' | 'ring'>) {
    super(client, handle);
    this.pd = parts.pd;
    this.host = parts.pd.context.host;
    this.srq = parts.srq;
    this.ring = parts.ring;
  }

  override handleObjectEvent(event: DeviceAsyncEvent): void {
    this.client.handleObjectEvent(this, event);
  }
}

export class QpObject extends TagObject {
  readonly kind = 'qp';
  readonly pd: PdObject;
  /** The device's host; cached here because every doorbell needs it. */
  readonly host: DeviceHost;
  readonly qp: DeviceQP;
  readonly ring: SharedAllocation;

  constructor(client: ClientEvents, handle: Handle, parts: Pick<QpObject, 'pd' | 'qp' | 'ring'>) {
    super(client, handle);
    this.pd = parts.pd;
    this.host = parts.pd.context.host;
    this.qp = parts.qp;
    this.ring = parts.ring;
  }

  override handleFailure(failure: DeviceFailure): void {
    this.client.handleFailure(this, failure);
  }

  override handleObjectEvent(event: DeviceAsyncEvent): void {
    this.client.handleObjectEvent(this, event);
  }
}

/**
 * A connection id. Its host is decided when it gets an address. Until then `id` belongs to the
 * emulated devices; an id that listens on any address may listen on a second host as well.
 */
export class IdObject extends TagObject implements ListedId {
  readonly kind = 'id';
  /** Process of its program; 0 while it is not listed. */
  pid = 0;
  /** Its number in the list of ids; undefined while it is not listed. */
  listedNumber: number | undefined = undefined;
  host: DeviceHost;
  id: ServedId;
  /** Once true, the id stays with its host. */
  listening = false;
  second: { readonly host: DeviceHost; readonly id: ServedId } | undefined = undefined;

  constructor(client: ClientEvents, handle: Handle, host: DeviceHost, id: ServedId) {
    super(client, handle);
    this.host = host;
    this.id = id;
  }

  /** The program names the queue pair to the device, not to the id. */
  get qpn(): undefined {
    return undefined;
  }

  override handleCmEvent(event: ServedCmEvent, host: DeviceHost): void {
    this.client.handleCmEvent(this, event, host);
  }
}

export type AnyObject =
  | ContextObject
  | PdObject
  | BufferObject
  | MrObject
  | MwObject
  | AhObject
  | ChannelObject
  | CqObject
  | SrqObject
  | QpObject
  | IdObject;

/** The opened device that an object of a NIC belongs to; other objects have none. */
export function contextOf(object?: AnyObject): ContextObject | undefined {
  switch (object?.kind) {
    case 'pd':
    case 'cq':
      return object.context;
    case 'mr':
    case 'mw':
    case 'ah':
    case 'srq':
    case 'qp':
      return object.pd.context;
    default:
      return undefined;
  }
}
