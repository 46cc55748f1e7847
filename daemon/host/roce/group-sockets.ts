/**
 * Multicast reception of ports: a socket per group and port, which has joined the group on the interfaces of
 * the port's addresses. A socket bound to a group receives nothing else. So it does not conflict with the
 * sockets of addresses, and any number of daemons can receive one group.
 */
import { VerbsError } from '#contract/verbs/errors';
import type { QP } from '#daemon/rnic/queue-pair';
import { isIpv4Gid } from '#daemon/roce/wire/datagram';
import { ROCE_PORT } from '#daemon/roce/wire/icrc';
import { SystemCallError } from '#native-bridge/libc/libc';
import { gidAddress } from '../host-addresses.ts';
import { type LinkSocket, openSocket } from './link-socket.ts';
import { isLinkLocalGid } from './multicast-groups.ts';
import type { PacketPort } from './packet-port.ts';
import type { UdpNetwork } from './udp-network.ts';

/** The membership of a port in a group. */
interface Membership {
  readonly port: PacketPort;
  readonly gid: Uint8Array;
  readonly members: ReadonlySet<QP>;
  /** Undefined while it cannot be opened. */
  socket: LinkSocket | undefined;
  /** Addresses of the interfaces that joined the group. */
  addresses: string;
}

/** Callbacks of the sockets. */
interface GroupUser {
  /** The socket is readable. */
  read(socket: LinkSocket): void;
  /** Reports that a group cannot be received. */
  note(key: string, text: string): void;
}

export class GroupSockets {
  readonly #network: UdpNetwork;
  readonly #user: GroupUser;
  readonly #memberships = new Map<PacketPort, Map<string, Membership>>();
  /** Those whose socket could not be opened. */
  readonly #missing = new Set<Membership>();

  constructor(network: UdpNetwork, user: GroupUser) {
    this.#network = network;
    this.#user = user;
  }

  /**
   * Receives the group on this port from now on; `members` are its queue pairs. If the network does not allow
   * it, that is reported. Throws `VerbsError` EMFILE.
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
    const membership = ofPort?.get(key);
    if (membership === undefined) return;
    ofPort?.delete(key);
    if (membership.socket === undefined) this.#missing.delete(membership);
    else membership.socket.udp.close();
  }

  /** Updates the memberships after addresses of ports changed. */
  follow(): void {
    for (const ofPort of this.#memberships.values()) {
      for (const membership of ofPort.values()) this.#follow(membership);
    }
  }

  /** True while a socket could not be opened. */
  get incomplete(): boolean {
    return this.#missing.size > 0;
  }

  /** Tries to open these sockets again. */
  reopen(): void {
    for (const membership of [...this.#missing]) this.#follow(membership);
  }

  close(): void {
    this.#missing.clear();
    for (const ofPort of this.#memberships.values()) {
      for (const { socket } of ofPort.values()) socket?.udp.close();
    }
    this.#memberships.clear();
  }

  #follow(membership: Membership): void {
    try {
      this.#refresh(membership);
    } catch (error) {
      if (!(error instanceof VerbsError)) throw error;
      this.#missing.add(membership);
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
    before?.udp.close();
    membership.socket = undefined;
    membership.addresses = addresses;
    this.#missing.delete(membership);
    if (own.length === 0) return;
    const group = gidAddress(gid);
    try {
      membership.socket = openSocket(
        { gid, port, members },
        (onReadable) => this.#network.openGroup(group, own, onReadable),
        (socket) => this.#user.read(socket),
      );
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      const text = failureText(error, group, port.name);
      if (error.code === 'EMFILE') throw new VerbsError('EMFILE', text);
      this.#missing.add(membership);
      this.#user.note(gid.join('.'), text);
    }
  }
}

function failureText(error: SystemCallError, group: string, device: string): string {
  const what = `${device} cannot receive group ${group} from other hosts`;
  if (error.code === 'EADDRINUSE') {
    return (
      `${what}: UDP port ${ROCE_PORT} is taken, by the kernel's rxe, for example; stop that one. ` +
      'Queue pairs of this host still receive from each other'
    );
  }
  return `${what} (${error.code}); queue pairs of this host still receive from each other`;
}
