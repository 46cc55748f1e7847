/**
 * The faults of a host: keeps who can meet one informed, and does what a fault does to devices and
 * queue pairs. What faults do to octets is `daemon/faults`.
 */
import { randomInt } from 'node:crypto';
import { AsyncEventType, QPState } from '../../verbs-api/contract/enums.ts';
import type { FaultSpec } from '../../verbs-api/contract/faults.ts';
import type { Micros } from '../engine/stream-api.ts';
import type { ConnectionFacts, Fault, FaultPeer } from '../faults/fault.ts';
import { FaultInjector } from '../faults/fault-injector.ts';
import type { CQ } from '../rnic/completion-queue.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { Conduit } from './conduit.ts';
import type { Adapter } from './device-adapter.ts';

/** Seeds are this many. */
const SEED_COUNT = 2 ** 32;

/** What the faults need of their host. */
export interface FaultHost {
  readonly devices: readonly Adapter[];
  now(): Micros;
  conduits(): Iterable<Conduit>;
  conduitOf(qp: QP): Conduit | undefined;
  /** Settles the conduit, and all that follows. */
  handleInput(conduit: Conduit, now: Micros): void;
  onCompletion(cq: CQ): void;
  /** Tells an asynchronous event of a device, or of one of its queue pairs. */
  raise(device: Adapter, event: AsyncEventType, element: QP | undefined, text: string): void;
  drain(): void;
  /** One line for logs. */
  noteFault(text: string): void;
}

/** See the module's comment. */
export class HostFaults {
  readonly injector = new FaultInjector();
  readonly #host: FaultHost;

  constructor(host: FaultHost) {
    this.#host = host;
  }

  /** Adds a fault. `spec` has been checked; where it lacks a seed that it needs, it gets one. */
  add(asked: FaultSpec, peer: FaultPeer | undefined): Fault {
    const seeded = asked.probability === undefined || asked.seed !== undefined;
    const spec = seeded ? asked : { ...asked, seed: randomInt(SEED_COUNT) };
    const fault = this.injector.add(spec, peer);
    this.#host.noteFault(`fault ${fault.id} is there: ${JSON.stringify(spec)}`);
    this.#changed();
    if (fault.atOnce) this.#happen(fault);
    return fault;
  }

  /** Takes a fault away, and what lasts of it; undefined when there is none of this number. */
  remove(id: number): Fault | undefined {
    const fault = this.injector.remove(id);
    if (fault === undefined) return undefined;
    const { matched, fired } = fault.status;
    this.#host.noteFault(`fault ${id} is removed: it happened on ${fired} of ${matched} occasions`);
    if (fault.spec.kind === 'port-down') this.#raisePorts(fault);
    this.#changed();
    return fault;
  }

  /** Takes all faults away; how many there were. */
  clear(): number {
    const all = [...this.injector.faults];
    for (const { id } of all) this.remove(id);
    return all.length;
  }

  /** A connection is there. */
  meet(conduit: Conduit): void {
    if (this.injector.streams === undefined) return;
    conduit.setFaults(this.injector.streamsOf(conduit.facts), this.#host.now());
  }

  /** An armed completion queue fired, and some fault is about that. */
  notify(device: Adapter, cq: CQ): void {
    const fault = this.injector.struck(this.injector.notifications, device.name);
    if (fault?.spec.kind === 'completion-event-lost') return;
    if (fault === undefined) this.#host.onCompletion(cq);
    else {
      const late = setTimeout(() => {
        if (!cq.closed) this.#host.onCompletion(cq);
      }, fault.spec.ms ?? 0);
      late.unref();
    }
  }

  /** A fault struck on what left a connection. */
  strike(conduit: Conduit, fault: Fault, now: Micros): void {
    const device = this.#host.devices.find(({ name }) => name === conduit.facts.device);
    if (device === undefined) return;
    switch (fault.spec.kind) {
      case 'terminate':
        conduit.stream.fail({ kind: 'local', text: `fault ${fault.id} ends the stream` }, now);
        return;
      case 'qp-fatal': {
        const qp = device.nic.findQP(conduit.facts.qpNum ?? 0);
        if (qp !== undefined) this.#failQP(device, qp, fault, now);
        return;
      }
      default:
        this.#happenTo(device, fault, now);
    }
  }

  // Steps

  /** Tells everybody who can meet a fault. */
  #changed(): void {
    const { injector } = this;
    const now = this.#host.now();
    for (const { name, nic } of this.#host.devices) {
      const { completions, receives } = injector;
      nic.faults.overrun =
        completions && ((qpNum) => injector.struck(completions, name, qpNum) !== undefined);
      nic.faults.srqLimit = receives && (() => injector.struck(receives, name) !== undefined);
    }
    for (const conduit of [...this.#host.conduits()]) {
      conduit.setFaults(injector.streamsOf(conduit.facts), now);
      this.#host.handleInput(conduit, now);
    }
  }

  #happen(fault: Fault): void {
    const now = this.#host.now();
    for (const device of this.#host.devices) {
      if (!fault.coversDevice(device.name)) continue;
      if (fault.spec.kind !== 'qp-fatal') {
        if (fault.strikes()) this.#happenTo(device, fault, now);
        continue;
      }
      for (const qp of device.nic.listQPs()) {
        if (!fault.coversQp(qp.qpn) || !this.#coversPeer(fault, device, qp)) continue;
        if (fault.strikes()) this.#failQP(device, qp, fault, now);
      }
    }
    this.#host.drain();
  }

  #coversPeer(fault: Fault, device: Adapter, qp: QP): boolean {
    if (fault.peer === undefined) return true;
    const facts: ConnectionFacts | undefined = this.#host.conduitOf(qp)?.facts;
    return facts !== undefined && facts.device === device.name && fault.coversEnds(facts);
  }

  #happenTo(device: Adapter, fault: Fault, now: Micros): void {
    const why = `fault ${fault.id}`;
    switch (fault.spec.kind) {
      case 'port-down':
        device.portDown = true;
        this.#host.raise(device, AsyncEventType.portErr, undefined, `${why}: the port is down`);
        return;
      case 'port-up':
        this.#host.raise(device, AsyncEventType.portActive, undefined, `${why}: the port is up`);
        return;
      case 'device-fatal':
        for (const qp of device.nic.listQPs()) this.#failQP(device, qp, fault, now);
        this.#host.raise(
          device,
          AsyncEventType.deviceFatal,
          undefined,
          `${why}: the device failed`,
        );
        return;
      default:
    }
  }

  #failQP(device: Adapter, qp: QP, fault: Fault, now: Micros): void {
    const conduit = this.#host.conduitOf(qp);
    qp.modify(QPState.ERR, now);
    conduit?.reset();
    const text = `fault ${fault.id}: the queue pair failed`;
    this.#host.raise(device, AsyncEventType.qpFatal, qp, text);
  }

  /** Ports that `fault` took down go up, unless another holds them down. */
  #raisePorts(fault: Fault): void {
    for (const device of this.#host.devices) {
      if (!device.portDown || !fault.coversDevice(device.name) || fault.status.fired === 0)
        continue;
      const others = this.injector.faults.filter(
        ({ spec, status }) => spec.kind === 'port-down' && status.fired > 0,
      );
      if (others.some((other) => other.coversDevice(device.name))) continue;
      device.portDown = false;
      const text = `fault ${fault.id} is removed: the port is up`;
      this.#host.raise(device, AsyncEventType.portActive, undefined, text);
    }
    this.#host.drain();
  }
}
