/** Which queue pairs of a host receive the datagrams to a multicast GID. */
import { VerbsError } from '#contract/verbs/errors';
import type { QP } from '#daemon/rnic/queue-pair';
import type { PacketPort } from './packet-port.ts';

/**
 * Memberships of a client, and queue pairs of one group: rxe's limits of a device. Here they are per client,
 * so that no client can use up those of others.
 */
const PLACES_MAX = 8192;
const MEMBERS_MAX = 56;
/** Groups of all clients together: a few tens of MiB. */
export const GROUPS_MAX = 131_072;

/**
 * Groups that a client receives from other hosts: each takes a descriptor of the daemon. More than any
 * program joins.
 */
const OUTSIDE_GROUPS_MAX = 256;

const NO_MEMBERS: ReadonlySet<QP> = new Set();
const IPV4_AT = 12;

/** Charged for memberships, and for the descriptors that receive from other hosts. */
export interface GroupAccount {
  /** Takes one. Throws `VerbsError` if the user may have no more. */
  take(what: 'groups' | 'descriptors'): void;
  give(what: 'groups' | 'descriptors'): void;
}

/** A network that carries multicast between hosts. */
interface GroupNetwork {
  /** The first queue pair of the port joined the group; `members` are all of its queue pairs. */
  join(port: PacketPort, gid: Uint8Array, members: ReadonlySet<QP>): void;
  /** The last queue pair of the port left the group. */
  leave(port: PacketPort, gid: Uint8Array): void;
}

interface Group {
  readonly gid: Uint8Array;
  readonly members: Set<QP>;
}

/** A queue pair that was ever attached. */
interface Member {
  readonly owner: object;
  readonly account: GroupAccount | undefined;
  readonly port: PacketPort | undefined;
  /** Keys of its groups: a host has many more. */
  readonly groups: Set<string>;
}

/** The memberships of an owner. */
interface Share {
  places: number;
  groups: number;
}

export class MulticastGroups {
  readonly #network: GroupNetwork | undefined;
  readonly #groups = new Map<string, Group>();
  readonly #members = new WeakMap<QP, Member>();
  readonly #shares = new Map<object, Share>();

  /** `network` carries multicast between hosts. */
  constructor(network?: GroupNetwork) {
    this.#network = network;
  }

  /**
   * Attaches a queue pair of `owner` on `port`; without a port, it receives from this host only. Charges
   * `account`. A second call does nothing. Throws ENOMEM at the owner's limit of memberships, in the group or
   * in all, or at the host's limit of groups; EMFILE without a descriptor for the network.
   */
  attach(
    qp: QP,
    gid: Uint8Array,
    owner: object,
    port?: PacketPort,
    account?: GroupAccount | undefined,
  ): void {
    const key = textOf(gid);
    const group = this.#groups.get(key) ?? { gid: gid.slice(), members: new Set<QP>() };
    const { members } = group;
    if (members.has(qp)) return;
    const own = this.#countIn(group, (member) => member?.owner === owner);
    if (own >= MEMBERS_MAX) {
      throw new VerbsError('ENOMEM', `a client has at most ${MEMBERS_MAX} queue pairs in a group`);
    }
    const share = this.#shares.get(owner) ?? { places: 0, groups: 0 };
    if (share.places >= PLACES_MAX) {
      throw new VerbsError('ENOMEM', `a client is in at most ${PLACES_MAX} multicast groups`);
    }
    if (members.size === 0 && this.#groups.size >= GROUPS_MAX) {
      throw new VerbsError('ENOMEM', `a host has at most ${GROUPS_MAX} multicast groups`);
    }
    if (own === 0 && this.#network !== undefined && share.groups >= OUTSIDE_GROUPS_MAX) {
      const text = `a client receives at most ${OUTSIDE_GROUPS_MAX} multicast groups from other hosts`;
      throw new VerbsError('ENOMEM', text);
    }
    const receives = own === 0 && this.#network !== undefined;
    account?.take('groups');
    try {
      if (receives) account?.take('descriptors');
      try {
        if (port !== undefined && !this.#hasMember(group, port)) {
          this.#network?.join(port, group.gid, members);
        }
      } catch (error) {
        if (receives) account?.give('descriptors');
        throw error;
      }
    } catch (error) {
      account?.give('groups');
      throw error;
    }
    members.add(qp);
    this.#groups.set(key, group);
    const groups = this.#members.get(qp)?.groups ?? new Set();
    this.#members.set(qp, { owner, account, port, groups: groups.add(key) });
    share.places += 1;
    if (own === 0) share.groups += 1;
    this.#shares.set(owner, share);
  }

  /** False if the queue pair was not attached. */
  detach(qp: QP, gid: Uint8Array): boolean {
    const key = textOf(gid);
    const group = this.#groups.get(key);
    if (group?.members.delete(qp) !== true) return false;
    this.#left(qp, key, group);
    return true;
  }

  #left(qp: QP, key: string, group: Group): void {
    if (group.members.size === 0) this.#groups.delete(key);
    const { owner, account, port, groups } = this.#members.get(qp) ?? {};
    account?.give('groups');
    groups?.delete(key);
    if (port !== undefined && !this.#hasMember(group, port)) this.#network?.leave(port, group.gid);
    const share = owner && this.#shares.get(owner);
    if (owner === undefined || share === undefined) return;
    share.places -= 1;
    if (this.#countIn(group, (member) => member?.owner === owner) === 0) {
      share.groups -= 1;
      if (this.#network !== undefined) account?.give('descriptors');
    }
    if (share.places === 0) this.#shares.delete(owner);
  }

  /** Detaches a destroyed queue pair from all groups. */
  forget(qp: QP): void {
    for (const key of this.#members.get(qp)?.groups ?? []) {
      const group = this.#groups.get(key);
      if (group?.members.delete(qp) === true) this.#left(qp, key, group);
    }
  }

  /** Number of groups that the queue pair is attached to. */
  groupsOf(qp: QP): number {
    return this.#members.get(qp)?.groups.size ?? 0;
  }

  /** The queue pairs of a group; empty for an unknown group. */
  members(gid: Uint8Array): ReadonlySet<QP> {
    return this.#groups.get(textOf(gid))?.members ?? NO_MEMBERS;
  }

  /** True if a queue pair of the port is in the group. */
  #hasMember(group: Group, port: PacketPort): boolean {
    return this.#countIn(group, (member) => member?.port === port) > 0;
  }

  #countIn({ members }: Group, matches: (member: Member | undefined) => boolean): number {
    let count = 0;
    for (const qp of members) if (matches(this.#members.get(qp))) count += 1;
    return count;
  }
}

/** True for a GID of a multicast group: ff00::/8, or 224.0.0.0/4 as an IPv4 address. */
export function isMulticastGid(gid: Uint8Array): boolean {
  if (gid[0] === 0xff) return true;
  for (let at = 0; at < IPV4_AT - 2; at += 1) if (gid[at] !== 0) return false;
  const mapped = gid[IPV4_AT - 2] === 0xff && gid[IPV4_AT - 1] === 0xff;
  return mapped && ((gid[IPV4_AT] ?? 0) & 0xf0) === 0xe0;
}

/** True for fe80::/10. */
export function isLinkLocalGid(gid: Uint8Array): boolean {
  return gid[0] === 0xfe && ((gid[1] ?? 0) & 0xc0) === 0x80;
}

function textOf(gid: Uint8Array): string {
  return gid.join('.');
}
