/**
 * All native devices that a daemon serves, and the kernel's connection manager. The event loop
 * polls their descriptors; events reach clients in the same turn.
 */
import { AsyncEventType } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import type {
  DeviceAsyncEvent,
  DeviceCQ,
  DeviceHost,
  ServedCmEvent,
  ServedDevice,
  ServedId,
} from '../host/served-device.ts';
import { BridgedConnections } from './bridged-connections.ts';
import { BridgedDevice, type BridgedDeviceInit } from './bridged-device.ts';
import type { BridgedQP } from './bridged-queue-pair.ts';
import type { BridgedSRQ } from './bridged-shared-receive-queue.ts';
import { giveBack } from './give-back.ts';
import type { LowerEventChannel, Watch } from './lower.ts';

/** Events of one descriptor per turn of the event loop. */
const EVENTS_PER_TURN = 64;

/** Options of the host, which takes ownership of devices and channel. */
interface BridgedHostOptions {
  readonly devices: readonly BridgedDeviceInit[];
  readonly channel: LowerEventChannel;
  readonly watch: Watch;
  /** Receives warnings and errors. */
  readonly note: (level: 'debug' | 'warn', device: string | undefined, text: string) => void;
}

export class BridgedHost implements DeviceHost {
  readonly devices: readonly BridgedDevice[];
  readonly cm: BridgedConnections;
  onCompletion: (cq: DeviceCQ) => void = () => {};
  onAsync: (device: ServedDevice, event: DeviceAsyncEvent) => void = () => {};
  onCmEvent: (id: ServedId, event: ServedCmEvent) => void = () => {};
  readonly #options: BridgedHostOptions;
  readonly #watches: { close(): void }[] = [];
  readonly #failed = new Set<BridgedDevice>();
  #turn: NodeJS.Immediate | undefined;

  constructor(options: BridgedHostOptions) {
    this.#options = options;
    this.devices = options.devices.map((init) => {
      return new BridgedDevice(init, (device) => ({
        raise: (object, event, text) => this.#raise(device, { event, object, text }),
        later: () => this.#later(),
        lost: (error) => this.#lost(device, error),
        completed: (cq) => this.onCompletion(cq),
      }));
    });
    this.cm = new BridgedConnections(options.channel, {
      device: (nativeName) => this.devices.find(({ lower }) => lower.info.name === nativeName),
      deliver: (id, event) => this.onCmEvent(id, event),
      note: (text) => options.note('debug', undefined, text),
    });
    for (const device of this.devices) {
      this.#watch(device.channel.descriptor, device, () => this.#completions(device));
      this.#watch(device.lower.asyncDescriptor, device, () => this.#asyncEvents(device));
    }
    this.#watch(options.channel.descriptor, undefined, () => this.#cmEvents());
  }

  doorbell(qp: BridgedQP): void {
    const device = this.#deviceOf(qp.deviceName);
    if (device === undefined) return;
    this.#guard(device, () => {
      device.nic.takeReceives();
      qp.pump();
      device.nic.look(qp);
      device.nic.settle();
    });
  }

  receiveDoorbell(srq: BridgedSRQ): void {
    if (srq.pump()) setImmediate(() => this.receiveDoorbell(srq));
  }

  drain(): void {
    for (const device of this.devices) this.#guard(device, () => device.nic.settle());
  }

  now(): number {
    return Math.trunc(performance.now() * 1000);
  }

  /** Releases all native objects. Clients must be gone. */
  async close(): Promise<void> {
    await this.cm.close();
    await this.#options.channel.settled();
    for (const watch of this.#watches) watch.close();
    if (this.#turn !== undefined) clearImmediate(this.#turn);
    giveBack(() => this.#options.channel.dispose());
    for (const { lower } of this.devices) giveBack(() => lower.dispose());
  }

  #completions(device: BridgedDevice): void {
    for (let count = 0; count < EVENTS_PER_TURN; count += 1) {
      const fired = device.channel.readEvent();
      if (fired === undefined) break;
      device.nic.handleFired(fired);
    }
    device.nic.settle();
  }

  #asyncEvents(device: BridgedDevice): void {
    for (let count = 0; count < EVENTS_PER_TURN; count += 1) {
      const event = device.lower.readAsyncEvent();
      if (event === undefined) break;
      const type = knownEvent(event.type);
      if (type === undefined) continue;
      device.nic.handleAsync(event.element, type, eventText(type, device.name));
    }
    device.nic.settle();
  }

  #cmEvents(): void {
    for (let count = 0; count < EVENTS_PER_TURN; count += 1) {
      const event = this.#options.channel.readEvent();
      if (event === undefined) break;
      this.cm.handleEvent(event);
    }
    this.drain();
  }

  #raise(device: BridgedDevice, event: DeviceAsyncEvent): void {
    this.#options.note('warn', device.name, event.text);
    this.onAsync(device, event);
  }

  #watch(descriptor: number, device: BridgedDevice | undefined, take: () => void): void {
    const watch = this.#options.watch(descriptor, () => {
      try {
        take();
      } catch (error) {
        watch.close();
        this.#lost(device, error);
      }
    });
    // Must not keep the daemon alive: its clients' socket does.
    watch.hold(false);
    this.#watches.push(watch);
  }

  #guard(device: BridgedDevice, step: () => void): void {
    try {
      step();
    } catch (error) {
      this.#lost(device, error);
    }
  }

  /** The device, or every device, is gone: notifies clients once. Rethrows our own bugs. */
  #lost(device: BridgedDevice | undefined, error: unknown): void {
    if (!isVerbsError(error)) throw error;
    for (const each of device === undefined ? this.devices : [device]) {
      if (this.#failed.has(each)) continue;
      this.#failed.add(each);
      const text = `${each.name} no longer works: ${error.message}`;
      this.#raise(each, { event: AsyncEventType.deviceFatal, object: undefined, text });
      each.nic.handleLoss();
      this.cm.handleLoss(each);
    }
    // Ids that have no device yet.
    if (device === undefined) this.cm.handleLoss(undefined);
  }

  #later(): void {
    this.#turn ??= setImmediate(() => {
      this.#turn = undefined;
      this.drain();
    });
  }

  #deviceOf(name: string): BridgedDevice | undefined {
    return this.devices.find((device) => device.name === name);
  }
}

function knownEvent(type: number): AsyncEventType | undefined {
  return Object.values(AsyncEventType).find((known) => known === type);
}

/** `ibv_event_type_str`, for the events that clients receive. */
function eventText(type: AsyncEventType, device: string): string {
  const found = Object.entries(AsyncEventType).find(([, value]) => value === type);
  return `${device}: ${found?.[0] ?? 'event'}`;
}
