/**
 * Packets that queue pairs of the host send: each is in one buffer while faults are applied, captures see it,
 * and it is delivered to its receiver or leaves the host. Packets without a receiver are dropped and counted,
 * as a network would lose them.
 */
import { assert } from '#base/assert';
import type { Micros } from '#base/time';
import { QPType } from '#contract/verbs/enums';
import type { LentPayload } from '#daemon/rnic/memory/lent-payload';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import { HEADERS_BYTES_MAX } from '#daemon/roce/transport/packet-wire';
import { Packet, PacketRefusal, parsePacket } from '#daemon/roce/wire/packet';
import type { Arrivals } from './arrivals.ts';
import type { MulticastGroups } from './multicast-groups.ts';
import type { OutwardPackets } from './outward-packets.ts';
import { PacketConnection } from './packet-connection.ts';
import {
  type HeldPacket,
  NO_ANSWER,
  type PacketFacts,
  type PacketFaults,
} from './packet-faults.ts';
import type { PacketPort } from './packet-port.ts';
import type { PacketRecorder } from './packet-recorder.ts';
import type { PacketRoutes, Route } from './packet-routes.ts';
import { countPacket } from './roce-counters.ts';
import { sameBytes } from './roce-port.ts';
import { PACKET_COST_BYTES, SHARE_BYTES } from './turn-queue.ts';
import type { LinkPath } from './udp-link.ts';
import type { WireTable } from './wire-table.ts';

/**
 * Payload of a packet that stands for several of a network: a message of this length stays whole, so it is
 * copied and placed at once. Half of a connection's turn.
 */
export const WHOLE_BYTES_MAX = SHARE_BYTES / 2;
/** The most packets of one turn. */
const BURST_PACKETS_MAX = SHARE_BYTES / PACKET_COST_BYTES + 1;

/** An address handle of these devices, the destination of a datagram. */
interface AddressHandle {
  /** The same object for every datagram of the handle. */
  readonly vector: AddressVector;
}

/** Shared with the other packets of the host. */
interface DepartureParts {
  readonly wires: WireTable;
  readonly routes: PacketRoutes;
  readonly groups: MulticastGroups;
  readonly faults: PacketFaults;
  readonly recorder: PacketRecorder;
  readonly outward: OutwardPackets;
  readonly arrivals: Arrivals;
  readonly lent: LentPayload;
}

export class Departures {
  readonly #parts: DepartureParts;
  readonly #onReady: (connection: PacketConnection) => void;
  /** The packets of a burst, one after the other. */
  readonly bytes = new Uint8Array(SHARE_BYTES + WHOLE_BYTES_MAX + HEADERS_BYTES_MAX);
  /** Copies of multicast datagrams that queue pairs received. */
  groupCopies = 0;
  /** Lengths and spans of the packets of a burst. */
  readonly #lengths = new Uint32Array(BURST_PACKETS_MAX);
  readonly #spans = new Uint32Array(BURST_PACKETS_MAX);
  #burst = 0;
  #burstBytes = 0;
  #burstPackets = 0;
  readonly #packet = new Packet();

  /** `onReady` is called with connections that may have packets. */
  constructor(parts: DepartureParts, onReady: (connection: PacketConnection) => void) {
    this.#parts = parts;
    this.#onReady = onReady;
  }

  /** Where in `bytes` to write the next packet. */
  get nextStart(): number {
    return this.#burstBytes;
  }

  /**
   * True if packets may be written directly into the link's buffer: no captures or faults are
   * active.
   */
  mayLeaveAtOnce({ port }: PacketConnection): boolean {
    return !this.#parts.faults.active && !this.#parts.recorder.watched && !port.down;
  }

  /** Sends the packet in the buffer to another host, at the end of the turn at the latest. */
  #leave(path: LinkPath, bytes: number, now: Micros, damaged = false): void {
    const { counters } = path.port;
    if (!this.#parts.outward.leave(path, this.bytes, bytes, now, damaged)) {
      counters.undeliverable += 1;
      return;
    }
    countPacket(this.#packet, counters, undefined);
  }

  /**
   * True if packets of the connection may be batched for the rest of the turn, so that memory is accessed
   * once for all. Batching is off while captures or faults are active, and for datagrams, whose receiver the
   * wire names only until the next packet.
   */
  mayBurst({ qp, port, peer }: PacketConnection): boolean {
    if (qp.type === QPType.ud || this.#parts.faults.active || this.#parts.recorder.watched)
      return false;
    return !port.down && peer?.down === false;
  }

  /** True if packets of the connection's next burst may lend their payload to the receiver. */
  mayLend(connection: PacketConnection): boolean {
    if (connection.qp.type !== QPType.rc) return false;
    const receiver = this.#peerOf(connection);
    return receiver?.qp.takesLent === true && isPeer(receiver, connection);
  }

  /** Adds the packet after the burst to it. */
  enqueue(bytes: number, span: number): void {
    this.#lengths[this.#burst] = bytes;
    this.#spans[this.#burst] = span;
    this.#burstPackets += span;
    this.#burst += 1;
    this.#burstBytes += bytes;
  }

  /** Delivers the packets of a burst, unless their payload is gone. */
  deliverBurst(connection: PacketConnection, now: Micros): void {
    this.#handBurst(connection, now);
    this.#parts.lent.clear();
  }

  #handBurst(connection: PacketConnection, now: Micros): void {
    const count = this.#burst;
    const packets = this.#burstPackets;
    this.#burst = 0;
    this.#burstBytes = 0;
    this.#burstPackets = 0;
    if (!connection.wire.endPolling()) {
      // Polls again the packets that can be sent.
      this.#onReady(connection);
      return;
    }
    if (count === 0) return;
    const { counters } = connection.port;
    counters.sentPackets += packets;
    const receiver = this.#peerOf(connection);
    if (receiver === undefined || !isPeer(receiver, connection)) {
      counters.undeliverable += packets;
      return;
    }
    let at = 0;
    for (let index = 0; index < count; index += 1) {
      const bytes = this.#lengths[index] as number;
      this.#parse(bytes, at, this.#spans[index]);
      this.#hand(connection, receiver, now);
      at += bytes;
    }
    receiver.wire.handleInputEnd(now);
    this.#onReady(receiver);
  }

  /** True if the receiver's memory lags; the sender continues once it has caught up. */
  holdsBack(connection: PacketConnection): boolean {
    const receiver = this.#peerOf(connection);
    if (receiver === undefined || !isPeer(receiver, connection)) return false;
    if (!receiver.qp.congested) return false;
    if (!receiver.held.includes(connection)) receiver.held.push(connection);
    return true;
  }

  /** The other end of a connection; undefined for datagrams. */
  #peerOf({ peer, destQpn, qp }: PacketConnection): PacketConnection | undefined {
    if (peer === undefined || qp.type === QPType.ud) return undefined;
    return this.#parts.wires.find(peer, destQpn);
  }

  /** Delivers the packet in the buffer to its receiver. */
  deliver(sender: PacketConnection, bytes: number, now: Micros): void {
    this.#parse(bytes);
    sender.port.counters.sentPackets += 1;
    if (sender.port.down) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    const vector = this.#vectorOf(sender);
    if (!this.#parts.faults.active) this.#pass(sender, vector, bytes, now);
    else if (this.#applyFaults(sender, vector, bytes, now)) {
      this.#parts.faults.passed({ connection: sender, vector, arrival: undefined }, now);
      this.deliverHeld(now);
    }
  }

  /** Passes the packet in the buffer to its receiver. */
  #pass(
    sender: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    now: Micros,
  ): void {
    if (this.#parts.recorder.watched) this.#record(sender, vector, bytes, false);
    if (sender.qp.type === QPType.ud) {
      this.#deliverDatagram(sender, vector, bytes, now);
      return;
    }
    if (sender.path !== undefined) {
      this.#leave(sender.path, bytes, now);
      return;
    }
    const receiver = this.#peerOf(sender);
    if (receiver !== undefined && isPeer(receiver, sender)) this.#handOver(sender, receiver, now);
    else sender.port.counters.undeliverable += 1;
  }

  // Faults

  /** True if the packet in the buffer was delivered, possibly twice. */
  #applyFaults(
    sender: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    now: Micros,
  ): boolean {
    const route = vector && this.#parts.routes.find(sender.port, vector);
    if (vector === undefined || route === undefined) {
      this.#pass(sender, vector, bytes, now);
      return true;
    }
    const { peer, source, destination } = route;
    const receiver = this.#peerOf(sender);
    const facts: PacketFacts = {
      out: { device: sender.port.name, qpNum: sender.qp.qpn, remote: destination },
      in: peer && { device: peer.name, qpNum: this.#packet.destQpn, remote: source },
      receiver: receiver !== undefined && isPeer(receiver, sender) ? receiver : undefined,
    };
    const flow = { connection: sender, vector, arrival: undefined };
    const fate = this.#parts.faults.fateOf(facts, flow, this.#packet, now);
    if (fate.dropped) return false;
    if (fate.answer !== NO_ANSWER && facts.receiver !== undefined) {
      // The NAK also acknowledges earlier requests, which must be in memory first.
      facts.receiver.wire.refuse?.(fate.answer);
      this.#onReady(facts.receiver);
      return false;
    }
    if (fate.due > now) {
      const held = this.#parts.faults.hold(flow, this.bytes.subarray(0, bytes));
      if (!held) sender.port.counters.undeliverable += 1;
      return false;
    }
    for (let copy = 0; copy < fate.copies; copy += 1) {
      if (fate.damaged) this.#passDamaged(sender, route, bytes, now);
      else this.#pass(sender, vector, bytes, now);
    }
    return true;
  }

  #passDamaged(sender: PacketConnection, route: Route, bytes: number, now: Micros): void {
    if (this.#parts.recorder.watched) this.#record(sender, route.vector, bytes, true);
    if (route.path !== undefined) {
      this.#leave(route.path, bytes, now, true);
      if (!route.multicast) return;
    }
    const ports = this.#portsOf(route);
    for (const { counters, down } of ports) {
      if (down) sender.port.counters.undeliverable += 1;
      else counters.icrcErrors += 1;
    }
    if (ports.size === 0 && route.path === undefined) sender.port.counters.undeliverable += 1;
  }

  /** The ports of this host that receive packets of the route. */
  #portsOf({ vector, peer, multicast }: Route): ReadonlySet<PacketPort> {
    const ports = new Set<PacketPort>();
    if (!multicast) return peer === undefined ? ports : ports.add(peer);
    const members = this.#parts.groups.members(vector.dgid);
    this.groupCopies += members.size;
    for (const { wire } of members) if (wire instanceof PacketConnection) ports.add(wire.port);
    return ports;
  }

  /** Delivers held packets that are due. */
  deliverHeld(now: Micros): void {
    for (;;) {
      const held = this.#parts.faults.poll(now);
      if (held === undefined) break;
      this.#deliverOne(held, now);
    }
    this.#parts.outward.transmit(now);
  }

  #deliverOne(held: HeldPacket, now: Micros): void {
    const { connection: sender, vector, arrival, bytes, copies, damaged } = held;
    if (arrival !== undefined) {
      this.#parts.arrivals.deliverHeld(held, arrival);
      return;
    }
    const route = vector && this.#parts.routes.find(sender.port, vector);
    const receiver = this.#peerOf(sender);
    // Nothing paused the sender meanwhile.
    if (route === undefined || receiver?.qp.congested === true) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    for (let copy = 0; copy < copies; copy += 1) {
      this.bytes.set(bytes);
      this.#parse(bytes.length);
      if (damaged) this.#passDamaged(sender, route, bytes.length, now);
      else this.#pass(sender, vector, bytes.length, now);
    }
  }

  /** Reads the packet in the buffer. */
  #parse(bytes: number, at = 0, span = 1): void {
    const refusal = parsePacket(this.bytes, at, bytes, this.#packet, span);
    assert(refusal === PacketRefusal.none, 'own packet is malformed');
  }

  /** Shows the packet in the buffer to captures. */
  #record(
    { port, qp }: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    damaged: boolean,
  ): void {
    const route = vector && this.#parts.routes.find(port, vector);
    if (route === undefined) return;
    const { peer, multicast } = route;
    const ends = {
      sender: { device: port.name, qpn: qp.qpn },
      receiver:
        multicast || peer === undefined
          ? undefined
          : { device: peer.name, qpn: this.#packet.destQpn },
    };
    this.#parts.recorder.show(this.bytes, bytes, route, ends, damaged);
  }

  /** The destination of the packet polled last. */
  #vectorOf({ qp, wire, vector }: PacketConnection): AddressVector | undefined {
    if (qp.type !== QPType.ud) return vector;
    return (wire.destination as AddressHandle | undefined)?.vector;
  }

  #deliverDatagram(
    sender: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    now: Micros,
  ): void {
    const route = vector && this.#parts.routes.find(sender.port, vector);
    if (route === undefined) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    const { peer, path } = route;
    if (path !== undefined) {
      sender.leaves = true;
      this.#leave(path, bytes, now);
      if (!route.multicast) return;
    }
    this.#parts.routes.writeGrh(route, bytes);
    if (route.multicast) {
      const members = this.#parts.groups.members(route.vector.dgid);
      this.groupCopies += members.size;
      let copies = 0;
      for (const { wire } of members) {
        if (!(wire instanceof PacketConnection)) continue;
        this.#handOverDatagram(sender, wire, now);
        copies += 1;
      }
      if (copies === 0 && path === undefined) sender.port.counters.undeliverable += 1;
      return;
    }
    const receiver = peer && this.#parts.wires.find(peer, this.#packet.destQpn);
    this.#handOverDatagram(sender, receiver, now);
  }

  #handOverDatagram(
    sender: PacketConnection,
    receiver: PacketConnection | undefined,
    now: Micros,
  ): void {
    // Drop datagrams, since nothing can tell their sender to wait for slow memory.
    const takes = receiver?.qp.type === QPType.ud && !receiver.qp.congested;
    if (takes) this.#handOver(sender, receiver, now);
    else sender.port.counters.undeliverable += 1;
  }

  #handOver(sender: PacketConnection, receiver: PacketConnection, now: Micros): void {
    const { down } = receiver.port;
    if (down) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    this.#hand(sender, receiver, now);
    receiver.wire.handleInputEnd(now);
    this.#onReady(receiver);
  }

  #hand(sender: PacketConnection, receiver: PacketConnection, now: Micros): void {
    const { counters } = sender.port;
    receiver.handlePacket(counters, this.#packet, this.bytes, this.#parts.routes.grh, now);
  }
}

/**
 * A connected queue pair accepts packets only from the one that it named, so programs of one host cannot
 * write into each other's connections. Both addresses must be those of the connection, as between hosts, so a
 * program that mixes up GIDs fails on one host, too.
 */
function isPeer(receiver: PacketConnection, sender: PacketConnection): boolean {
  if (receiver.knownPlace === sender.place) return true;
  const { qp, peer, destQpn } = receiver;
  const named = peer === sender.port && destQpn === sender.qp.qpn && qp.type === sender.qp.type;
  if (!named || !isFacing(receiver, sender)) return false;
  receiver.knownPlace = sender.place;
  return true;
}

/** True if each sends to the address that the other one sends from. */
function isFacing(one: PacketConnection, other: PacketConnection): boolean {
  const { sgid, vector } = one;
  if (sgid === undefined || vector === undefined) return false;
  if (other.sgid === undefined || other.vector === undefined) return false;
  return sameBytes(vector.dgid, other.sgid) && sameBytes(other.vector.dgid, sgid);
}
