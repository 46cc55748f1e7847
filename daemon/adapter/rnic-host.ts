/**
 * Everything that one process emulates: devices, the connection manager, sockets and one timer.
 *
 * The owner of the host sets the three callbacks, calls commands of `cm` and of the objects of each
 * device's NIC, and after the latter `drain`. Nothing here throws out of a socket or timer event;
 * what peers do wrong ends in events and notices.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { AsyncEventType, CMEventType } from '../../verbs-api/contract/enums.ts';
import { canonicalAddress } from '../cm/address.ts';
import type { CmId } from '../cm/cm-id.ts';
import type {
  CmDevice,
  CmEffect,
  CmEvent,
  CmLimits,
  ConnectableQP,
  SocketFacts,
} from '../cm/cm-types.ts';
import { ConnectionManager } from '../cm/connection-manager.ts';
import type { Endpoint, EndpointPhase } from '../cm/endpoint.ts';
import { ChunkPool } from '../engine/chunk-pool.ts';
import { Stream } from '../engine/stream.ts';
import type { Micros, StreamOptions, StreamPort } from '../engine/stream-api.ts';
import type { Fault } from '../faults/fault.ts';
import type { CQ } from '../rnic/completion-queue.ts';
import type { NicEffect } from '../rnic/effect.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { SRQ } from '../rnic/shared-receive-queue.ts';
import {
  type Dial,
  type LinkEnvironment,
  READ_BUFFER_BYTES,
  type TcpLink,
} from '../transport/tcp-link.ts';
import { Conduit, type ConduitHost } from './conduit.ts';
import { type CrcEngine, chooseCrcEngine } from './crc-engine.ts';
import { Adapter } from './device-adapter.ts';
import type { DeviceHost } from './device-backend.ts';
import { checkedDevices, DEFAULT_DEVICE, type DeviceConfig } from './device-config.ts';
import { EventLoop, type LoopUser } from './event-loop.ts';
import { HostCm, type HostCmUser } from './host-cm.ts';
import { type FaultHost, HostFaults } from './host-faults.ts';
import { type NetworkUser, TcpHostNetwork } from './host-network.ts';
import type { HostNotice, HostObserver } from './observer.ts';
import { PatientDial } from './patient-dial.ts';

/** What a host is made with. */
export interface RnicHostOptions {
  /** Default: one device, `iwarp0`, for every address. */
  readonly devices?: readonly DeviceConfig[];
  readonly observer?: HostObserver;
  /** Bounds of the connection manager; see `DEFAULT_CM_LIMITS`. */
  readonly limits?: Partial<CmLimits>;
  /** Default: the best of those installed. */
  readonly crcEngine?: CrcEngine;
}

/** An asynchronous event of a device. */
export interface HostAsyncEvent {
  readonly event: AsyncEventType;
  readonly element: QP | CQ | SRQ | undefined;
  readonly text: string;
}

/** A connection as `status` shows it. */
export interface ConnectionStatus {
  readonly device: string;
  readonly local: SocketFacts['local'];
  readonly remote: SocketFacts['remote'];
  readonly role: Endpoint['role'];
  readonly phase: EndpointPhase;
  /** The queue pair that it has, if any. */
  readonly qpNum: number | undefined;
}

/** Asynchronous events that tell of nothing wrong: somebody asked for them, or closes a connection. */
const NORMAL_EVENTS: readonly AsyncEventType[] = [
  AsyncEventType.sqDrained,
  AsyncEventType.srqLimitReached,
  AsyncEventType.qpLastWqeReached,
  AsyncEventType.portActive,
];

/** How often receives posted to QPs in error are flushed: programs drain their queues that way. */
const FLUSH_INTERVAL_MS = 5;

/** Turns of the event loop that a reset waits for sockets to close; a reset socket takes one. */
const RESET_TURNS_MAX = 100;

/** See the module's comment. */
export class RnicHost
  implements ConduitHost, DeviceHost, FaultHost, HostCmUser, LoopUser, NetworkUser
{
  readonly devices: readonly Adapter[];
  readonly cm: HostCm;
  readonly crcEngine: CrcEngine;
  /** What goes wrong because somebody asked for it. */
  readonly faults: HostFaults = new HostFaults(this);
  /** An armed CQ fired; its tag says whose it is. */
  onCompletion: (cq: CQ) => void = () => {};
  onAsync: (device: Adapter, event: HostAsyncEvent) => void = () => {};
  onCmEvent: (id: CmId, event: CmEvent) => void = () => {};
  readonly #observer: HostObserver;
  readonly #manager: ConnectionManager;
  readonly #network: TcpHostNetwork;
  readonly #loop: EventLoop;
  readonly #pool = new ChunkPool();
  readonly #conduits = new Map<StreamPort, Conduit>();
  /** The latest conduit of each QP, also when the QP has let go of its stream. */
  readonly #conduitOf = new WeakMap<ConnectableQP, Conduit>();
  readonly #dials = new Map<Endpoint, Dial>();
  #flushTimer: NodeJS.Timeout | undefined;
  #closed: Promise<void> | undefined;
  #onLastGone: () => void = () => {};

  constructor(options: RnicHostOptions = {}) {
    const configs = checkedDevices(options.devices ?? [DEFAULT_DEVICE]);
    this.devices = configs.map((config) => new Adapter(config));
    this.crcEngine = options.crcEngine ?? chooseCrcEngine();
    this.#observer = options.observer ?? {};
    const environment: LinkEnvironment = {
      readBuffer: new Uint8Array(READ_BUFFER_BYTES),
      tap: this.#observer.tap,
    };
    this.#network = new TcpHostNetwork(environment, this);
    this.#loop = new EventLoop(this);
    const cmDevices = this.devices.map(({ cmDevice }) => cmDevice);
    this.#manager = new ConnectionManager({
      devices: () => cmDevices,
      network: this.#network,
      createStream: (device, streamOptions) => this.#createStream(device, streamOptions),
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    });
    this.cm = new HostCm(this.#manager, this);
  }

  // Commands

  /** The QP's send queue has new elements: they leave within this call, as far as TCP takes them. */
  doorbell(qp: QP): void {
    qp.doorbell(this.now());
    this.#enqueueConduit(this.#conduitOf.get(qp));
    this.#loop.drain();
  }

  /** Emulated queue pairs look for receives when a message comes. */
  receiveDoorbell(): void {}

  /** To be called after any direct call into an object of a NIC. */
  drain(): void {
    this.#loop.drain();
    this.#watchErrored();
  }

  /** Gives up the ports that are kept for listeners of `keeper` (see `CmId`) yet to come. */
  releasePorts(keeper: object): void {
    this.#network.releaseKept(keeper);
  }

  /**
   * Ends every id and resets every connection, whosever they are. Resolves when the sockets are
   * gone.
   */
  async reset(): Promise<void> {
    const now = this.now();
    for (const id of this.#manager.ids()) this.#manager.destroy(id, now);
    this.#network.releaseKept();
    this.#loop.drain();
    const ended = [...this.#conduits.values()];
    for (const conduit of ended) conduit.reset();
    for (let turn = 0; turn < RESET_TURNS_MAX; turn += 1) {
      if (!ended.some(({ stream }) => this.#conduits.has(stream))) break;
      await nextTurn();
    }
  }

  /** Ends every connection and listener; resolves when all sockets are closed. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const now = this.now();
    for (const id of this.#manager.ids()) this.#manager.destroy(id, now);
    this.#network.releaseKept();
    this.#loop.drain();
    for (const conduit of this.#conduits.values()) conduit.leave();
    clearInterval(this.#flushTimer);
    if (this.#conduits.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onLastGone = resolve;
      });
    }
    this.#loop.close();
  }

  // Getters

  /** Microseconds since the process started; never goes back. */
  now(): Micros {
    return this.#loop.now();
  }

  /**
   * The local address from which the host's routes reach `destination`, from `source` if given;
   * undefined when they do not.
   */
  routeSource(destination: string, source: string | undefined): string | undefined {
    const answer = this.#network.sourceAddress(destination, source);
    return 'error' in answer ? undefined : answer.address;
  }

  /** Every connection, for `status`. */
  connections(): readonly ConnectionStatus[] {
    return this.#manager.endpoints().map(({ device, local, remote, role, phase, qp }) => {
      return { device: device.name, local, remote, role, phase, qpNum: qp?.qpn };
    });
  }

  /** Name of the device that made this QP, if one of this host's did. */
  deviceOf(qp: QP): string | undefined {
    return this.devices.find(({ nic }) => nic.findQP(qp.qpn) === qp)?.name;
  }

  // From conduits, the network and the loop

  /** See `ConduitHost`. */
  handleInput(conduit: Conduit, _now: Micros): void {
    this.#loop.enqueue(conduit);
    this.#loop.drain();
  }

  /** See `ConduitHost`. */
  get crc32c(): CrcEngine['crc32c'] {
    return this.crcEngine.crc32c;
  }

  /** See `ConduitHost`. */
  handleFault(conduit: Conduit, fault: Fault, now: Micros): void {
    this.faults.strike(conduit, fault, now);
  }

  /** See `FaultHost`. */
  noteFault(text: string): void {
    this.#notice('info', 'fault', undefined, undefined, text);
  }

  /** See `FaultHost`. */
  conduits(): Iterable<Conduit> {
    return this.#conduits.values();
  }

  /** See `FaultHost`. */
  conduitOf(qp: QP): Conduit | undefined {
    return this.#conduitOf.get(qp);
  }

  /** See `FaultHost`; also what a NIC tells by itself. */
  raise(
    device: Adapter,
    event: AsyncEventType,
    element: HostAsyncEvent['element'],
    text: string,
  ): void {
    const level = NORMAL_EVENTS.includes(event) ? 'debug' : 'warn';
    this.#notice(level, 'device', device.name, undefined, text);
    this.onAsync(device, { event, element, text });
  }

  /** See `ConduitHost`. */
  handleGone(conduit: Conduit): void {
    this.#conduits.delete(conduit.stream);
    this.#loop.forget(conduit);
    this.#watchErrored();
    if (this.#conduits.size === 0) this.#onLastGone();
  }

  /** See `ConduitHost`. */
  handleNudged({ endpoint }: Conduit, text: string): void {
    this.#notice('debug', 'connection', endpoint.device.name, endpoint.remote, text);
  }

  /** See `NetworkUser`. */
  handleLink(listener: CmId, link: TcpLink): void {
    const endpoint = this.#manager.handleIncoming(listener, factsOf(link), this.now());
    if (typeof endpoint === 'string') {
      link.reset();
      this.#notice('warn', 'refused', undefined, factsOf(link).remote, endpoint);
      return;
    }
    this.#join(endpoint, link);
  }

  /** See `NetworkUser`. */
  handleListenerError(listener: CmId, error: Error): void {
    this.#notice('warn', 'socket', listener.device, undefined, error.message);
  }

  /** See `LoopUser`. */
  drainEffects(now: Micros): boolean {
    let any = false;
    for (const device of this.devices) {
      for (;;) {
        const effect = device.nic.pollEffect();
        if (effect === undefined) break;
        any = true;
        this.#actOnNic(device, effect);
      }
    }
    for (;;) {
      const effect = this.#manager.pollEffect();
      if (effect === undefined) return any;
      any = true;
      this.#actOnCm(effect, now);
    }
  }

  /** See `LoopUser`. */
  handleDeadline(now: Micros): void {
    this.#manager.handleDeadline(now);
  }

  /** See `LoopUser`. */
  nextDeadline(): Micros {
    return this.#manager.nextDeadline();
  }

  // Steps

  #createStream(device: CmDevice, options: StreamOptions): Stream {
    const { crc32c } = this.crcEngine;
    const alignSegments = device.wire.segmentAligned;
    return new Stream(options, { pool: this.#pool, crc32c, alignSegments });
  }

  #join(endpoint: Endpoint, link: TcpLink): void {
    const stream = endpoint.stream;
    if (stream === undefined) return;
    const conduit = new Conduit(endpoint, stream, link, this);
    this.#conduits.set(stream, conduit);
    this.faults.meet(conduit);
    if (endpoint.qp !== undefined) this.#conduitOf.set(endpoint.qp, conduit);
    this.#loop.enqueue(conduit);
    this.#loop.drain();
  }

  #enqueueConduit(conduit: Conduit | undefined): void {
    if (conduit !== undefined) this.#loop.enqueue(conduit);
  }

  #actOnNic(device: Adapter, effect: NicEffect): void {
    switch (effect.type) {
      case 'completion':
        if (this.faults.injector.notifications === undefined) this.onCompletion(effect.cq);
        else this.faults.notify(device, effect.cq);
        return;
      case 'async':
        this.raise(device, effect.event, effect.element, effect.text);
        return;
      case 'disconnect':
      case 'abort':
      case 'transmit':
        this.#enqueueConduit(this.#conduitOf.get(effect.qp));
        return;
      case 'resume': {
        const { qp } = effect;
        setImmediate(() => this.doorbell(qp));
        return;
      }
      default:
        effect satisfies never;
    }
  }

  #actOnCm(effect: CmEffect, now: Micros): void {
    switch (effect.type) {
      case 'dial':
        this.#dial(effect, now);
        return;
      case 'cancelDial':
        this.#dials.get(effect.endpoint)?.cancel();
        this.#dials.delete(effect.endpoint);
        return;
      case 'touched': {
        const { stream, qp } = effect.endpoint;
        const conduit = stream === undefined ? undefined : this.#conduits.get(stream);
        if (conduit !== undefined && qp !== undefined) this.#conduitOf.set(qp, conduit);
        this.#enqueueConduit(conduit);
        return;
      }
      case 'deliver':
        this.#deliver(effect.event);
        return;
      default:
        effect satisfies never;
    }
  }

  #dial(effect: Extract<CmEffect, { type: 'dial' }>, now: Micros): void {
    const { endpoint, remote } = effect;
    const id = endpoint.id;
    if (id === undefined) return;
    const connected = (link: TcpLink): void => {
      this.#dials.delete(endpoint);
      if (this.#manager.handleDialed(endpoint, factsOf(link), this.now())) {
        this.#join(endpoint, link);
      } else {
        link.reset();
        this.#loop.drain();
      }
    };
    const failed = (errorCode: string): void => {
      this.#dials.delete(endpoint);
      this.#manager.handleDialFailed(endpoint, errorCode, this.now());
      this.#loop.drain();
    };
    const port = this.#network.take(id);
    if (port === undefined) {
      this.#manager.handleDialFailed(endpoint, 'EADDRNOTAVAIL', now);
      return;
    }
    const dial = new PatientDial({
      port,
      remote,
      environment: this.#network.environment,
      patienceMs: id.refusalPatienceMs,
      onConnected: connected,
      onFailed: failed,
    });
    this.#dials.set(endpoint, dial);
  }

  #deliver(event: CmEvent): void {
    const { id, type, text } = event;
    const failed = type === CMEventType.connectError || type === CMEventType.unreachable;
    this.#notice(failed ? 'info' : 'debug', 'connection', id.device, id.peerAddress, text);
    this.onCmEvent(id, event);
  }

  /** Lets the slow timer look after QPs in error; it stops when there are none. */
  #watchErrored(): void {
    if (this.#flushTimer !== undefined || this.#closed !== undefined) return;
    this.#flushTimer = setInterval(() => {
      if (this.#flushErrored() === 0) {
        clearInterval(this.#flushTimer);
        this.#flushTimer = undefined;
      }
      this.#loop.drain();
    }, FLUSH_INTERVAL_MS);
    this.#flushTimer.unref();
  }

  #flushErrored(): number {
    const now = this.now();
    let errored = 0;
    for (const { nic } of this.devices) errored += nic.flushErrored(now);
    return errored;
  }

  #notice(
    level: HostNotice['level'],
    kind: string,
    device: string | undefined,
    remote: HostNotice['remote'],
    text: string,
  ): void {
    this.#observer.notice?.({ level, kind, device, remote, text });
  }
}

/** A link's addresses in canonical form: an IPv4 peer of an IPv6 socket shows as IPv4. */
function factsOf(link: TcpLink): SocketFacts {
  const local = canonicalAddress(link.localAddress) ?? link.localAddress;
  const remote = canonicalAddress(link.remoteAddress) ?? link.remoteAddress;
  return {
    local: { address: local, port: link.localPort },
    remote: { address: remote, port: link.remotePort },
    emssBytes: link.emssBytes(),
  };
}
