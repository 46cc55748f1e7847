/**
 * Packets between the RoCE devices of one host, through memory: no UDP, no ICRC, no queue. What leaves
 * the host, or comes from another one, passes `UdpLink`.
 *
 * A connection that may have packets waits for its turn. In its turn, its packets are written into one
 * buffer and handed to their receivers; the receivers' answers wait for their own turn. A
 * turn is bounded, and so is what all connections move before sockets and clients get theirs.
 *
 * A packet without a receiver is dropped and counted, as a network would lose it. A connection whose
 * peer's memory is behind waits for it, so slow memory slows its senders down and loses nothing.
 */
import { QPType } from '../../../verbs-api/contract/verbs/enums.ts';
import type { PacketTap } from '../../capture/capture-tap.ts';
import type { ConnectionFacts, Fault } from '../../faults/fault.ts';
import { assert } from '../../invariants/assert.ts';
import type { AddressVector } from '../../rnic/qp-attributes.ts';
import type { QP } from '../../rnic/queue-pair.ts';
import { type Micros, NEVER } from '../../rnic/wire-port.ts';
import { PACKET_BYTES_MAX, type PacketWire } from '../../roce/transport/packet-wire.ts';
import { makePacket, PacketRefusal, parsePacket } from '../../roce/wire/packet.ts';
import { MulticastGroups } from './multicast-groups.ts';
import { type ConnectionUser, PacketConnection, type PacketQP } from './packet-connection.ts';
import { type HeldPacket, NO_ANSWER, type PacketFacts, PacketFaults } from './packet-faults.ts';
import type { PacketPort } from './packet-port.ts';
import { PacketRecorder } from './packet-recorder.ts';
import { endOf, PacketRoutes, type Route } from './packet-routes.ts';
import {
  countFailure,
  countPacket,
  countRequest,
  countSent,
  type RoceCounters,
} from './roce-counters.ts';
import { sameBytes } from './roce-port.ts';
import { type Arrival, type LinkPath, type LinkUser, UdpLink } from './udp-link.ts';

/** What one connection sends before the next gets its turn. */
const SHARE_BYTES = 131_072;
/** What all connections send before sockets and clients get their turn: about a millisecond. */
const TURN_BYTES = 4_194_304;
/** Cost of a packet in addition to its payload, expressed in bytes. */
const PACKET_COST_BYTES = 1024;
/** The most packets of one turn. */
const BURST_PACKETS_MAX = SHARE_BYTES / PACKET_COST_BYTES + 1;
/** Last packets of a wire that has ended: answers that were due, of which the rest is lost. */
const REST_PACKETS_MAX = 256;
/** Places in the queue of turns that are kept although they are done with. */
const DONE_MAX = 1024;

/** P_Key of all packets, without the bit of full membership. */
const PKEY_MASK = 0x7fff;

/** What the network needs of its host. */
export interface PacketNetworkHost {
  /** Calls back in the next turn of the event loop. */
  soon(run: () => void): void;
  /** Carries packets, with all consequences. */
  drain(): void;
  now(): Micros;
  /** Something about packets of other hosts, for the log. */
  notePackets(level: 'info' | 'warn', text: string): void;
  /** A queue pair is in error, or gone: receives that are posted to it later come back. */
  watchErrored(): void;
  /** A fault of a device, or of one of its queue pairs, fired on a packet. */
  strike(fault: Fault, device: string, qpn: number | undefined): void;
}

/** What the queue pairs of these devices pass through their wire as a datagram's destination. */
interface AddressHandle {
  /** The same object for every datagram of the handle. */
  readonly vector: AddressVector;
}

/** See the module's comment. */
export class PacketNetwork implements ConnectionUser, LinkUser {
  readonly #host: PacketNetworkHost;
  readonly #recorder: PacketRecorder;
  readonly #faults: PacketFaults;
  readonly #connections = new Map<PacketPort, Map<number, PacketConnection>>();
  /** Connections in the order of their turns, from `#head` on. */
  readonly #turns: PacketConnection[] = [];
  #head = 0;
  /** Connections with a deadline, and when the first of them may be due. */
  readonly #timed = new Set<PacketConnection>();
  #due: Micros = NEVER;
  /** Made when packets leave the host first, or may come. */
  #link: UdpLink | undefined;
  readonly #outward: boolean;
  /** Connections whose packets wait until the link has room. */
  #blocked = new Set<PacketConnection>();
  /** Connections that were given packets of other hosts in this batch. */
  readonly #reading: PacketConnection[] = [];
  #readAt: Micros = 0;
  readonly #routes: PacketRoutes;
  readonly groups = new MulticastGroups();
  /** Sent since the host's other work had its turn. */
  #spentBytes = 0;
  #givingWay = false;
  /** The packets on their way, one behind the other, and the lengths of those of a burst. */
  readonly #bytes = new Uint8Array(SHARE_BYTES + PACKET_BYTES_MAX);
  readonly #lengths = new Uint32Array(BURST_PACKETS_MAX);
  #burst = 0;
  #burstBytes = 0;
  readonly #packet = makePacket();

  /**
   * `tap` sees every packet that reaches its receiver, or would. `outward`: packets may leave the host.
   */
  constructor(host: PacketNetworkHost, tap?: PacketTap, outward = false) {
    this.#host = host;
    this.#outward = outward;
    this.#routes = new PacketRoutes(() => this.#linkOutward());
    this.#recorder = new PacketRecorder(tap);
    // After this turn: a packet is on its way.
    this.#faults = new PacketFaults((fault, device, qpn) => {
      host.soon(() => host.strike(fault, device, qpn));
    });
  }

  /** The wire of a queue pair of `port` that enters RTR. */
  connect(qp: PacketQP, port: PacketPort, wire: PacketWire): PacketConnection {
    const connection = new PacketConnection(qp, port, wire, this);
    let ofPort = this.#connections.get(port);
    if (ofPort === undefined) {
      ofPort = new Map();
      this.#connections.set(port, ofPort);
    }
    assert(!ofPort.has(qp.qpn), 'a queue pair has one wire');
    ofPort.set(qp.qpn, connection);
    if (qp.type === QPType.ud) this.listen(port);
    return connection;
  }

  /** Takes packets of other hosts for this port from now on, as far as its addresses are free. */
  listen(port: PacketPort): void {
    const link = this.#linkOutward();
    for (const gid of port.ownGids()) if (gid !== undefined) link?.listen(port, gid);
  }

  /**
   * The code of the largest path MTU from a GID of `port` to one of another host; 0 if that cannot be
   * reached. Throws `VerbsError` EADDRINUSE when UDP's port is taken.
   */
  outwardMtu(port: PacketPort, sgid: Uint8Array, dgid: Uint8Array): number {
    return this.#linkOutward()?.pathMtu(port, sgid, dgid) ?? 0;
  }

  /** See `ConnectionUser`. */
  wayOut(port: PacketPort, vector: AddressVector): LinkPath | undefined {
    return this.#routes.find(port, vector)?.path;
  }

  /** Nothing leaves or comes any more. */
  close(): void {
    this.#link?.close();
  }

  /** See `ConnectionUser`. */
  handleReady(connection: PacketConnection): void {
    if (connection.queued || !connection.alive) return;
    connection.queued = true;
    this.#turns.push(connection);
  }

  /** See `ConnectionUser`. */
  handleEnded(connection: PacketConnection, now: Micros): void {
    // What it has acknowledged is still said: the peer must not find out by a timeout.
    this.#sendRest(connection, now);
    this.#connections.get(connection.port)?.delete(connection.qp.qpn);
    this.#timed.delete(connection);
    this.#release(connection);
    this.#host.watchErrored();
  }

  /** The queue pair's memory has caught up: whoever waits for it goes on. */
  memoryReady(qp: QP): void {
    if (qp.wire instanceof PacketConnection) this.#release(qp.wire);
  }

  /** Every wire that has not ended. */
  *connections(): Iterable<PacketConnection> {
    for (const ofPort of this.#connections.values()) yield* ofPort.values();
  }

  /** The ends of a queue pair that has a destination of its own, for scopes of faults. */
  factsOf(qp: QP): ConnectionFacts | undefined {
    const { wire } = qp;
    if (!(wire instanceof PacketConnection) || qp.type === QPType.ud) return undefined;
    const { vector } = wire;
    if (vector === undefined) return undefined;
    return { device: wire.port.name, qpNum: qp.qpn, remote: endOf(vector.dgid) };
  }

  /** True when nothing waits for a turn. */
  get idle(): boolean {
    return this.#head === this.#turns.length;
  }

  /**
   * Gives each waiting wire a turn. False when none waited, or when the host's other work
   * comes first; the network then has itself called again.
   */
  carry(now: Micros): boolean {
    if (this.#givingWay || this.idle) return false;
    const end = this.#turns.length;
    while (this.#head < end) {
      if (this.#spentBytes >= TURN_BYTES) {
        this.#giveWay();
        return true;
      }
      const connection = this.#turns[this.#head] as PacketConnection;
      this.#head += 1;
      connection.queued = false;
      if (connection.alive) this.#serve(connection, now);
    }
    this.#dropDone();
    return true;
  }

  /** When `handleDeadline` may be due, or `NEVER`. */
  nextDeadline(): Micros {
    const due = Math.min(this.#due, this.#link?.deadline ?? NEVER);
    return this.#faults.active ? Math.min(due, this.#faults.nextDeadline()) : due;
  }

  handleDeadline(now: Micros): void {
    if (this.#faults.active) this.#deliverHeld(now);
    if (this.#link?.handleDeadline(now) === true) this.#unblock();
    if (now < this.#due) return;
    this.#due = NEVER;
    for (const connection of this.#timed) {
      if (connection.nextDeadline() <= now) this.#handleDeadline(connection, now);
      this.#due = Math.min(this.#due, connection.nextDeadline());
    }
  }

  /** These faults apply from now on; packets that others held back arrive. */
  setFaults(faults: readonly Fault[] | undefined): void {
    if (!this.#faults.setFaults(faults)) return;
    this.#host.soon(() => {
      this.#deliverHeld(this.#host.now());
      this.#host.drain();
    });
  }

  /** The ports have other GIDs: what goes to one that is gone is lost from now on. */
  followAddresses(): void {
    this.#routes.forget();
    this.#link?.follow();
    for (const connection of this.connections()) {
      connection.follow();
      if (connection.qp.type === QPType.ud) this.listen(connection.port);
    }
  }

  /** For the ends of turns. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    for (const [port, connections] of this.#connections) {
      for (const [qpn, connection] of connections) {
        const { qp, alive } = connection;
        assert(alive && qp.qpn === qpn && connection.port === port, 'a wire is found by its QP');
        assert(qp.wire === connection, 'a queue pair knows its wire');
      }
    }
    for (const connection of this.#timed) assert(connection.alive, 'what has a deadline is alive');
    for (let at = this.#head; at < this.#turns.length; at += 1) {
      assert(this.#turns[at]?.queued === true, 'what waits for a turn knows it');
    }
  }

  // Steps

  #handleDeadline(connection: PacketConnection, now: Micros): void {
    const { wire, port } = connection;
    const before = wire.timeouts;
    connection.handleDeadline(now);
    port.counters.timeouts += wire.timeouts - before;
  }

  #serve(connection: PacketConnection, now: Micros): void {
    const { wire, path } = connection;
    if (path !== undefined && this.#link?.blocked === true) {
      this.#blocked.add(connection);
      return;
    }
    if (path !== undefined && this.#mayLeaveAtOnce(connection)) {
      this.#serveOutward(connection, path, now);
      return;
    }
    const burst = this.#mayBurst(connection);
    let sentBytes = 0;
    let more = true;
    while (sentBytes < SHARE_BYTES && !this.#holdBack(connection)) {
      if (!this.#hasWayOut(connection, now)) break;
      const bytes = wire.pollPacket(this.#bytes, this.#burstBytes, now);
      more = bytes > 0;
      if (!more) break;
      sentBytes += bytes + PACKET_COST_BYTES;
      if (burst) this.#enqueue(bytes);
      else if (wire.endPolling()) this.#deliver(connection, bytes, now);
    }
    if (burst) this.#deliverBurst(connection, now);
    this.#link?.transmit(now);
    this.#endTurn(connection, sentBytes, more, now);
  }

  #endTurn(connection: PacketConnection, sentBytes: number, more: boolean, now: Micros): void {
    this.#spentBytes += sentBytes;
    this.#settle(connection, now);
    if (more && sentBytes > 0) this.handleReady(connection);
  }

  /** True when packets may be written where they leave: nobody looks at them. */
  #mayLeaveAtOnce({ port }: PacketConnection): boolean {
    return !this.#faults.active && !this.#recorder.watched && !port.down;
  }

  /**
   * False when packets of the connection leave the host and the link has no room; the connection goes
   * on once it has. For packets that are whole.
   */
  #hasWayOut(connection: PacketConnection, now: Micros): boolean {
    const leaves = connection.leaves || connection.path !== undefined;
    if (!leaves || this.#link?.makeRoom(now) !== false) return true;
    this.#blocked.add(connection);
    return false;
  }

  /** A turn of a connection to another host. */
  #serveOutward(connection: PacketConnection, path: LinkPath, now: Micros): void {
    const { wire } = connection;
    const { counters } = connection.port;
    const link = this.#link;
    let sentBytes = 0;
    let more = true;
    while (sentBytes < SHARE_BYTES && link?.takes(path) === true) {
      const start = link.nextStart;
      const bytes = wire.pollPacket(link.bytes, start, now);
      more = bytes > 0;
      if (!more) break;
      sentBytes += bytes + PACKET_COST_BYTES;
      countSent(link.bytes, start, counters);
      link.add(bytes, path);
    }
    if (wire.endPolling()) link?.transmit(now);
    else {
      link?.discard();
      this.handleReady(connection);
    }
    this.#endTurn(connection, sentBytes, more, now);
  }

  #linkOutward(): UdpLink | undefined {
    if (this.#outward) this.#link ??= new UdpLink(this);
    return this.#link;
  }

  /** The link has room again. */
  #unblock(): void {
    const waiting = this.#blocked;
    this.#blocked = new Set();
    for (const connection of waiting) this.handleReady(connection);
  }

  /** The packet in the buffer leaves the host, at the latest at the end of the turn. */
  #leave(path: LinkPath, bytes: number, now: Micros, damaged = false): void {
    const link = this.#link;
    const { counters } = path.port;
    if (link?.takes(path) === false) link.transmit(now);
    if (link?.takes(path) !== true) {
      counters.undeliverable += 1;
      return;
    }
    countPacket(this.#packet, counters, undefined);
    link.bytes.set(this.#bytes.subarray(0, bytes), link.nextStart);
    link.add(bytes, path, damaged);
  }

  // Packets of other hosts

  /** See `LinkUser`. */
  handleArrival(ports: ReadonlySet<PacketPort>, arrival: Arrival, bytes: Uint8Array): void {
    const packet = this.#packet;
    const refusal = parsePacket(bytes, arrival.start, arrival.length, packet);
    for (const port of ports) {
      if (port.down) continue;
      const { counters } = port;
      if (refusal !== PacketRefusal.none) counters.malformed += 1;
      else if ((packet.pkey & PKEY_MASK) !== PKEY_MASK) counters.badPkeys += 1;
      else if (this.#arrive(port, arrival, bytes)) return;
      else counters.unexpected += 1;
    }
  }

  /** True if a queue pair of the port takes the packet. */
  #arrive(port: PacketPort, arrival: Arrival, bytes: Uint8Array): boolean {
    const packet = this.#packet;
    const receiver = this.#connections.get(port)?.get(packet.destQpn);
    if (receiver === undefined || !isForOneOf(receiver, arrival)) return false;
    // Nothing tells the sender to wait for slow memory: a connection sends again.
    if (receiver.qp.congested) return false;
    if (!this.#faults.active) this.#take(receiver, arrival, bytes, false);
    else {
      const now = this.#host.now();
      if (this.#meetFaultsOnArrival(receiver, arrival, bytes, now)) this.#deliverHeld(now);
    }
    return true;
  }

  /** The queue pair gets the packet. */
  #take(receiver: PacketConnection, arrival: Arrival, bytes: Uint8Array, damaged: boolean): void {
    const { port, qp } = receiver;
    if (damaged) {
      port.counters.icrcErrors += 1;
      return;
    }
    if (this.#recorder.watched) {
      const ends = { sender: undefined, receiver: { device: port.name, qpn: qp.qpn } };
      this.#recorder.showArrival(bytes, arrival, ends);
    }
    if (qp.type === QPType.ud) this.#routes.writeArrivedGrh(arrival);
    if (this.#reading.length === 0) this.#readAt = this.#host.now();
    if (!receiver.reading) {
      receiver.reading = true;
      this.#reading.push(receiver);
    }
    this.#hand(undefined, receiver, bytes, this.#readAt);
  }

  /** See `LinkUser`. */
  handleArrivalsEnd(): void {
    const now = this.#host.now();
    for (const connection of this.#reading) {
      connection.reading = false;
      if (!connection.alive) continue;
      connection.wire.handleInputEnd(now);
      this.handleReady(connection);
    }
    this.#reading.length = 0;
  }

  /** See `LinkUser`. */
  handleInputEnd(): void {
    this.#host.drain();
  }

  /** See `LinkUser`. */
  note(level: 'info' | 'warn', text: string): void {
    this.#host.notePackets(level, text);
  }

  /**
   * True when packets of the connection may wait for the others of a turn, so that memory is read
   * and written once for all. Who watches packets, or has faults happen to them, gets each by
   * itself, and so does the receiver of a datagram, which the wire names only until the next.
   */
  #mayBurst({ qp, port, peer }: PacketConnection): boolean {
    if (qp.type === QPType.ud || this.#faults.active || this.#recorder.watched) return false;
    return !port.down && peer?.down === false;
  }

  /** The packet behind those of the burst belongs to it. */
  #enqueue(bytes: number): void {
    this.#lengths[this.#burst] = bytes;
    this.#burst += 1;
    this.#burstBytes += bytes;
  }

  /** Delivers the packets of a burst, unless their payload is gone. */
  #deliverBurst(connection: PacketConnection, now: Micros): void {
    const count = this.#burst;
    this.#burst = 0;
    this.#burstBytes = 0;
    if (!connection.wire.endPolling()) {
      // What can be sent of it is polled again.
      this.handleReady(connection);
      return;
    }
    if (count === 0) return;
    const { counters } = connection.port;
    counters.sentPackets += count;
    const receiver = this.#peerOf(connection);
    if (receiver === undefined || !isPeer(receiver, connection)) {
      counters.undeliverable += count;
      return;
    }
    let at = 0;
    for (let index = 0; index < count; index += 1) {
      const bytes = this.#lengths[index] as number;
      this.#parse(bytes, at);
      this.#hand(connection.port.counters, receiver, this.#bytes, now);
      at += bytes;
    }
    receiver.wire.handleInputEnd(now);
    this.handleReady(receiver);
  }

  /** Sends what a wire that has ended still owes its peer: a NAK, acknowledgments. */
  #sendRest(connection: PacketConnection, now: Micros): void {
    const { wire } = connection;
    for (let packets = 0; packets < REST_PACKETS_MAX; packets += 1) {
      const bytes = wire.pollPacket(this.#bytes, 0, now);
      if (bytes === 0) break;
      if (wire.endPolling()) this.#deliver(connection, bytes, now);
    }
    this.#link?.transmit(now);
  }

  /** True when the receiver's memory is behind; the sender goes on once it has caught up. */
  #holdBack(connection: PacketConnection): boolean {
    const receiver = this.#peerOf(connection);
    if (receiver === undefined || !isPeer(receiver, connection)) return false;
    if (!receiver.qp.congested) return false;
    if (!receiver.held.includes(connection)) receiver.held.push(connection);
    return true;
  }

  #release(connection: PacketConnection): void {
    const { held } = connection;
    for (const sender of held) this.handleReady(sender);
    held.length = 0;
  }

  /** The other end of a connection; undefined for datagrams. */
  #peerOf({ peer, destQpn, qp }: PacketConnection): PacketConnection | undefined {
    if (peer === undefined || qp.type === QPType.ud) return undefined;
    return this.#connections.get(peer)?.get(destQpn);
  }

  /** Hands the packet in the buffer to its receiver. */
  #deliver(sender: PacketConnection, bytes: number, now: Micros): void {
    this.#parse(bytes);
    sender.port.counters.sentPackets += 1;
    if (sender.port.down) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    const vector = this.#vectorOf(sender);
    if (!this.#faults.active) this.#pass(sender, vector, bytes, now);
    else if (this.#meetFaults(sender, vector, bytes, now)) {
      this.#faults.passed({ connection: sender, vector, arrival: undefined }, now);
      this.#deliverHeld(now);
    }
  }

  /** The packet in the buffer reaches its receiver. */
  #pass(
    sender: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    now: Micros,
  ): void {
    if (this.#recorder.watched) this.#record(sender, vector, bytes, false);
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

  /** True if the packet in the buffer passed, perhaps twice. */
  #meetFaults(
    sender: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    now: Micros,
  ): boolean {
    const route = vector && this.#routes.find(sender.port, vector);
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
    const fate = this.#faults.meet(facts, flow, this.#packet, now);
    if (fate.dropped) return false;
    if (fate.answer !== NO_ANSWER && facts.receiver !== undefined) {
      // The answer is its own: what it has acknowledged by that must be in its memory first.
      facts.receiver.wire.refuse?.(fate.answer);
      this.handleReady(facts.receiver);
      return false;
    }
    if (fate.due > now) {
      const held = this.#faults.hold(flow, this.#bytes.subarray(0, bytes));
      if (!held) sender.port.counters.undeliverable += 1;
      return false;
    }
    for (let copy = 0; copy < fate.copies; copy += 1) {
      if (fate.damaged) this.#passDamaged(sender, route, bytes, now);
      else this.#pass(sender, vector, bytes, now);
    }
    return true;
  }

  /** A packet of another host meets faults. True if it arrives, perhaps twice. */
  #meetFaultsOnArrival(
    receiver: PacketConnection,
    arrival: Arrival,
    bytes: Uint8Array,
    now: Micros,
  ): boolean {
    const { port, qp } = receiver;
    const facts: PacketFacts = {
      out: undefined,
      in: { device: port.name, qpNum: qp.qpn, remote: endOf(arrival.sourceGid) },
      receiver,
    };
    const flow = { connection: receiver, vector: undefined, arrival };
    const fate = this.#faults.meet(facts, flow, this.#packet, now);
    if (fate.dropped) return false;
    if (fate.answer !== NO_ANSWER) {
      receiver.wire.refuse?.(fate.answer);
      this.handleReady(receiver);
      return false;
    }
    if (fate.due > now) {
      const { start, length } = arrival;
      const kept = { ...arrival, sourceGid: arrival.sourceGid.slice(), start: 0 };
      const whole = bytes.subarray(start, start + length);
      if (!this.#faults.hold({ ...flow, arrival: kept }, whole)) port.counters.undeliverable += 1;
      return false;
    }
    for (let copy = 1; copy < fate.copies; copy += 1) {
      this.#take(receiver, arrival, bytes, fate.damaged);
    }
    this.#take(receiver, arrival, bytes, fate.damaged);
    this.#faults.passed(flow, now);
    return true;
  }

  #passDamaged(sender: PacketConnection, route: Route, bytes: number, now: Micros): void {
    if (this.#recorder.watched) this.#record(sender, route.vector, bytes, true);
    if (route.path !== undefined) {
      this.#leave(route.path, bytes, now, true);
      return;
    }
    if (route.peer === undefined) return;
    const { counters, down } = route.peer;
    if (down) sender.port.counters.undeliverable += 1;
    else counters.icrcErrors += 1;
  }

  /** Packets whose time has come arrive. */
  #deliverHeld(now: Micros): void {
    for (;;) {
      const held = this.#faults.poll(now);
      if (held === undefined) break;
      this.#deliverOne(held, now);
    }
    this.#link?.transmit(now);
  }

  #deliverOne(held: HeldPacket, now: Micros): void {
    const { connection: sender, vector, arrival, bytes, copies, damaged } = held;
    if (arrival !== undefined) {
      this.#deliverHeldArrival(held, arrival);
      return;
    }
    const route = vector && this.#routes.find(sender.port, vector);
    const receiver = this.#peerOf(sender);
    // Nothing held its sender back meanwhile.
    if (route === undefined || receiver?.qp.congested === true) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    for (let copy = 0; copy < copies; copy += 1) {
      this.#bytes.set(bytes);
      this.#parse(bytes.length);
      if (damaged) this.#passDamaged(sender, route, bytes.length, now);
      else this.#pass(sender, vector, bytes.length, now);
    }
  }

  #deliverHeldArrival({ connection, bytes, copies, damaged }: HeldPacket, arrival: Arrival): void {
    const refusal = parsePacket(bytes, 0, bytes.length, this.#packet);
    assert(refusal === PacketRefusal.none, 'what is held back is well-formed');
    if (!connection.alive || connection.qp.congested) {
      connection.port.counters.undeliverable += 1;
      return;
    }
    for (let copy = 0; copy < copies; copy += 1) this.#take(connection, arrival, bytes, damaged);
    this.handleArrivalsEnd();
  }

  /** Reads the packet in the buffer. */
  #parse(bytes: number, at = 0): void {
    const refusal = parsePacket(this.#bytes, at, bytes, this.#packet);
    assert(refusal === PacketRefusal.none, 'our own packets are well-formed');
  }

  /** Shows the packet in the buffer to who watches. */
  #record(
    { port, qp }: PacketConnection,
    vector: AddressVector | undefined,
    bytes: number,
    damaged: boolean,
  ): void {
    const route = vector && this.#routes.find(port, vector);
    if (route === undefined) return;
    const { peer, multicast } = route;
    const ends = {
      sender: { device: port.name, qpn: qp.qpn },
      receiver:
        multicast || peer === undefined
          ? undefined
          : { device: peer.name, qpn: this.#packet.destQpn },
    };
    this.#recorder.show(this.#bytes, bytes, route, ends, damaged);
  }

  /** Where the packet polled last goes. */
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
    const route = vector && this.#routes.find(sender.port, vector);
    if (route === undefined) {
      sender.port.counters.undeliverable += 1;
      return;
    }
    const { peer, path } = route;
    if (path !== undefined) {
      sender.leaves = true;
      this.#leave(path, bytes, now);
      return;
    }
    this.#routes.writeGrh(route, bytes);
    if (route.multicast) {
      for (const { wire } of this.groups.members(route.vector.dgid)) {
        if (wire instanceof PacketConnection) this.#handOverDatagram(sender, wire, now);
      }
      return;
    }
    const receiver = peer && this.#connections.get(peer)?.get(this.#packet.destQpn);
    this.#handOverDatagram(sender, receiver, now);
  }

  #handOverDatagram(
    sender: PacketConnection,
    receiver: PacketConnection | undefined,
    now: Micros,
  ): void {
    // Nothing tells a sender of datagrams to wait for slow memory: they are lost instead.
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
    this.#hand(sender.port.counters, receiver, this.#bytes, now);
    receiver.wire.handleInputEnd(now);
    this.handleReady(receiver);
  }

  /** `from`: counters of the sender's port, if it is of this host. */
  #hand(
    from: RoceCounters | undefined,
    receiver: PacketConnection,
    bytes: Uint8Array,
    now: Micros,
  ): void {
    const { counters } = receiver.port;
    countPacket(this.#packet, from, counters);
    if (receiver.qp.type === QPType.rc) countRequest(this.#packet, receiver.rqPsn, counters);
    receiver.wire.handlePacket(this.#packet, bytes, now, this.#routes.grh);
  }

  /** Reports a failure to the queue pair, and notes when the wire wants to be called. */
  #settle(connection: PacketConnection, now: Micros): void {
    const { qp, wire } = connection;
    const failed = wire.pollFailure();
    if (failed !== undefined) {
      countFailure(failed.failure, connection.port.counters);
      this.#sendRest(connection, now);
      qp.terminated(failed.by, failed.failure, now);
      connection.end(now);
    }
    if (!connection.alive) return;
    wire.assertInvariants?.();
    const due = wire.nextDeadline();
    if (due === NEVER) {
      if (this.#timed.size > 0) this.#timed.delete(connection);
    } else {
      this.#timed.add(connection);
      this.#due = Math.min(this.#due, due);
    }
  }

  #giveWay(): void {
    this.#givingWay = true;
    this.#dropDone();
    this.#host.soon(this.#goOn);
  }

  readonly #goOn = (): void => {
    this.#givingWay = false;
    this.#spentBytes = 0;
    this.#host.drain();
  };

  #dropDone(): void {
    if (this.idle) {
      this.#turns.length = 0;
      this.#head = 0;
      this.#spentBytes = 0;
    } else if (this.#head >= DONE_MAX) {
      this.#turns.splice(0, this.#head);
      this.#head = 0;
    }
  }
}

/**
 * A connected queue pair takes packets of the one that it named itself and of no other: programs of
 * one host cannot write into each other's connections.
 */
function isPeer(receiver: PacketConnection, sender: PacketConnection): boolean {
  const { qp, peer, destQpn } = receiver;
  return peer === sender.port && destQpn === sender.qp.qpn && qp.type === sender.qp.type;
}

/** True if the queue pair takes packets between these addresses: a connected one of its peer's. */
function isForOneOf({ qp, path }: PacketConnection, { sourceGid, destGid }: Arrival): boolean {
  if (qp.type === QPType.ud) return true;
  return (
    path !== undefined && sameBytes(path.destGid, sourceGid) && sameBytes(path.sourceGid, destGid)
  );
}
