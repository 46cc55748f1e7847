/**
 * Packets from other hosts: each is checked in the order of rxe, subjected to faults, shown to captures and
 * delivered to its queue pair. All others are dropped and counted.
 */
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { QPType } from '#contract/verbs/enums';
import type { QP } from '#daemon/rnic/queue-pair';
import { mayBeAnswered, Packet, parsePacket } from '#daemon/roce/wire/packet';
import { PacketConnection } from './packet-connection.ts';
import {
  type HeldPacket,
  NO_ANSWER,
  type PacketFacts,
  type PacketFaults,
} from './packet-faults.ts';
import type { PacketPort } from './packet-port.ts';
import type { PacketRecorder } from './packet-recorder.ts';
import { endOf, type PacketRoutes } from './packet-routes.ts';
import { sameBytes } from './roce-port.ts';
import type { PacketArrival } from './udp-link.ts';
import type { WireTable } from './wire-table.ts';

/** P_Key of all packets, without the bit of full membership. */
const PKEY_MASK = 0x7fff;

/** The QP number that means every queue pair of a group. */
const GROUP_QPN = 0xff_ffff;

/**
 * Copies of multicast datagrams delivered in one turn, some tens of milliseconds: a group may have thousands
 * of queue pairs, and hundreds of datagrams arrive in a turn. Copies above the limit are dropped.
 */
const COPIES_MAX = 16_384;

/** Shared with the other packets of the host. */
interface ArrivalParts {
  readonly wires: WireTable;
  readonly routes: PacketRoutes;
  readonly faults: PacketFaults;
  readonly recorder: PacketRecorder;
}

/** Callbacks of arrivals. */
interface ArrivalUser {
  now(): Micros;
  handleReady(connection: PacketConnection): void;
  /** Packets that faults hold may be due. */
  deliverHeld(now: Micros): void;
  /** Calls back in the next turn. */
  soon(run: () => void): void;
}

export class Arrivals {
  readonly #parts: ArrivalParts;
  readonly #user: ArrivalUser;
  /** Connections that received packets in this batch, and when the first of them did. */
  readonly #reading: PacketConnection[] = [];
  #readAt: Micros = 0;
  readonly #packet = new Packet();
  /** Copies made in this turn. */
  #copies = 0;

  constructor(parts: ArrivalParts, user: ArrivalUser) {
    this.#parts = parts;
    this.#user = user;
  }

  handleArrival(ports: ReadonlySet<PacketPort>, arrival: PacketArrival, bytes: Uint8Array): void {
    const packet = this.#packet;
    const refusal = parsePacket(bytes, arrival.start, arrival.length, packet);
    const good = mayBeAnswered(refusal, bytes[arrival.start] as number);
    for (const port of ports) {
      if (port.down) continue;
      const { counters } = port;
      if (!good) counters.malformed += 1;
      else if ((packet.pkey & PKEY_MASK) !== PKEY_MASK) counters.badPkeys += 1;
      else if (this.#arrive(port, arrival, bytes)) return;
      else counters.unexpected += 1;
    }
  }

  handleArrivalsEnd(): void {
    const now = this.#user.now();
    for (const connection of this.#reading) {
      connection.reading = false;
      if (!connection.alive) continue;
      connection.wire.handleInputEnd(now);
      this.#user.handleReady(connection);
    }
    this.#reading.length = 0;
  }

  /** Delivers a packet that a fault held. */
  deliverHeld({ connection, bytes, copies, damaged }: HeldPacket, arrival: PacketArrival): void {
    const refusal = parsePacket(bytes, 0, bytes.length, this.#packet);
    assert(mayBeAnswered(refusal, this.#packet.opcode), 'held packet is malformed');
    if (!connection.alive || connection.qp.congested) {
      connection.port.counters.undeliverable += 1;
      return;
    }
    for (let copy = 0; copy < copies; copy += 1) this.#take(connection, arrival, bytes, damaged);
    this.handleArrivalsEnd();
  }

  /** True if a queue pair of the port accepts the packet. */
  #arrive(port: PacketPort, arrival: PacketArrival, bytes: Uint8Array): boolean {
    if (arrival.members !== undefined) return this.#arriveAt(arrival.members, port, arrival, bytes);
    const receiver = this.#parts.wires.find(port, this.#packet.destQpn);
    if (receiver === undefined || !isForOneOf(receiver, port, arrival)) return false;
    // Drop, since nothing can tell the sender to wait for slow memory. A connection retransmits.
    if (receiver.qp.congested) return false;
    const now = this.#parts.faults.active ? this.#user.now() : 0;
    if (this.#reach(receiver, arrival, bytes, now)) this.#user.deliverHeld(now);
    return true;
  }

  /** Delivers a multicast packet. True if a queue pair of the group accepts it. */
  #arriveAt(
    members: ReadonlySet<QP>,
    port: PacketPort,
    arrival: PacketArrival,
    bytes: Uint8Array,
  ): boolean {
    if (this.#packet.destQpn !== GROUP_QPN) return false;
    if (this.#copies >= COPIES_MAX) {
      port.counters.overShare += 1;
      return true;
    }
    if (this.#copies === 0) this.#user.soon(this.#endTurn);
    this.#copies += members.size;
    const now = this.#parts.faults.active ? this.#user.now() : 0;
    let taken = false;
    let due = false;
    for (const { wire } of members) {
      if (!(wire instanceof PacketConnection) || wire.port !== port || wire.qp.congested) continue;
      taken = true;
      if (this.#reach(wire, arrival, bytes, now)) due = true;
    }
    if (due) this.#user.deliverHeld(now);
    return taken;
  }

  readonly #endTurn = (): void => {
    this.#copies = 0;
  };

  /** Delivers the packet to a queue pair, unless faults prevent it. True if held packets may be due. */
  #reach(
    receiver: PacketConnection,
    arrival: PacketArrival,
    bytes: Uint8Array,
    now: Micros,
  ): boolean {
    if (this.#parts.faults.active) return this.#applyFaults(receiver, arrival, bytes, now);
    this.#take(receiver, arrival, bytes, false);
    return false;
  }

  /** Passes the packet to the queue pair. */
  #take(
    receiver: PacketConnection,
    arrival: PacketArrival,
    bytes: Uint8Array,
    damaged: boolean,
  ): void {
    const { port, qp } = receiver;
    const { recorder, routes } = this.#parts;
    if (damaged) {
      port.counters.icrcErrors += 1;
      return;
    }
    if (recorder.watched) {
      const ends = { sender: undefined, receiver: { device: port.name, qpn: qp.qpn } };
      recorder.showArrival(bytes, arrival, ends);
    }
    if (qp.type === QPType.ud) routes.writeArrivedGrh(arrival);
    if (this.#reading.length === 0) this.#readAt = this.#user.now();
    if (!receiver.reading) {
      receiver.reading = true;
      this.#reading.push(receiver);
    }
    receiver.handlePacket(undefined, this.#packet, bytes, routes.grh, this.#readAt);
  }

  /** True if the packet arrives, possibly twice. */
  #applyFaults(
    receiver: PacketConnection,
    arrival: PacketArrival,
    bytes: Uint8Array,
    now: Micros,
  ): boolean {
    const { port, qp } = receiver;
    const { faults } = this.#parts;
    const facts: PacketFacts = {
      out: undefined,
      in: { device: port.name, qpNum: qp.qpn, remote: endOf(arrival.sourceGid) },
      receiver,
    };
    const flow = { connection: receiver, vector: undefined, arrival };
    const fate = faults.fateOf(facts, flow, this.#packet, now);
    if (fate.dropped) return false;
    if (fate.answer !== NO_ANSWER) {
      receiver.wire.refuse?.(fate.answer);
      this.#user.handleReady(receiver);
      return false;
    }
    if (fate.due > now) {
      const { start, length } = arrival;
      const kept = { ...arrival, sourceGid: arrival.sourceGid.slice(), start: 0 };
      const whole = bytes.subarray(start, start + length);
      if (!faults.hold({ ...flow, arrival: kept }, whole)) port.counters.undeliverable += 1;
      return false;
    }
    for (let copy = 1; copy < fate.copies; copy += 1) {
      this.#take(receiver, arrival, bytes, fate.damaged);
    }
    this.#take(receiver, arrival, bytes, fate.damaged);
    faults.passed(flow, now);
    return true;
  }
}

/**
 * True if the queue pair accepts packets between these addresses: a connected one only from its
 * peer. A datagram queue pair rejects packets with the address of a device of this host. Genuine
 * ones never arrive this way, but any user of this machine can forge them, for instance to end
 * connections of others.
 */
function isForOneOf(
  { qp, path }: PacketConnection,
  port: PacketPort,
  { sourceGid, destGid }: PacketArrival,
): boolean {
  if (qp.type === QPType.ud) return port.peer(sourceGid) === undefined;
  return (
    path !== undefined && sameBytes(path.destGid, sourceGid) && sameBytes(path.sourceGid, destGid)
  );
}
