/** Finds the client that an event of the host belongs to. */

import type { Adapter } from '../../adapter/device-adapter.ts';
import type { HostAsyncEvent, RnicHost } from '../../adapter/rnic-host.ts';
import type { ClientContext } from './client-context.ts';
import { CqObject, IdObject, QpObject, SrqObject } from './client-objects.ts';

/** The clients of one host; it sets the host's callbacks. */
export class EventRouter {
  readonly #clients = new Set<ClientContext>();

  /** One router for each host, made by its first client: a host has one set of callbacks. */
  static readonly #routers = new WeakMap<RnicHost, EventRouter>();

  static of(host: RnicHost): EventRouter {
    const known = EventRouter.#routers.get(host);
    if (known !== undefined) return known;
    const router = new EventRouter(host);
    EventRouter.#routers.set(host, router);
    return router;
  }

  private constructor(host: RnicHost) {
    host.onCompletion = (cq) => {
      if (cq.tag instanceof CqObject) cq.tag.client.handleCompletion(cq.tag);
    };
    host.onCmEvent = (id, event) => {
      // On a connect request the new id has its listener's tag.
      if (id.tag instanceof IdObject) id.tag.client.handleCmEvent(id.tag, event);
    };
    host.onAsync = (device, event) => this.#async(device, event);
  }

  add(client: ClientContext): void {
    this.#clients.add(client);
  }

  remove(client: ClientContext): void {
    this.#clients.delete(client);
  }

  #async(device: Adapter, event: HostAsyncEvent): void {
    const { element } = event;
    if (element === undefined) {
      for (const client of this.#clients) client.handleDeviceEvent(device, event);
      return;
    }
    const { tag } = element;
    if (tag instanceof CqObject || tag instanceof QpObject || tag instanceof SrqObject) {
      tag.client.handleElementEvent(tag, event);
    }
  }
}
