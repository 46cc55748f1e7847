/**
 * The faults of a host: wraps them around links, installs them in devices, and executes faults of devices and
 * queue pairs. `daemon/iwarp/faults` corrupts bytes.
 */
import type { Micros } from '#base/time';
import {
  FAULT_KINDS,
  type FaultKind,
  type FaultSpec,
  type FaultTarget,
  faultKind,
  faultTransport,
} from '#contract/protocol/faults';
import { AsyncEventType, QPState } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { ConnectionFacts, Fault, FaultPeer } from '../faults/fault.ts';
import { FaultInjector } from '../faults/fault-injector.ts';
import type { FrameReader } from '../iwarp/faults/frame.ts';
import { StreamFaults } from '../iwarp/faults/stream-faults.ts';
import type { Crc32c } from '../iwarp/wire/crc32c.ts';
import type { QP } from '../rnic/queue-pair.ts';
import type { CQ } from '../rnic/queues/completion-queue.ts';
import type { Conduit } from './conduit.ts';
import type { EmulatedDevice } from './emulated-device.ts';
import { FaultyLink } from './links/faulty-link.ts';
import type { HostClock } from './links/network.ts';

/** Limit of faults: every message of every connection is compared with all of them. */
export const FAULTS_MAX = 1_024;

/** Kinds that `ms` ends. For other kinds it has another meaning. */
const PASSING: ReadonlySet<FaultKind> = new Set(['drop', 'port-down']);

/** Spelling in messages. */
const NAMES = { iwarp: 'iWARP', roce: 'RoCE' } as const;

const MICROS_PER_MS = 1000;

/** Interface of the faults to their host. */
export interface FaultHost {
  readonly devices: readonly EmulatedDevice[];
  readonly clock: HostClock;
  readonly crc32c: Crc32c;
  now(): Micros;
  conduits(): Iterable<Conduit>;
  conduitOf(qp: QP): Conduit | undefined;
  /** The ends of a connected queue pair of either transport. */
  factsOf(qp: QP): ConnectionFacts | undefined;
  /** Finds frames in the output of a connection. */
  makeFrameReader(conduit: Conduit): FrameReader;
  /** Sets the faults that apply to packets. */
  setPacketFaults(faults: readonly Fault[] | undefined): void;
  onCompletion(cq: CQ): void;
  /** Raises an asynchronous event of a device, or of one of its queue pairs. */
  raise(device: EmulatedDevice, event: AsyncEventType, object: QP | undefined, text: string): void;
  drain(): void;
  /** One line for logs. */
  noteFault(text: string): void;
}

/** The part of the device's traffic that the fault changes; undefined if none. */
function targetOn(kind: FaultKind, device: EmulatedDevice): FaultTarget | undefined {
  return faultKind(kind).on.find((target) => device.kind.faultTargets.includes(target));
}

/** True if the fault can fire on the device. */
function actsOn(kind: FaultKind, device: EmulatedDevice): boolean {
  return faultKind(kind).on.length === 0 || targetOn(kind, device) !== undefined;
}

/** True if the fault applies to the connections of the device, not to its packets. */
function actsOnConnections({ spec: { kind } }: Fault, device: EmulatedDevice): boolean {
  const target = targetOn(kind, device);
  return target === undefined ? faultKind(kind).on.length === 0 : target !== 'packets';
}

export class HostFaults {
  readonly injector = new FaultInjector();
  readonly #host: FaultHost;

  constructor(host: FaultHost) {
    this.#host = host;
  }

  /** Why the kind applies to none of the devices in `spec`; undefined if it applies to one. */
  wrongTransport(spec: FaultSpec): string | undefined {
    const { kind, device: name } = spec;
    const { devices } = this.#host;
    const asked = name === undefined ? devices : devices.filter((each) => each.name === name);
    if (asked.length === 0 || asked.some((device) => actsOn(kind, device))) return undefined;
    const kinds = (Object.keys(FAULT_KINDS) as FaultKind[]).filter((each) => {
      return asked.some((device) => actsOn(each, device));
    });
    const advice = `use one of ${kinds.join(', ')}`;
    const [target] = faultKind(kind).on;
    for (const { lacks } of asked.map((device) => device.kind)) {
      const reason = target && lacks?.(target, name);
      if (reason !== undefined) return `${kind} acts on ${reason}; ${advice}`;
    }
    const wanted = faultTransport(kind);
    const other = wanted === 'iwarp' ? 'roce' : 'iwarp';
    const what =
      name === undefined ? `all devices are ${NAMES[other]}` : `${name} is ${NAMES[other]}`;
    return `${kind} acts on ${NAMES[wanted ?? 'iwarp']} devices, and ${what}; ${advice}`;
  }

  /** Adds a checked fault. Chooses a random seed if it needs one and has none. */
  add(asked: FaultSpec, peer: FaultPeer | undefined): Fault {
    if (this.injector.faults.length >= FAULTS_MAX) {
      throw new VerbsError(
        'ENOMEM',
        `limit reached: ${FAULTS_MAX} faults; remove some with iwarpd fault remove`,
      );
    }
    const seeded = asked.probability === undefined || asked.seed !== undefined;
    const spec = seeded ? asked : { ...asked, seed: this.#host.clock.random32() };
    const fault = this.injector.add(spec, peer);
    this.#host.noteFault(`fault ${fault.id} added: ${JSON.stringify(spec)}`);
    this.#changed();
    if (fault.atOnce) this.#happen(fault);
    if (spec.ms !== undefined && PASSING.has(spec.kind)) {
      // Numbers are never used again, so one that is removed earlier needs no cancellation.
      this.#host.clock.after(spec.ms * MICROS_PER_MS, () => this.remove(fault.id));
    }
    return fault;
  }

  /** Removes a fault and its lasting effects; undefined if no fault has this number. */
  remove(id: number): Fault | undefined {
    const fault = this.injector.remove(id);
    if (fault === undefined) return undefined;
    const { matched, fired } = fault.status;
    this.#host.noteFault(`fault ${id} removed: fired on ${fired} of ${matched} matches`);
    if (fault.spec.kind === 'port-down') this.#raisePorts(fault);
    this.#changed();
    return fault;
  }

  /** Removes all faults; returns how many there were. */
  clear(): number {
    const all = [...this.injector.faults];
    for (const { id } of all) this.remove(id);
    return all.length;
  }

  /** A connection was created. */
  applyTo(conduit: Conduit): void {
    if (this.injector.streams !== undefined) this.#apply(conduit);
  }

  /** True if a fault rejects the MPA Request that arrived. */
  rejectsRequest(conduit: Conduit): boolean {
    if (this.injector.streams === undefined) return false;
    const faults = this.injector.streamsOf(conduit.facts) ?? [];
    return faults.some((fault) => fault.place === 'request' && fault.fires());
  }

  /** An armed completion queue fired, and there are faults of that kind. */
  notify(device: EmulatedDevice, cq: CQ): void {
    const fault = this.injector.firstFiring(this.injector.notifications, device.name);
    if (fault?.spec.kind === 'completion-event-lost') return;
    if (fault === undefined) this.#host.onCompletion(cq);
    else {
      this.#host.clock.after((fault.spec.ms ?? 0) * 1000, () => {
        if (!cq.closed) this.#host.onCompletion(cq);
      });
    }
  }

  /** Executes a fault that fired on a connection's output. */
  #fire(conduit: Conduit, fault: Fault, now: Micros): void {
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

  /** Executes a fault of a device or queue pair that fired on a packet. */
  fire(fault: Fault, deviceName: string, qpn: number | undefined): void {
    const device = this.#host.devices.find(({ name }) => name === deviceName);
    if (device === undefined) return;
    const now = this.#host.now();
    const qp = device.nic.findQP(qpn ?? 0);
    if (fault.spec.kind !== 'qp-fatal') this.#happenTo(device, fault, now);
    else if (qp !== undefined) this.#failQP(device, qp, fault, now);
    this.#host.drain();
  }

  // Steps

  /** Updates devices and connections after the list of faults changed. */
  #changed(): void {
    const { injector } = this;
    for (const { name, nic } of this.#host.devices) {
      const { completions, receives } = injector;
      nic.faults.overrun =
        completions && ((qpNum) => injector.firstFiring(completions, name, qpNum) !== undefined);
      nic.faults.srqLimit = receives && (() => injector.firstFiring(receives, name) !== undefined);
    }
    this.#host.setPacketFaults(injector.packets);
    for (const conduit of [...this.#host.conduits()]) this.#apply(conduit);
  }

  /**
   * Wraps the faults that can match a connection around its link, or updates the existing wrapper.
   */
  #apply(conduit: Conduit): void {
    const { link } = conduit;
    const faults = this.#streamFaultsOf(conduit);
    if (link instanceof FaultyLink) link.setFaults(faults ?? []);
    else if (faults !== undefined) this.#wrap(conduit).setFaults(faults);
  }

  #streamFaultsOf(conduit: Conduit): readonly Fault[] | undefined {
    const { facts } = conduit;
    const device = this.#host.devices.find(({ name }) => name === facts.device);
    if (device === undefined) return undefined;
    const own = this.injector.streamsOf(facts)?.filter((fault) => actsOnConnections(fault, device));
    return own?.length === 0 ? undefined : own;
  }

  #wrap(conduit: Conduit): FaultyLink {
    const { clock, crc32c } = this.#host;
    const inner = conduit.link;
    const reader = this.#host.makeFrameReader(conduit);
    const link = new FaultyLink(inner, {
      faults: new StreamFaults(reader, () => conduit.facts, crc32c),
      clock,
      framing: () => conduit.framing,
      fire: (fault, now) => this.#fire(conduit, fault, now),
      spent: () => conduit.moveTo(inner),
    });
    conduit.moveTo(link);
    return link;
  }

  #happen(fault: Fault): void {
    const now = this.#host.now();
    for (const device of this.#host.devices) {
      if (!fault.coversDevice(device.name)) continue;
      if (fault.spec.kind !== 'qp-fatal') {
        if (fault.fires()) this.#happenTo(device, fault, now);
        continue;
      }
      for (const qp of device.nic.listQPs()) {
        if (!fault.coversQp(qp.qpn) || !this.#coversPeer(fault, device, qp)) continue;
        if (fault.fires()) this.#failQP(device, qp, fault, now);
      }
    }
    this.#host.drain();
  }

  #coversPeer(fault: Fault, device: EmulatedDevice, qp: QP): boolean {
    if (fault.peer === undefined) return true;
    const facts = this.#host.factsOf(qp);
    return facts !== undefined && facts.device === device.name && fault.coversEnds(facts);
  }

  #happenTo(device: EmulatedDevice, fault: Fault, now: Micros): void {
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

  #failQP(device: EmulatedDevice, qp: QP, fault: Fault, now: Micros): void {
    // In RESET there is nothing to fail: on RoCE, no transition leads from there to ERR.
    if (device.transport === 'roce' && qp.state === QPState.RESET) return;
    const conduit = this.#host.conduitOf(qp);
    qp.modify(QPState.ERR, now);
    conduit?.reset();
    const text = `fault ${fault.id}: the queue pair failed`;
    this.#host.raise(device, AsyncEventType.qpFatal, qp, text);
  }

  /** Raises the ports that `fault` took down, unless another fault keeps them down. */
  #raisePorts(fault: Fault): void {
    for (const device of this.#host.devices) {
      if (!device.portDown || !fault.coversDevice(device.name) || fault.status.fired === 0)
        continue;
      const others = this.injector.faults.filter(
        ({ spec, status }) => spec.kind === 'port-down' && status.fired > 0,
      );
      if (others.some((other) => other.coversDevice(device.name))) continue;
      device.portDown = false;
      const text = `fault ${fault.id} removed: the port is up`;
      this.#host.raise(device, AsyncEventType.portActive, undefined, text);
    }
    this.#host.drain();
  }
}
