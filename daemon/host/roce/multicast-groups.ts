/** Which queue pairs of a host receive the datagrams to a multicast GID. */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import type { QP } from '../../rnic/queue-pair.ts';

/**
 * Places in groups, and queue pairs of one group: what rxe reports of a device. Here every client may
 * have as many, so that none can take those of the others.
 */
const PLACES_MAX = 8192;
const MEMBERS_MAX = 56;
/** Groups of all clients together: a few tens of MiB. */
const GROUPS_MAX = 131_072;

const NO_MEMBERS: ReadonlySet<QP> = new Set();
const IPV4_AT = 12;

/** See the module's comment. */
export class MulticastGroups {
  readonly #members = new Map<string, Set<QP>>();
  /** Of queue pairs that were ever attached. */
  readonly #owners = new WeakMap<QP, object>();
  /** Places in groups by owner. */
  readonly #places = new Map<object, number>();

  /**
   * Attaches a queue pair of `owner`. Again does nothing. ENOMEM when the owner has too many in the
   * group or in all, or the host too many groups.
   */
  attach(qp: QP, gid: Uint8Array, owner: object): void {
    const key = textOf(gid);
    const members = this.#members.get(key) ?? new Set<QP>();
    if (members.has(qp)) return;
    let own = 0;
    for (const member of members) if (this.#owners.get(member) === owner) own += 1;
    if (own >= MEMBERS_MAX) {
      throw new VerbsError('ENOMEM', `a client has at most ${MEMBERS_MAX} queue pairs in a group`);
    }
    const places = this.#places.get(owner) ?? 0;
    if (places >= PLACES_MAX) {
      throw new VerbsError('ENOMEM', `a client is in at most ${PLACES_MAX} multicast groups`);
    }
    if (members.size === 0 && this.#members.size >= GROUPS_MAX) {
      throw new VerbsError('ENOMEM', `a host has at most ${GROUPS_MAX} multicast groups`);
    }
    this.#members.set(key, members.add(qp));
    this.#owners.set(qp, owner);
    this.#places.set(owner, places + 1);
  }

  /** False if the queue pair was not attached. */
  detach(qp: QP, gid: Uint8Array): boolean {
    const key = textOf(gid);
    const members = this.#members.get(key);
    if (members?.delete(qp) !== true) return false;
    this.#left(qp, key, members);
    return true;
  }

  #left(qp: QP, key: string, members: ReadonlySet<QP>): void {
    if (members.size === 0) this.#members.delete(key);
    const owner = this.#owners.get(qp);
    if (owner === undefined) return;
    const places = (this.#places.get(owner) ?? 1) - 1;
    if (places === 0) this.#places.delete(owner);
    else this.#places.set(owner, places);
  }

  /** A destroyed queue pair leaves all groups. */
  forget(qp: QP): void {
    for (const [key, members] of this.#members) {
      if (members.delete(qp)) this.#left(qp, key, members);
    }
  }

  /** Number of groups that the queue pair is attached to. */
  groupsOf(qp: QP): number {
    let groups = 0;
    for (const members of this.#members.values()) if (members.has(qp)) groups += 1;
    return groups;
  }

  /** The queue pairs of a group; none for a GID that has none. */
  members(gid: Uint8Array): ReadonlySet<QP> {
    return this.#members.get(textOf(gid)) ?? NO_MEMBERS;
  }
}

/** True for a GID of a multicast group: ff00::/8, or 224.0.0.0/4 as an IPv4 address. */
export function isMulticastGid(gid: Uint8Array): boolean {
  if (gid[0] === 0xff) return true;
  for (let at = 0; at < IPV4_AT - 2; at += 1) if (gid[at] !== 0) return false;
  const mapped = gid[IPV4_AT - 2] === 0xff && gid[IPV4_AT - 1] === 0xff;
  return mapped && ((gid[IPV4_AT] ?? 0) & 0xf0) === 0xe0;
}

function textOf(gid: Uint8Array): string {
  return gid.join('.');
}
