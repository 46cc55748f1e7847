/** The objects of one client and the table that names them. */
import type { Handle } from '../../../verbs-api/contract/commands.ts';
import { VerbsError } from '../../../verbs-api/contract/errors.ts';
import type {
  DeviceBackend,
  DeviceCQ,
  DeviceHost,
  DeviceMR,
  DeviceMW,
  DevicePD,
  DeviceQP,
  DeviceSRQ,
  ServedId,
} from '../../adapter/device-backend.ts';
import type { ClientContext } from './client-context.ts';
import type { ProcessAllocation, SharedAllocation } from './client-memory.ts';
import type { ObjectKind } from './quotas.ts';

/**
 * An object with a handle. It is also the tag of its NIC object, by which events find the client.
 * `users` counts the objects that keep it from being destroyed.
 */
abstract class ClientObject {
  abstract readonly kind: ObjectKind;
  readonly client: ClientContext;
  readonly handle: Handle;
  users = 0;

  constructor(client: ClientContext, handle: Handle) {
    this.client = client;
    this.handle = handle;
  }
}

/** An opened device. */
export class ContextObject extends ClientObject {
  readonly kind = 'context';
  readonly host: DeviceHost;
  readonly device: DeviceBackend;

  constructor(client: ClientContext, handle: Handle, host: DeviceHost, device: DeviceBackend) {
    super(client, handle);
    this.host = host;
    this.device = device;
  }
}

/** A protection domain. */
export class PdObject extends ClientObject {
  readonly kind = 'pd';
  readonly context: ContextObject;
  readonly pd: DevicePD;

  constructor(client: ClientContext, handle: Handle, context: ContextObject, pd: DevicePD) {
    super(client, handle);
    this.context = context;
    this.pd = pd;
  }
}

/** Shared memory for registrations. */
export class BufferObject extends ClientObject {
  readonly kind = 'buffer';
  readonly memory: SharedAllocation;
  /** Local address of the first octet, where the client names none. */
  readonly address: number;

  constructor(client: ClientContext, handle: Handle, memory: SharedAllocation, address: number) {
    super(client, handle);
    this.memory = memory;
    this.address = address;
  }
}

/** A memory region, with what is behind it: a shared buffer or a piece of the process. */
export class MrObject extends ClientObject {
  readonly kind = 'mr';
  readonly pd: PdObject;
  readonly mr: DeviceMR;
  readonly source: BufferObject | ProcessAllocation;
  readonly reason: string;

  constructor(
    client: ClientContext,
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

/** A memory window. */
export class MwObject extends ClientObject {
  readonly kind = 'mw';
  readonly pd: PdObject;
  readonly mw: DeviceMW;

  constructor(client: ClientContext, handle: Handle, pd: PdObject, mw: DeviceMW) {
    super(client, handle);
    this.pd = pd;
    this.mw = mw;
  }
}

/** A completion channel. */
export class ChannelObject extends ClientObject {
  readonly kind = 'channel';
  readonly context: ContextObject;
  readonly token: string;

  constructor(client: ClientContext, handle: Handle, context: ContextObject, token: string) {
    super(client, handle);
    this.context = context;
    this.token = token;
  }
}

/** A completion queue. */
export class CqObject extends ClientObject {
  readonly kind = 'cq';
  readonly context: ContextObject;
  readonly cq: DeviceCQ;
  readonly ring: SharedAllocation;
  readonly channel: ChannelObject | undefined;

  constructor(
    client: ClientContext,
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
}

/** A shared receive queue. */
export class SrqObject extends ClientObject {
  readonly kind = 'srq';
  readonly pd: PdObject;
  readonly host: DeviceHost;
  readonly srq: DeviceSRQ;
  readonly ring: SharedAllocation;

  constructor(
    client: ClientContext,
    handle: Handle,
    parts: { pd: PdObject; srq: DeviceSRQ; ring: SharedAllocation },
  ) {
    super(client, handle);
    this.pd = parts.pd;
    this.host = parts.pd.context.host;
    this.srq = parts.srq;
    this.ring = parts.ring;
  }
}

/** A queue pair. */
export class QpObject extends ClientObject {
  readonly kind = 'qp';
  readonly pd: PdObject;
  /** That of the device; here, since every doorbell asks for it. */
  readonly host: DeviceHost;
  readonly qp: DeviceQP;
  readonly ring: SharedAllocation;

  constructor(
    client: ClientContext,
    handle: Handle,
    parts: { pd: PdObject; qp: DeviceQP; ring: SharedAllocation },
  ) {
    super(client, handle);
    this.pd = parts.pd;
    this.host = parts.pd.context.host;
    this.qp = parts.qp;
    this.ring = parts.ring;
  }
}

/**
 * A connection id. No host is decided before an address is: until then `id` is one of the emulated
 * devices, and an id that listens on any address may listen on a second host as well.
 */
export class IdObject extends ClientObject {
  readonly kind = 'id';
  host: DeviceHost;
  id: ServedId;
  /** It stays with its host from here on. */
  listening = false;
  second: { readonly host: DeviceHost; readonly id: ServedId } | undefined = undefined;

  constructor(client: ClientContext, handle: Handle, host: DeviceHost, id: ServedId) {
    super(client, handle);
    this.host = host;
    this.id = id;
  }
}

/** Any object with a handle. */
export type AnyObject =
  | ContextObject
  | PdObject
  | BufferObject
  | MrObject
  | MwObject
  | ChannelObject
  | CqObject
  | SrqObject
  | QpObject
  | IdObject;

/** The object type of a kind. */
export type ObjectOf<K extends ObjectKind> = Extract<AnyObject, { readonly kind: K }>;

/** Handles of one client: one namespace for all kinds, the lowest free number first, from 1. */
export class HandleTable {
  readonly #objects: (AnyObject | undefined)[] = [undefined];
  /** No free number is below it. */
  #lowest = 1;
  #size = 0;

  /** Objects in the table. */
  get size(): number {
    return this.#size;
  }

  /** The number that the next object gets. */
  get nextHandle(): Handle {
    while (this.#objects[this.#lowest] !== undefined) this.#lowest += 1;
    return this.#lowest;
  }

  /** Adds an object that was made with `nextHandle`. */
  add(object: AnyObject): void {
    this.#objects[object.handle] = object;
    this.#size += 1;
  }

  remove(object: AnyObject): void {
    if (this.#objects[object.handle] !== object) return;
    this.#objects[object.handle] = undefined;
    this.#lowest = Math.min(this.#lowest, object.handle);
    this.#size -= 1;
  }

  /** The object of a handle, whatever it is. */
  find(handle: Handle): AnyObject | undefined {
    return this.#objects[handle];
  }

  /** The object of a handle. ENOENT when there is none; EINVAL when it is of another kind. */
  expect<K extends ObjectKind>(kind: K, handle: Handle): ObjectOf<K> {
    const object = this.#objects[handle];
    if (object === undefined)
      throw new VerbsError('ENOENT', `no object of kind ${kind} has handle ${handle}`);
    if (!isKind(object, kind)) {
      throw new VerbsError('EINVAL', `handle ${handle} is of kind ${object.kind}, not ${kind}`);
    }
    return object;
  }

  /** All objects of a kind. */
  ofKind<K extends ObjectKind>(kind: K): ObjectOf<K>[] {
    const found: ObjectOf<K>[] = [];
    for (const object of this.#objects) {
      if (object !== undefined && isKind(object, kind)) found.push(object);
    }
    return found;
  }
}

function isKind<K extends ObjectKind>(object: AnyObject, kind: K): object is ObjectOf<K> {
  return object.kind === kind;
}
