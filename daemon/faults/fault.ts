/** One fault: its scope, how often it matched, and how often it fired. */
import { type Random32, seededRandom } from '#base/random';
import {
  type FaultOpcode,
  type FaultPlace,
  type FaultSpec,
  type FaultStatus,
  faultKind,
  firesAtOnce,
} from '#contract/protocol/faults';

/** The other end of a connection. Port 0 matches all ports of an address. */
export interface FaultPeer {
  readonly address: string;
  readonly port: number;
}

/** The properties of a connection that a fault's scope can match. */
export interface ConnectionFacts {
  readonly device: string;
  /** Undefined while the connection has no queue pair. */
  readonly qpNum: number | undefined;
  readonly remote: FaultPeer;
}

const RANGE = 2 ** 32;

export class Fault {
  readonly id: number;
  readonly spec: FaultSpec;
  readonly place: FaultPlace;
  readonly atOnce: boolean;
  readonly peer: FaultPeer | undefined;
  readonly #random: Random32;
  #matched = 0;
  #fired = 0;

  /** `spec` has been checked, and has a seed if it has a probability. */
  constructor(id: number, spec: FaultSpec, peer: FaultPeer | undefined) {
    this.id = id;
    this.spec = spec;
    this.place = faultKind(spec.kind).place;
    this.atOnce = firesAtOnce(spec);
    this.peer = peer;
    this.#random = seededRandom(spec.seed ?? 0);
  }

  /** Counts a match of the scope, and returns whether the fault fires. */
  fires(): boolean {
    this.#matched += 1;
    const { nth, every, once, probability } = this.spec;
    if (once === true && this.#fired > 0) return false;
    if (nth !== undefined && this.#matched !== nth) return false;
    if (every !== undefined && this.#matched % every !== 0) return false;
    if (probability !== undefined && this.#random() >= probability * RANGE) return false;
    this.#fired += 1;
    return true;
  }

  get status(): FaultStatus {
    return { id: this.id, spec: this.spec, matched: this.#matched, fired: this.#fired };
  }

  /** True if the scope matches this device. An unknown device matches only a scope without a device. */
  coversDevice(device: string | undefined): boolean {
    return this.spec.device === undefined || this.spec.device === device;
  }

  coversQp(qpNum: number | undefined): boolean {
    return this.spec.qp === undefined || this.spec.qp === qpNum;
  }

  /** True if the scope matches the connection, with any present or future queue pair. */
  coversEnds({ device, remote }: ConnectionFacts): boolean {
    if (!this.coversDevice(device)) return false;
    const { peer } = this;
    if (peer === undefined) return true;
    return peer.address === remote.address && (peer.port === 0 || peer.port === remote.port);
  }

  /** True if the scope matches traffic of a connection. `opcode` is undefined if it is unknown. */
  coversTraffic(
    facts: ConnectionFacts,
    direction: 'in' | 'out',
    opcode: FaultOpcode | undefined,
  ): boolean {
    const { spec } = this;
    if (spec.direction !== undefined && spec.direction !== direction) return false;
    if (spec.opcode !== undefined && spec.opcode !== opcode) return false;
    return this.coversQp(facts.qpNum) && this.coversEnds(facts);
  }
}
