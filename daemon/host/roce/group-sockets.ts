/**
 * What ports hear of multicast groups: a socket for each group of each port, which has joined the
 * group on the interfaces of the port's addresses. A socket that is bound to a group takes nothing
 * else, so it needs no share of the port of addresses, and any number of daemons hears one group.
 */
import { VerbsError } from '#contract/verbs/errors';
import type { QP } from '#daemon/rnic/queue-pair';
import { isIpv4Gid } from '#daemon/roce/wire/datagram';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { SystemCallError } from '#native-bridge/libc/libc';
import { openUdpGroup } from '#native-bridge/libc/udp-socket';
import { gidAddress, interfaceOf } from '../host-addresses.ts';
import { BUFFER_BYTES, closeSocket, type LinkSocket, watchSocket } from './link-socket.ts';
import { isLinkLocalGid } from './multicast-groups.ts';
import type { PacketPort } from './packet-port.ts';

/** A port hears a group. */
interface Membership {
  readonly port: PacketPort;
  readonly gid: Uint8Array;
  readonly members: ReadonlySet<QP>;
  /** Undefined while it cannot. */
  socket: LinkSocket | undefined;
  /** The addresses on whose interfaces it has joined. */
  addresses: string;
}

/** What the sockets tell. */
interface GroupUser {
  /** There is something to read. */
  read(socket: LinkSocket): void;
  /** A group cannot be heard. */
  note(key: string, text: string): void;
}

export class GroupSockets {
  readonly #user: GroupUser;
  readonly #memberships = new Map<PacketPort, Map<string, Membership>>();

  constructor(user: GroupUser) {
    this.#user = user;
  }

  /**
   * The port hears the group from now on; `members` has its queue pairs. Where the network does not
   * let it, that is noted. Throws `VerbsError` EMFILE.
   */
  join(port: PacketPort, gid: Uint8Array, members: ReadonlySet<QP>): void {
    const membership = { port, gid, members, socket: undefined, addresses: '' };
    this.#refresh(membership);
    const ofPort = this.#memberships.get(port) ?? new Map<string, Membership>();
    this.#memberships.set(port, ofPort.set(gid.join('.'), membership));
  }

  leave(port: PacketPort, gid: Uint8Array): void {
    const ofPort = this.#memberships.get(port);
    const key = gid.join('.');
    const socket = ofPort?.get(key)?.socket;
    ofPort?.delete(key);
    if (socket !== undefined) closeSocket(socket);
  }

  /** The ports have other addresses. */
  follow(): void {
    for (const ofPort of this.#memberships.values()) {
      for (const membership of ofPort.values()) this.#follow(membership);
    }
  }

  close(): void {
    for (const ofPort of this.#memberships.values()) {
      for (const { socket } of ofPort.values()) if (socket !== undefined) closeSocket(socket);
    }
    this.#memberships.clear();
  }

  #follow(membership: Membership): void {
    try {
      this.#refresh(membership);
    } catch (error) {
      if (!(error instanceof VerbsError)) throw error;
      this.#user.note(membership.gid.join('.'), error.message);
    }
  }

  #refresh(membership: Membership): void {
    const { port, gid, members, socket: before } = membership;
    const own = port.ownGids().flatMap((each) => {
      const fits = each !== undefined && isIpv4Gid(each) === isIpv4Gid(gid);
      return fits && !isLinkLocalGid(each) ? [gidAddress(each)] : [];
    });
    const addresses = own.join(' ');
    if (addresses === membership.addresses && (before !== undefined || addresses === '')) return;
    if (before !== undefined) closeSocket(before);
    membership.socket = undefined;
    membership.addresses = addresses;
    if (own.length === 0) return;
    const on = own.map((address) => ({ address, interfaceName: interfaceOf(address) }));
    const group = gidAddress(gid);
    try {
      const { fd } = openUdpGroup(group, ROCE_PORT, on, BUFFER_BYTES);
      const heard = { gid, port, members };
      membership.socket = watchSocket(fd, heard, (socket) => this.#user.read(socket));
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      const text = failureText(error, group, port.name);
      if (error.code === 'EMFILE') throw new VerbsError('EMFILE', text);
      this.#user.note(gid.join('.'), text);
    }
  }
}

function failureText(error: SystemCallError, group: string, device: string): string {
  const what = `${device} cannot hear group ${group} from other hosts`;
  if (error.code === 'EADDRINUSE') {
    return (
      `${what}: UDP port ${ROCE_PORT} is taken, by the kernel's rxe, for example; stop that one. ` +
      'Queue pairs of this host hear each other'
    );
  }
  return `${what} (${error.code}); queue pairs of this host hear each other`;
}
