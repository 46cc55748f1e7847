/** Finds the client that an event of the host belongs to. */
import type {
  DeviceAsyncEvent,
  DeviceBackend,
  DeviceHost,
  ServedCmEvent,
} from '../../adapter/device-backend.ts';
import { CqObject, IdObject, QpObject, SrqObject } from './client-objects.ts';

/** Takes the events of a whole device. */
export interface DeviceEventSink {
  handleDeviceEvent(device: DeviceBackend, event: DeviceAsyncEvent): void;
}

/** A tag of NIC objects or ids that takes their events itself. */
export abstract class EventSink {
  /** The armed CQ that carries this tag fired. */
  handleCompletion(): void {}
  /** An asynchronous event of the object that carries this tag. */
  handleElementEvent(_event: DeviceAsyncEvent): void {}
  /** An event of an id that carries this tag; on a connect request, of the listener's new id. */
  handleCmEvent(_event: ServedCmEvent): void {}
}

/** The clients of one host; it sets the host's callbacks. */
export class EventRouter {
  readonly #clients = new Set<DeviceEventSink>();

  /** One router for each host, made by its first client: a host has one set of callbacks. */
  static readonly #routers = new WeakMap<DeviceHost, EventRouter>();

  static of(host: DeviceHost): EventRouter {
    const known = EventRouter.#routers.get(host);
    if (known !== undefined) return known;
    const router = new EventRouter(host);
    EventRouter.#routers.set(host, router);
    return router;
  }

  private constructor(host: DeviceHost) {
    host.onCompletion = (cq) => {
      if (cq.tag instanceof CqObject) cq.tag.client.handleCompletion(cq.tag);
      else if (cq.tag instanceof EventSink) cq.tag.handleCompletion();
    };
    host.onCmEvent = (id, event) => {
      // On a connect request the new id has its listener's tag.
      if (id.tag instanceof IdObject) id.tag.client.handleCmEvent(host, id.tag, event);
      else if (id.tag instanceof EventSink) id.tag.handleCmEvent(event);
    };
    host.onAsync = (device, event) => this.#async(device, event);
  }

  add(client: DeviceEventSink): void {
    this.#clients.add(client);
  }

  remove(client: DeviceEventSink): void {
    this.#clients.delete(client);
  }

  #async(device: DeviceBackend, event: DeviceAsyncEvent): void {
    const { element } = event;
    if (element === undefined) {
      for (const client of this.#clients) client.handleDeviceEvent(device, event);
      return;
    }
    const { tag } = element;
    if (tag instanceof CqObject || tag instanceof QpObject || tag instanceof SrqObject) {
      tag.client.handleElementEvent(tag, event);
    } else if (tag instanceof EventSink) tag.handleElementEvent(event);
  }
}
