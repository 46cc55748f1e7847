/** Delivers device events to the clients that own the objects. */
import type {
  DeviceAsyncEvent,
  DeviceFailure,
  DeviceHost,
  ServedCmEvent,
  ServedDevice,
  TaggedObject,
} from '#daemon/host/served-device';

/** Receives the events of whole devices. */
export interface DeviceEventSink {
  handleDeviceEvent(device: ServedDevice, event: DeviceAsyncEvent): void;
}

/** The tag of a device object or connection id: receives the events of that object. */
export abstract class EventSink {
  /** The armed CQ with this tag fired. */
  handleCompletion(): void {}
  /** An asynchronous event of the object with this tag. */
  handleObjectEvent(_event: DeviceAsyncEvent): void {}
  /** Work of the queue pair with this tag failed. */
  handleFailure(_failure: DeviceFailure): void {}
  /** The user of its program: equal values for the same user. */
  get user(): number | object | undefined {
    return undefined;
  }
  /**
   * An event of the id with this tag, from the host that serves the id. A connect request carries
   * the new id, which has its listener's tag.
   */
  handleCmEvent(_event: ServedCmEvent, _host: DeviceHost): void {}
}

/** Sets the callbacks of its hosts, so a host can have only one router. */
export class EventRouter {
  readonly #sinks = new Set<DeviceEventSink>();

  constructor(hosts: readonly DeviceHost[]) {
    for (const host of hosts) {
      host.onCompletion = ({ tag }) => {
        if (tag instanceof EventSink) tag.handleCompletion();
      };
      host.onCmEvent = ({ tag }, event) => {
        if (tag instanceof EventSink) tag.handleCmEvent(event, host);
      };
      host.onFailure = (_device, failure) => {
        const { tag } = failure.qp;
        if (tag instanceof EventSink) tag.handleFailure(failure);
      };
      host.isSameUser = isSameUser;
      host.onAsync = (device, event) => this.#route(device, event);
    }
  }

  add(sink: DeviceEventSink): void {
    this.#sinks.add(sink);
  }

  remove(sink: DeviceEventSink): void {
    this.#sinks.delete(sink);
  }

  #route(device: ServedDevice, event: DeviceAsyncEvent): void {
    const { object } = event;
    if (object === undefined) {
      for (const sink of this.#sinks) sink.handleDeviceEvent(device, event);
    } else if (object.tag instanceof EventSink) object.tag.handleObjectEvent(event);
  }
}

/** Objects without a user belong to the embedding program. */
function isSameUser({ tag: one }: TaggedObject, { tag: other }: TaggedObject): boolean {
  if (!(one instanceof EventSink && other instanceof EventSink)) return false;
  return one.user === other.user;
}
