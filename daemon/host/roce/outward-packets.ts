/**
 * Packets that leave the host: written where they leave from, or copied there when somebody looks at
 * them first. Connections wait here while the link has no room.
 */
import type { Micros } from '#base/time';
import type { AddressVector } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { PacketConnection } from './packet-connection.ts';
import type { PacketPort } from './packet-port.ts';
import { countSent } from './roce-counters.ts';
import { PACKET_COST_BYTES, SHARE_BYTES } from './turn-queue.ts';
import { type LinkPath, type LinkUser, UdpLink } from './udp-link.ts';

/** What a turn moved. */
interface OutwardTurn {
  sentBytes: number;
  /** The connection may have more packets. */
  more: boolean;
}

export class OutwardPackets {
  readonly #user: LinkUser;
  readonly #enabled: boolean;
  readonly #onReady: (connection: PacketConnection) => void;
  /** Made when packets leave the host first, or may come. */
  #link: UdpLink | undefined;
  /** Connections whose packets wait until the link has room. */
  #blocked = new Set<PacketConnection>();
  readonly #turn: OutwardTurn = { sentBytes: 0, more: false };

  /** `enabled`: packets may leave the host. `onReady` hears of connections that may go on. */
  constructor(user: LinkUser, enabled: boolean, onReady: (connection: PacketConnection) => void) {
    this.#user = user;
    this.#enabled = enabled;
    this.#onReady = onReady;
  }

  // Addresses

  /** What leads out of the host; undefined if nothing does. */
  link(): UdpLink | undefined {
    if (this.#enabled) this.#link ??= new UdpLink(this.#user);
    return this.#link;
  }

  /** Takes packets of other hosts for this port from now on, as far as its addresses are free. */
  listen(port: PacketPort): void {
    const link = this.link();
    for (const gid of port.ownGids()) if (gid !== undefined) link?.listen(port, gid);
  }

  pathMtu(port: PacketPort, sgid: Uint8Array, dgid: Uint8Array): number {
    return this.link()?.pathMtu(port, sgid, dgid) ?? 0;
  }

  /** Where packets with this vector leave; undefined if they cannot. */
  path(port: PacketPort, sgid: Uint8Array, vector: AddressVector): LinkPath | undefined {
    return this.link()?.path(port, sgid, vector);
  }

  join(port: PacketPort, gid: Uint8Array, members: ReadonlySet<QP>): void {
    this.link()?.join(port, gid, members);
  }

  /** The port hears the group no more. */
  leaveGroup(port: PacketPort, gid: Uint8Array): void {
    this.#link?.leave(port, gid);
  }

  /** The ports have other GIDs. */
  follow(): void {
    this.#link?.follow();
  }

  /** Nothing leaves or comes any more. */
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

  /** True if packets of the connection must wait; it goes on once there is room. */
  blocks(connection: PacketConnection): boolean {
    if (connection.path === undefined || this.#link?.blocked !== true) return false;
    this.#blocked.add(connection);
    return true;
  }

  /**
   * False when packets of the connection leave the host and the link has no room; the connection goes
   * on once it has. For packets that are whole.
   */
  hasRoom(connection: PacketConnection, now: Micros): boolean {
    const leaves = connection.leaves || connection.path !== undefined;
    if (!leaves || this.#link?.makeRoom(now) !== false) return true;
    this.#blocked.add(connection);
    return false;
  }

  // Packets

  /** A turn of a connection to another host, whose packets are not watched. Valid until the next one. */
  serve(connection: PacketConnection, path: LinkPath, now: Micros): Readonly<OutwardTurn> {
    const { wire } = connection;
    const { counters } = connection.port;
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
      link?.discard();
      this.#onReady(connection);
    }
    return turn;
  }

  /**
   * The first `length` of `bytes` leave the host, at the latest by `transmit`. False if there is no
   * room for them. `damaged`: with a wrong ICRC.
   */
  leave(path: LinkPath, bytes: Uint8Array, length: number, now: Micros, damaged: boolean): boolean {
    const link = this.#link;
    if (link?.takes(path) === false) link.transmit(now);
    if (link?.takes(path) !== true) return false;
    link.bytes.set(bytes.subarray(0, length), link.nextStart);
    link.add(length, path, damaged);
    return true;
  }

  /** Sends what was given to `leave`. */
  transmit(now: Micros): void {
    this.#link?.transmit(now);
  }
}
