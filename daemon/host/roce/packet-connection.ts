/**
 * A queue pair's wire as its host has it: notifies the network when there may be packets to send, and
 * knows where they go.
 *
 * The queue pair and its program call the wire through it. The network alone polls packets and
 * failures, when nothing is inside the wire.
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

/** What the network uses of a queue pair; implemented by `QP`. */
export interface PacketQP {
  readonly qpn: number;
  readonly type: QPType;
  /** True while its memory is behind: no more packets for now. */
  readonly congested: boolean;
  readonly wire: Wire | undefined;
  /** Its wire failed. */
  terminated(by: 'us' | 'peer', failure: WireFailure, now: Micros): void;
}

/**
 * Packets that a connection to another host has under way: at the largest path MTU, three such fit
 * into the receive buffer that Linux grants everybody (208 KiB, doubled for its own overhead).
 */
const WINDOW_PACKETS = 32;

/** The places that were numbered. */
let places = 0;

/** What a connection tells its network. */
export interface ConnectionUser {
  /** There may be packets to send, or a failure. */
  handleReady(connection: PacketConnection): void;
  /** Where packets with this vector leave the host; undefined if they do not. */
  wayOut(port: PacketPort, vector: AddressVector): LinkPath | undefined;
  /** The wire was ended by its queue pair. */
  handleEnded(connection: PacketConnection, now: Micros): void;
}

export class PacketConnection implements ProgramWire {
  readonly qp: PacketQP;
  readonly port: PacketPort;
  readonly wire: PacketWire;
  /** Its destination, and the port that has it; undefined without a route and before RTR. */
  peer: PacketPort | undefined = undefined;
  /** Where its packets leave the host; undefined if they do not, and for datagrams. */
  path: LinkPath | undefined = undefined;
  destQpn = 0;
  /** Where its packets go; of no meaning for datagrams. */
  vector: AddressVector | undefined = undefined;
  /** The address that its packets come from; undefined before RTR, and when the port lost it. */
  sgid: Uint8Array | undefined = undefined;
  /** Identifies the connection's addresses; changes with them. */
  place = 0;
  /** `place` of the queue pair of this host whose packets it was found to take; 0 if none is known. */
  knownPlace = 0;
  /** A datagram of it left the host, so others may. */
  leaves = false;
  /** Code of the delay that it asks of a peer for which no receive is posted. */
  minRnrTimer = 0;
  /** Set by the network while the connection waits for its turn. */
  queued = false;
  /** Set by the network while it hands over packets of another host. */
  reading = false;
  /** False once the wire has ended. */
  alive = true;
  /** Connections that wait until the memory behind this one has caught up. */
  readonly held: PacketConnection[] = [];
  readonly #user: ConnectionUser;

  constructor(qp: PacketQP, port: PacketPort, wire: PacketWire, user: ConnectionUser) {
    this.qp = qp;
    this.port = port;
    this.wire = wire;
    this.#user = user;
  }

  // Of `ProgramWire`

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
    this.destQpn = path.destQpn;
    this.vector = path.addressVector;
    this.#settle(path.addressVector);
    this.minRnrTimer = path.minRnrTimer;
    this.wire.modified(this.#routed(path), state, now);
    this.#user.handleReady(this);
  }

  /**
   * A packet came to the queue pair. `from`: counters of the sender's port, if it is of this host.
   * `grh` is the one of a datagram.
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

  /** The ports of the host have other GIDs. */
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

  /** Its addresses may have changed. */
  #settle({ sgidIndex }: AddressVector): void {
    this.sgid = this.port.gid(sgidIndex);
    places += 1;
    this.place = places;
    this.knownPlace = 0;
  }

  /**
   * Looks where the packets go. A program takes the port's MTU for the path's, so packets that leave
   * the host are limited to what their route carries; the other end does the same.
   */
  #routed(attributes: QPPath): QPPath {
    const { addressVector, pathMtu, routeMtu } = attributes;
    this.peer = this.port.peer(addressVector.dgid);
    this.path = undefined;
    if (this.peer !== undefined || this.qp.type === QPType.ud) return attributes;
    this.path = this.#user.wayOut(this.port, addressVector);
    if (this.path !== undefined) this.wire.pace?.(WINDOW_PACKETS);
    return pathMtu <= routeMtu ? attributes : { ...attributes, pathMtu: routeMtu };
  }

  /** The wire has ended. The second call does nothing. */
  end(now: Micros): void {
    if (!this.alive) return;
    this.alive = false;
    this.#user.handleEnded(this, now);
  }
}
