/**
 * A queue pair's wire as its host sees it: notifies the network when there may be packets to send, and knows
 * their destination.
 *
 * The queue pair and its program call the wire through it. Only the network polls packets and failures, when
 * no call is inside the wire.
 */
import type { Micros } from '#base/time';
import { type QPState, QPType } from '#contract/verbs/enums';
import type { ProgramWire } from '#daemon/rnic/ib-port';
import type { AddressVector, QPPath } from '#daemon/rnic/qp-attributes';
import type { Wire, WireFailure } from '#daemon/rnic/wire-port';
import type { PacketWire } from '#daemon/roce/transport/packet-wire';
import type { Packet } from '#daemon/roce/wire/packet';
import type { PacketPort } from './packet-port.ts';
import { countPacket, countRequest, type RoceCounters } from './roce-counters.ts';
import type { LinkPath } from './udp-link.ts';

/** A queue pair as the network sees it; implemented by `QP`. */
export interface PacketQP {
  readonly qpn: number;
  readonly type: QPType;
  /** True while its memory lags: send no more packets for now. */
  readonly congested: boolean;
  /** All memory that messages of its peer may reach takes lent payload. */
  readonly takesLent: boolean;
  readonly wire: Wire | undefined;
  /** Its wire failed. */
  terminated(by: 'us' | 'peer', failure: WireFailure, now: Micros): void;
}

/**
 * Limits of packets in flight to another host, at first and as long as none is lost. At the largest path MTU,
 * three of the first fit into Linux's default receive buffer (208 KiB, doubled for its own overhead).
 */
const FIRST_WINDOW_PACKETS = 32;
const WINDOW_PACKETS = 64;

/** The last number used for `place`. */
let places = 0;

/** Callbacks of a connection to its network. */
export interface ConnectionUser {
  /** There may be packets to send, or a failure. */
  handleReady(connection: PacketConnection): void;
  /** The path of packets with this vector to another host; undefined if they stay. */
  wayOut(port: PacketPort, vector: AddressVector): LinkPath | undefined;
  /** The queue pair ended the wire. */
  handleEnded(connection: PacketConnection, now: Micros): void;
}

export class PacketConnection implements ProgramWire {
  readonly qp: PacketQP;
  readonly port: PacketPort;
  readonly wire: PacketWire;
  /** The port of its destination; undefined without a route and before RTR. */
  peer: PacketPort | undefined = undefined;
  /** The path to another host; undefined if its packets stay, and for datagrams. */
  path: LinkPath | undefined = undefined;
  destQpn = 0;
  /** Its destination; not used for datagrams. */
  vector: AddressVector | undefined = undefined;
  /** Its source address; undefined before RTR, and once the port has lost it. */
  sgid: Uint8Array | undefined = undefined;
  /** Identifies the connection's addresses; changes with them. */
  place = 0;
  /** `place` of the queue pair of this host whose packets it accepts; 0 if unknown. */
  knownPlace = 0;
  /** A datagram of it left the host, so others may. */
  leaves = false;
  /** Code of the delay in its RNR NAKs. */
  minRnrTimer = 0;
  /** Set by the network while the connection waits for its turn. */
  queued = false;
  /** Set by the network while it delivers packets of another host. */
  reading = false;
  /** False once the wire has ended. */
  alive = true;
  /** Connections that wait until the memory of this one has caught up. */
  readonly held: PacketConnection[] = [];
  readonly #user: ConnectionUser;

  constructor(qp: PacketQP, port: PacketPort, wire: PacketWire, user: ConnectionUser) {
    this.qp = qp;
    this.port = port;
    this.wire = wire;
    this.#user = user;
  }

  // Methods of `ProgramWire`

  get sqPsn(): number {
    return this.wire.sqPsn;
  }

  get rqPsn(): number {
    return this.wire.rqPsn;
  }

  get sendable(): boolean {
    return this.wire.sendable;
  }

  get midSend(): boolean {
    return this.wire.midSend;
  }

  modified(path: QPPath, state: QPState, now: Micros): void {
    this.destQpn = path.destQpNum;
    this.vector = path.ahAttr;
    this.#settle(path.ahAttr);
    this.minRnrTimer = path.minRnrTimer;
    this.wire.modified(this.#routed(path), state, now);
    this.#user.handleReady(this);
  }

  /**
   * A packet arrived at the queue pair. `from`: counters of the sender's port, if it belongs to this host.
   * `grh`: the header of a datagram.
   */
  handlePacket(
    from: RoceCounters | undefined,
    packet: Readonly<Packet>,
    bytes: Uint8Array,
    grh: Uint8Array,
    now: Micros,
  ): void {
    const { counters } = this.port;
    countPacket(packet, from, counters);
    if (this.qp.type === QPType.rc) countRequest(packet, this.rqPsn, counters);
    const { wire } = this;
    const dropped = wire.badQkeys ?? 0;
    wire.handlePacket(packet, bytes, now, grh);
    counters.badQkeys += (wire.badQkeys ?? 0) - dropped;
  }

  /** Updates the connection after GIDs of the host's ports changed. */
  follow(): void {
    if (this.vector === undefined) return;
    this.#settle(this.vector);
    this.peer = this.port.peer(this.vector.dgid);
    const leaves = this.peer === undefined && this.qp.type !== QPType.ud;
    this.path = leaves ? this.#user.wayOut(this.port, this.vector) : undefined;
  }

  pump(now: Micros): void {
    this.wire.pump(now);
    this.#user.handleReady(this);
  }

  disconnect(now: Micros): void {
    this.wire.disconnect(now);
    this.#user.handleReady(this);
  }

  abort(now: Micros): void {
    this.wire.abort(now);
    this.end(now);
  }

  fail(failure: WireFailure, now: Micros): void {
    this.wire.fail(failure, now);
    this.end(now);
  }

  nextDeadline(): Micros {
    return this.wire.nextDeadline();
  }

  handleDeadline(now: Micros): void {
    this.wire.handleDeadline(now);
    this.#user.handleReady(this);
  }

  /** Updates the connection after its addresses may have changed. */
  #settle({ sgidIndex }: AddressVector): void {
    this.sgid = this.port.gid(sgidIndex);
    places += 1;
    this.place = places;
    this.knownPlace = 0;
  }

  /**
   * Looks up the route. Programs take the port's MTU for the path's, so packets that leave the host are
   * limited to what their route carries; the other end does the same.
   */
  #routed(attributes: QPPath): QPPath {
    const { ahAttr, pathMtu, routeMtu } = attributes;
    this.peer = this.port.peer(ahAttr.dgid);
    this.path = undefined;
    if (this.peer !== undefined || this.qp.type === QPType.ud) return attributes;
    this.path = this.#user.wayOut(this.port, ahAttr);
    if (this.path !== undefined) this.wire.pace?.(FIRST_WINDOW_PACKETS, WINDOW_PACKETS);
    return pathMtu <= routeMtu ? attributes : { ...attributes, pathMtu: routeMtu };
  }

  /** Ends the wire. A second call does nothing. */
  end(now: Micros): void {
    if (!this.alive) return;
    this.alive = false;
    this.#user.handleEnded(this, now);
  }
}
