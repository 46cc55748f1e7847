/**
 * Packets between the RoCE devices of one host, through memory: no UDP, no ICRC, no queue. `OutwardPackets`
 * sends packets to other hosts, `Arrivals` receives theirs.
 *
 * A connection that may have packets waits for its turn. Then its packets are written into one buffer and
 * delivered; the receivers' answers wait for their own turn. Each turn is bounded, and so is the total before
 * sockets and clients get theirs.
 *
 * A connection waits while its peer's memory lags, so slow memory slows its senders down and loses nothing.
 */
import { assert } from '#base/assert';
import { type Micros, NEVER } from '#base/time';
import { QPType } from '#contract/verbs/enums';
import type { PacketTap } from '#daemon/capture/capture-tap';
import type { ConnectionFacts, Fault } from '#daemon/faults/fault';
import type { LentPayload } from '#daemon/rnic/memory/lent-payload';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { PacketWire } from '#daemon/roce/transport/packet-wire';
import { Arrivals } from './arrivals.ts';
import { Departures, WHOLE_BYTES_MAX } from './departures.ts';
import { MulticastGroups } from './multicast-groups.ts';
import { OutwardPackets } from './outward-packets.ts';
import { type ConnectionUser, PacketConnection, type PacketQP } from './packet-connection.ts';
import { PacketFaults } from './packet-faults.ts';
import type { PacketPort } from './packet-port.ts';
import { PacketRecorder } from './packet-recorder.ts';
import { endOf, PacketRoutes } from './packet-routes.ts';
import { countFailure } from './roce-counters.ts';
import { PACKET_COST_BYTES, SHARE_BYTES, TurnQueue } from './turn-queue.ts';
import type { LinkPath, PacketArrival, UdpUser } from './udp-link.ts';
import type { UdpNetwork } from './udp-network.ts';
import { WireTable } from './wire-table.ts';

/** Limit of the last packets of an ended wire: pending answers. */
const REST_PACKETS_MAX = 256;
/** The network's interface to its host. */
export interface PacketNetworkHost {
  /** Payload that queue pairs of the host lend to each other. */
  readonly lentPayload: LentPayload;
  /** Calls back in the next turn of the event loop. */
  soon(run: () => void): void;
  /** Carries packets, with all consequences. */
  drain(): void;
  now(): Micros;
  /** A line for the log about packets of other hosts. */
  notePackets(level: 'info' | 'warn', text: string): void;
  /** A queue pair is in error or destroyed: receives posted to it later are flushed. */
  watchErrored(): void;
  /** Executes a fault of a device, or of one of its queue pairs, that fired on a packet. */
  fireFault(fault: Fault, device: string, qpn: number | undefined): void;
}

/** Expired timers handled in one call: thousands may be due together. The others stay due. */
const TIMEOUTS_MAX = 256;

export class PacketNetwork implements ConnectionUser, UdpUser {
  readonly #host: PacketNetworkHost;
  readonly #recorder: PacketRecorder;
  readonly #faults: PacketFaults;
  readonly #wires = new WireTable();
  readonly #turns = new TurnQueue();
  /**
   * Connections with a deadline, and a lower bound of these deadlines. Those whose deadline was cleared stay
   * until the bound has passed: a set whose members come and go with each message grows the old space.
   */
  readonly #timed = new Set<PacketConnection>();
  #due: Micros = NEVER;
  readonly #routes: PacketRoutes;
  readonly #outward: OutwardPackets;
  readonly #arrivals: Arrivals;
  readonly #departures: Departures;
  readonly groups: MulticastGroups;
  #givingWay = false;

  /**
   * `tap` sees the packets, as `PacketTap` describes. `udp`: where packets leave the host; default:
   * they do not.
   */
  constructor(host: PacketNetworkHost, tap?: PacketTap, udp?: UdpNetwork) {
    this.#host = host;
    const ready = (connection: PacketConnection) => this.handleReady(connection);
    this.#outward = new OutwardPackets(this, udp, ready);
    const groupNetwork = {
      join: (port: PacketPort, gid: Uint8Array, members: ReadonlySet<QP>) => {
        this.#outward.join(port, gid, members);
      },
      leave: (port: PacketPort, gid: Uint8Array) => this.#outward.leaveGroup(port, gid),
    };
    this.groups = new MulticastGroups(udp === undefined ? undefined : groupNetwork);
    this.#routes = new PacketRoutes(this.#outward);
    this.#recorder = new PacketRecorder(tap);
    // After this turn, since a packet is being delivered.
    this.#faults = new PacketFaults((fault, device, qpn) => {
      host.soon(() => host.fireFault(fault, device, qpn));
    });
    const shared = {
      wires: this.#wires,
      routes: this.#routes,
      faults: this.#faults,
      recorder: this.#recorder,
      lent: host.lentPayload,
    };
    this.#arrivals = new Arrivals(shared, {
      now: () => host.now(),
      handleReady: ready,
      deliverHeld: (now) => this.#departures.deliverHeld(now),
      soon: (run) => host.soon(run),
    });
    this.#departures = new Departures(
      { ...shared, groups: this.groups, outward: this.#outward, arrivals: this.#arrivals },
      ready,
    );
  }

  /** Connects the wire of a queue pair of `port` that enters RTR. */
  connect(qp: PacketQP, port: PacketPort, wire: PacketWire): PacketConnection {
    const connection = new PacketConnection(qp, port, wire, this);
    this.#wires.add(connection);
    if (qp.type === QPType.ud) this.listen(port);
    return connection;
  }

  /** Receives packets of other hosts for this port from now on, on its free addresses. */
  listen(port: PacketPort): void {
    this.#outward.listen(port);
  }

  /**
   * The code of the largest path MTU from a GID of `port` to one of another host; 0 without a route. Throws
   * `VerbsError` EADDRINUSE if the UDP port is taken.
   */
  outwardMtu(port: PacketPort, sgid: Uint8Array, dgid: Uint8Array): number {
    return this.#outward.pathMtu(port, sgid, dgid);
  }

  wayOut(port: PacketPort, vector: AddressVector): LinkPath | undefined {
    return this.#routes.find(port, vector)?.path;
  }

  /** Stops sending and receiving. */
  close(): void {
    this.#outward.close();
  }

  handleReady(connection: PacketConnection): void {
    this.#turns.add(connection);
  }

  handleEnded(connection: PacketConnection, now: Micros): void {
    // Send pending acknowledgments, so that the peer does not time out.
    this.#sendRest(connection, now);
    this.#wires.delete(connection);
    this.#timed.delete(connection);
    this.#release(connection);
    this.#host.watchErrored();
  }

  /** The queue pair's memory has caught up: connections that wait for it continue. */
  memoryReady(qp: QP): void {
    if (qp.wire instanceof PacketConnection) this.#release(qp.wire);
  }

  /** Every wire that has not ended. */
  connections(): Iterable<PacketConnection> {
    return this.#wires.all();
  }

  /** The wire of a queue pair, unless it has ended. */
  connectionOf({ wire }: QP): PacketConnection | undefined {
    return wire instanceof PacketConnection && wire.alive ? wire : undefined;
  }

  /** The ends of a connected queue pair, for scopes of faults. */
  factsOf(qp: QP): ConnectionFacts | undefined {
    const { wire } = qp;
    if (!(wire instanceof PacketConnection) || qp.type === QPType.ud) return undefined;
    const { vector } = wire;
    if (vector === undefined) return undefined;
    return { device: wire.port.name, qpNum: qp.qpn, remote: endOf(vector.dgid) };
  }

  /** True if no connection waits for a turn. */
  get idle(): boolean {
    return this.#turns.idle;
  }

  /**
   * Gives each waiting wire a turn. False if none waited, or if the host's other work comes first; the
   * network is then called again.
   */
  carry(now: Micros): boolean {
    if (this.#givingWay || this.idle) return false;
    for (let waiting = this.#turns.length; waiting > 0; waiting -= 1) {
      if (this.#turns.spent) {
        this.#giveWay();
        return true;
      }
      const connection = this.#turns.take();
      if (connection.alive) this.#serve(connection, now);
    }
    this.#turns.endRound();
    return true;
  }

  /** When `handleDeadline` may be due, or `NEVER`. */
  nextDeadline(): Micros {
    const due = Math.min(this.#due, this.#outward.deadline ?? NEVER);
    return this.#faults.active ? Math.min(due, this.#faults.nextDeadline()) : due;
  }

  handleDeadline(now: Micros): void {
    if (this.#faults.active) this.#departures.deliverHeld(now);
    this.#outward.handleDeadline(now);
    if (now < this.#due) return;
    this.#due = NEVER;
    let left = TIMEOUTS_MAX;
    for (const connection of this.#timed) {
      if (connection.nextDeadline() <= now && left > 0) {
        left -= 1;
        this.#handleDeadline(connection, now);
      }
      const due = connection.nextDeadline();
      if (due === NEVER) this.#timed.delete(connection);
      else this.#due = Math.min(this.#due, due);
    }
  }

  /** Replaces the faults; packets that removed ones hold are delivered. */
  setFaults(faults: readonly Fault[] | undefined): void {
    if (!this.#faults.setFaults(faults)) return;
    this.#host.soon(() => {
      this.#departures.deliverHeld(this.#host.now());
      this.#host.drain();
    });
  }

  /** Updates routes after GIDs of ports changed: packets to a removed one are lost from now on. */
  followAddresses(): void {
    this.#routes.forget();
    this.#outward.follow();
    for (const connection of this.connections()) {
      connection.follow();
      if (connection.qp.type === QPType.ud) this.listen(connection.port);
    }
  }

  /** Call at the end of a turn. Throws `InvariantError`. */
  assertDeepInvariants(): void {
    this.#wires.assertDeepInvariants();
    for (const connection of this.#timed) assert(connection.alive, 'deadline of an ended wire');
    this.#turns.assertDeepInvariants();
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
    const departures = this.#departures;
    if (this.#outward.blocks(connection)) return;
    if (path !== undefined && departures.mayLeaveAtOnce(connection)) {
      const turn = this.#outward.serve(connection, path, now);
      this.#endTurn(connection, turn.sentBytes, turn.more, now);
      return;
    }
    const burst = departures.mayBurst(connection);
    const wholeBytes = burst ? WHOLE_BYTES_MAX : 0;
    const lends = burst && departures.mayLend(connection);
    let sentBytes = 0;
    let more = true;
    departures.groupCopies = 0;
    while (sentBytes < SHARE_BYTES && !departures.holdsBack(connection)) {
      if (!this.#outward.hasRoom(connection, now)) break;
      const bytes = wire.pollPacket(departures.bytes, departures.nextStart, now, wholeBytes, lends);
      more = bytes > 0;
      if (!more) {
        // Payload lent before may have failed.
        if (!burst) wire.endPolling();
        break;
      }
      sentBytes += bytes + PACKET_COST_BYTES;
      if (burst) departures.enqueue(bytes, wire.polledSpan);
      else if (wire.endPolling()) departures.deliver(connection, bytes, now);
      if (departures.groupCopies > 0) {
        sentBytes += departures.groupCopies * PACKET_COST_BYTES;
        departures.groupCopies = 0;
      }
    }
    if (burst) departures.deliverBurst(connection, now);
    this.#outward.transmit(now);
    this.#endTurn(connection, sentBytes, more, now);
  }

  #endTurn(connection: PacketConnection, sentBytes: number, more: boolean, now: Micros): void {
    this.#turns.spend(sentBytes);
    this.#settle(connection, now);
    if (more && sentBytes > 0) this.handleReady(connection);
  }

  // Packets of other hosts

  handleArrival(ports: ReadonlySet<PacketPort>, arrival: PacketArrival, bytes: Uint8Array): void {
    this.#arrivals.handleArrival(ports, arrival, bytes);
  }

  handleArrivalsEnd(): void {
    this.#arrivals.handleArrivalsEnd();
  }

  handleInputEnd(): void {
    this.#host.drain();
  }

  note(level: 'info' | 'warn', text: string): void {
    this.#host.notePackets(level, text);
  }

  /** Sends the last packets of an ended wire: a NAK, acknowledgments. */
  #sendRest(connection: PacketConnection, now: Micros): void {
    const { wire } = connection;
    const departures = this.#departures;
    for (let packets = 0; packets < REST_PACKETS_MAX; packets += 1) {
      const bytes = wire.pollPacket(departures.bytes, 0, now);
      if (bytes === 0) break;
      if (wire.endPolling()) departures.deliver(connection, bytes, now);
    }
    this.#outward.transmit(now);
  }

  #release(connection: PacketConnection): void {
    const { held } = connection;
    // Setting a length is a slow call.
    if (held.length === 0) return;
    for (const sender of held) this.handleReady(sender);
    held.length = 0;
  }

  /** Reports a failure to the queue pair, and records the wire's next deadline. */
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
    if (due === NEVER) return;
    this.#timed.add(connection);
    this.#due = Math.min(this.#due, due);
  }

  #giveWay(): void {
    this.#givingWay = true;
    this.#turns.endRound();
    this.#host.soon(this.#resume);
  }

  readonly #resume = (): void => {
    this.#givingWay = false;
    this.#turns.restore();
    this.#host.drain();
  };
}
