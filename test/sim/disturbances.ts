/** Operations on the network between programs: injected failures, and links that stall or break. */
import type { FaultSpec } from '#contract/protocol/faults';
import { Conduit } from '#daemon/host/conduit';
import type { SimLink } from '../support/sim-link.ts';
import { SimAssociation } from './sctp/sim-association.ts';
import type { World } from './world.ts';

const STALL_MAX_MICROS = 2_000_000;
/** The longest messages of a path of SCTP. */
const PATH_MIN_BYTES = 400;
const PATH_MAX_BYTES = 9000;

/** Faults that must not make anything fail. */
const HARMLESS: ReadonlySet<string> = new Set([
  'delay',
  'bandwidth',
  'slice',
  'stall',
  'srq-limit',
  'port-up',
  'completion-event-lost',
  'completion-event-late',
]);

const FAULTS = [
  'delay',
  'bandwidth',
  'slice',
  'stall',
  'reset',
  'close',
  'corrupt-crc',
  'corrupt-length',
  'corrupt-stag',
  'corrupt-msn',
  'corrupt-mo',
  'terminate',
  'mpa-silent',
  'mpa-late',
  'mpa-reject',
  'mpa-depths',
  'cq-overrun',
  'completion-event-lost',
  'completion-event-late',
  'srq-limit',
  'port-up',
  'port-down',
  'qp-fatal',
  'device-fatal',
] as const;

/** See the module's comment. Failures that they can cause are excused. */
export class Disturbances {
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  /** Adds a fault to a host that has fewer than three. */
  fault(): void {
    const { prng, hosts, plan } = this.#world;
    const host = prng.choose(hosts);
    if (host.host.faults.injector.faults.length >= 3) return;
    const spec = this.#faultSpec();
    const { kind } = spec;
    // Without CRCs a corruption goes undetected.
    if (kind.startsWith('corrupt') && plan.wire.crcRequested !== true) return;
    host.slowed = true;
    if (kind.startsWith('completion-event')) host.wakesLost = true;
    if (kind === 'cq-overrun') {
      host.overruns = true;
      for (const client of this.#world.clientsOf(host)) client.overrun = true;
    }
    if (!HARMLESS.has(kind)) {
      host.faulty = true;
      for (const client of this.#world.clientsOf(host)) {
        for (const { party } of client.qps) party.flow?.excuse(`fault ${kind}`);
        for (const { flow } of client.ids.values()) flow?.excuse(`fault ${kind}`);
      }
    }
    this.#world.log?.(`  ${host.name}: ${JSON.stringify(spec)}`);
    host.host.faults.add(spec, undefined);
  }

  /** Removes all faults. */
  heal(): void {
    for (const { host } of this.#world.hosts) host.faults.clear();
  }

  /** Stalls, breaks or loses a link, or changes the path of an association. */
  link(): void {
    const { prng, network } = this.#world;
    const { ends } = network;
    if (ends.length === 0) return;
    const link = prng.choose(ends);
    const draw = prng.below(10);
    if (link instanceof SimAssociation && draw < 2) {
      link.changePath(prng.between(PATH_MIN_BYTES, PATH_MAX_BYTES));
      return;
    }
    if (draw < 6) {
      link.stall(prng.below(STALL_MAX_MICROS));
      return;
    }
    for (const end of [link, link.peer]) this.#excuse(end, draw < 9 ? 'link broken' : 'path gone');
    if (draw < 9) link.break();
    else link.vanish();
  }

  #faultSpec(): FaultSpec {
    const { prng } = this.#world;
    const kind = prng.choose(FAULTS);
    const trigger = { probability: prng.choose([0.02, 0.3, 1]), seed: prng.next() };
    switch (kind) {
      case 'delay':
        return { kind, ms: prng.between(1, 20), ...trigger };
      case 'mpa-late':
      case 'completion-event-late':
        return { kind, ms: prng.between(1, 200), ...trigger };
      case 'bandwidth':
        return { kind, bytesPerSecond: prng.between(1_000_000, 50_000_000) };
      case 'slice':
        return { kind, bytes: prng.between(1, 100) };
      case 'stall':
        return { kind, ms: prng.between(1, 300), ...trigger };
      case 'reset':
      case 'close':
        return { kind, afterBytes: prng.below(3000), once: true };
      case 'mpa-depths':
        return { kind, ird: prng.below(3), ord: prng.below(3) };
      case 'device-fatal':
      case 'qp-fatal':
      case 'port-down':
        return { kind };
      default:
        return { kind, ...trigger };
    }
  }

  /** The conduits of an end. */
  #conduitsOf(end: SimLink | SimAssociation | undefined): readonly Conduit[] {
    if (!(end instanceof SimAssociation)) {
      const user = end?.outerUser;
      return user instanceof Conduit ? [user] : [];
    }
    const { local, remote } = end;
    return this.#world.hosts.flatMap(({ host }) =>
      [...host.conduits()].filter(({ link }) => {
        const here = link.localAddress === local.address && link.localPort === local.port;
        return here && link.remoteAddress === remote.address && link.remotePort === remote.port;
      }),
    );
  }

  #excuse(end: SimLink | SimAssociation | undefined, why: string): void {
    const conduits = this.#conduitsOf(end);
    // A session may be about to begin on an association.
    if (conduits.length === 0 || end instanceof SimAssociation) {
      // No flow is known yet: excuse every flow that is being established.
      for (const flow of this.#world.flows.values()) {
        if (flow.parties.some(({ established }) => !established)) flow.excuse(why);
      }
    }
    for (const { endpoint } of conduits) this.#excuseQp(endpoint.device.name, endpoint.qp, why);
  }

  #excuseQp(device: string, qp: unknown, why: string): void {
    for (const host of this.#world.hosts) {
      for (const client of this.#world.clientsOf(host)) {
        for (const each of client.qps) {
          if (host.queuePair(device, each.qpn) === qp) each.party.flow?.excuse(why);
        }
      }
    }
    if (qp !== undefined) return;
    for (const flow of this.#world.flows.values()) {
      if (flow.responder?.established !== true) flow.excuse(why);
    }
  }
}
