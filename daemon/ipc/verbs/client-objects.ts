/** The objects of one client, by handle. */
import type { Handle } from '#contract/protocol/commands';
import type { ProcessAllocation, SharedAllocation } from '#daemon/clients/objects/client-memory';
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

/** Receives the events of a client's objects. */
export interface ClientEvents {
  handleCompletion(object: CqObject): void;
  handleObjectEvent(object: CqObject | QpObject | SrqObject, event: DeviceAsyncEvent): void;
  handleFailure(object: QpObject, failure: DeviceFailure): void;
  readonly user: number | object | undefined;
  handleCmEvent(owner: IdObject, event: ServedCmEvent, host: DeviceHost): void;
}

/**
 * An object with a handle. It is also the tag of its device object, which routes events to the
 * client. `users` counts the objects that keep it from being destroyed.
 */
abstract class ClientObject extends EventSink {
  abstract readonly kind: ObjectKind;
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

/** An opened device. */
export class ContextObject extends ClientObject {
  readonly kind = 'context';
  readonly host: DeviceHost;
  readonly device: ServedDevice;

  constructor(client: ClientEvents, handle: Handle, host: DeviceHost, device: ServedDevice) {
    super(client, handle);
    this.host = host;
    this.device = device;
  }
}

export class PdObject extends ClientObject {
  readonly kind = 'pd';
  readonly context: ContextObject;
  readonly pd: DevicePD;

  constructor(client: ClientEvents, handle: Handle, context: ContextObject, pd: DevicePD) {
    super(client, handle);
    this.context = context;
    this.pd = pd;
  }
}

/** Shared memory for registrations. */
export class BufferObject extends ClientObject {
  readonly kind = 'buffer';
  readonly memory: SharedAllocation;
  /** Local address of the first byte, if the client gives none. */
  readonly address: number;

  constructor(client: ClientEvents, handle: Handle, memory: SharedAllocation, address: number) {
    super(client, handle);
    this.memory = memory;
    this.address = address;
  }
}

/** A memory region and its memory: a shared buffer or a piece of the process. */
export class MrObject extends ClientObject {
  readonly kind = 'mr';
  readonly pd: PdObject;
  readonly mr: DeviceMR;
  readonly source: BufferObject | ProcessAllocation;
  readonly reason: string;

  constructor(
    client: ClientEvents,
    handle: Handle,
    parts: { pd: PdObject; mr: DeviceMR; source: BufferObject | ProcessAllocation; reason: string },
  ) {
    super(client, handle);
    this.pd = parts.pd;
    this.mr = parts.mr;
    this.source = parts.source;
    this.reason = parts.reason;
  }
}

export class MwObject extends ClientObject {
  readonly kind = 'mw';
  readonly pd: PdObject;
  readonly mw: DeviceMW;

  constructor(client: ClientEvents, handle: Handle, pd: PdObject, mw: DeviceMW) {
    super(client, handle);
    this.pd = pd;
    this.mw = mw;
  }
}

export class AhObject extends ClientObject {
  readonly kind = 'ah';
  readonly pd: PdObject;
  readonly ah: DeviceAH;

  constructor(client: ClientEvents, handle: Handle, pd: PdObject, ah: DeviceAH) {
    super(client, handle);
    this.pd = pd;
    this.ah = ah;
  }
}

/** A completion channel. */
export class ChannelObject extends ClientObject {
  readonly kind = 'channel';
  readonly context: ContextObject;
  readonly token: string;

  constructor(client: ClientEvents, handle: Handle, context: ContextObject, token: string) {
    super(client, handle);
    this.context = context;
    this.token = token;
  }
}

export class CqObject extends ClientObject {
  readonly kind = 'cq';
  readonly context: ContextObject;
  readonly cq: DeviceCQ;
  readonly ring: SharedAllocation;
  readonly channel: ChannelObject | undefined;

  constructor(
    client: ClientEvents,
    handle: Handle,
    parts: {
      context: ContextObject;
      cq: DeviceCQ;
      ring: SharedAllocation;
      channel: ChannelObject | undefined;
    },
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

export class SrqObject extends ClientObject {
  readonly kind = 'srq';
  readonly pd: PdObject;
  readonly host: DeviceHost;
  readonly srq: DeviceSRQ;
  readonly ring: SharedAllocation;

  constructor(
    client: ClientEvents,
    handle: Handle,
    parts: { pd: PdObject; srq: DeviceSRQ; ring: SharedAllocation },
  ) {
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

export class QpObject extends ClientObject {
  readonly kind = 'qp';
  readonly pd: PdObject;
  /** The device's host; cached here because every doorbell needs it. */
  readonly host: DeviceHost;
  readonly qp: DeviceQP;
  readonly ring: SharedAllocation;

  constructor(
    client: ClientEvents,
    handle: Handle,
    parts: { pd: PdObject; qp: DeviceQP; ring: SharedAllocation },
  ) {
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
export class IdObject extends ClientObject {
  readonly kind = 'id';
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
