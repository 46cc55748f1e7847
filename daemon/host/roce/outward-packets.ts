/**
 * Packets that leave the host: written into the link's buffer, or copied there if captures or
 * faults need them first. Connections wait here while the link has no room.
 */
import type { Micros } from '#base/time';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { PacketConnection } from './packet-connection.ts';
import type { PacketPort } from './packet-port.ts';
import { countSent } from './roce-counters.ts';
import { PACKET_COST_BYTES, SHARE_BYTES } from './turn-queue.ts';
import { type LinkPath, UdpLink, type UdpUser } from './udp-link.ts';
import type { UdpNetwork } from './udp-network.ts';

/** Result of a turn. */
interface OutwardTurn {
  sentBytes: number;
  /** The connection may have more packets. */
  more: boolean;
}

export class OutwardPackets {
  readonly #user: UdpUser;
  readonly #network: UdpNetwork | undefined;
  readonly #onReady: (connection: PacketConnection) => void;
  /** Made when packets first leave the host or may arrive. */
  #link: UdpLink | undefined;
  /** Connections whose packets wait until the link has room. */
  #blocked = new Set<PacketConnection>();
  readonly #turn: OutwardTurn = { sentBytes: 0, more: false };

  /**
   * `network`: where packets leave the host; undefined if they must not. `onReady` is called with connections
   * that may continue.
   */
  constructor(
    user: UdpUser,
    network: UdpNetwork | undefined,
    onReady: (connection: PacketConnection) => void,
  ) {
    this.#user = user;
    this.#network = network;
    this.#onReady = onReady;
  }

  // Addresses

  /** The link to other hosts; undefined if there is none. */
  link(): UdpLink | undefined {
    if (this.#network !== undefined) this.#link ??= new UdpLink(this.#network, this.#user);
    return this.#link;
  }

  /** Receives packets of other hosts for this port from now on, on its free addresses. */
  listen(port: PacketPort): void {
    const link = this.link();
    for (const gid of port.ownGids()) if (gid !== undefined) link?.listen(port, gid);
  }

  pathMtu(port: PacketPort, sgid: Uint8Array, dgid: Uint8Array): number {
    return this.link()?.pathMtu(port, sgid, dgid) ?? 0;
  }

  /** The path of packets with this vector; undefined if they cannot leave. */
  path(port: PacketPort, sgid: Uint8Array, vector: AddressVector): LinkPath | undefined {
    return this.link()?.path(port, sgid, vector);
  }

  join(port: PacketPort, gid: Uint8Array, members: ReadonlySet<QP>): void {
    this.link()?.join(port, gid, members);
  }

  /** Stops receiving the group on this port. */
  leaveGroup(port: PacketPort, gid: Uint8Array): void {
    this.#link?.leave(port, gid);
  }

  /** Updates the sockets after GIDs of ports changed. */
  follow(): void {
    this.#link?.follow();
  }

  /** Stops sending and receiving. */
  close(): void {
    this.#link?.close();
  }

  // Room

  /** When `handleDeadline` is due; undefined if never. */
  get deadline(): Micros | undefined {
    return this.#link?.deadline;
  }

  handleDeadline(now: Micros): void {
    if (this.#link?.handleDeadline(now) !== true) return;
    const waiting = this.#blocked;
    this.#blocked = new Set();
    for (const connection of waiting) this.#onReady(connection);
  }

  /** True if packets of the connection must wait; it continues once there is room. */
  blocks(connection: PacketConnection): boolean {
    if (connection.path === undefined || this.#link?.blocked !== true) return false;
    this.#blocked.add(connection);
    return true;
  }

  /**
   * False if packets of the connection leave the host and the link has no room; the connection continues once
   * it has. For complete packets.
   */
  hasRoom(connection: PacketConnection, now: Micros): boolean {
    const leaves = connection.leaves || connection.path !== undefined;
    if (!leaves || this.#link?.makeRoom(now) !== false) return true;
    this.#blocked.add(connection);
    return false;
  }

  // Packets

  /**
   * Sends packets of a connection to another host for one turn, without captures. Valid until the next call.
   */
  serve(connection: PacketConnection, path: LinkPath, now: Micros): Readonly<OutwardTurn> {
    const { wire } = connection;
    const { counters } = connection.port;
    const { sentPackets, sentRnr, sentSequenceNaks } = counters;
    const link = this.#link;
    const turn = this.#turn;
    turn.sentBytes = 0;
    turn.more = true;
    while (turn.sentBytes < SHARE_BYTES && link?.takes(path) === true) {
      const start = link.nextStart;
      const bytes = wire.pollPacket(link.bytes, start, now);
      turn.more = bytes > 0;
      if (!turn.more) break;
      turn.sentBytes += bytes + PACKET_COST_BYTES;
      countSent(link.bytes, start, counters);
      link.add(bytes, path);
    }
    if (wire.endPolling()) link?.transmit(now);
    else {
      Object.assign(counters, { sentPackets, sentRnr, sentSequenceNaks });
      link?.discard();
      this.#onReady(connection);
    }
    return turn;
  }

  /**
   * Sends the first `length` of `bytes` to another host, with `transmit` at the latest. False if there is no
   * room. `damaged`: with a wrong ICRC.
   */
  leave(path: LinkPath, bytes: Uint8Array, length: number, now: Micros, damaged: boolean): boolean {
    const link = this.#link;
    if (link?.takes(path) === false) link.transmit(now);
    if (link?.takes(path) !== true) return false;
    link.bytes.set(bytes.subarray(0, length), link.nextStart);
    link.add(length, path, damaged);
    return true;
  }

  /** Sends the packets given to `leave`. */
  transmit(now: Micros): void {
    this.#link?.transmit(now);
  }
}
