/** Which queue pairs of a host receive the datagrams to a multicast GID. */
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import type { QP } from '../../rnic/queue-pair.ts';

/** Groups of a host, and queue pairs of one group: what rxe reports of a device. */
const GROUPS_MAX = 8192;
const MEMBERS_MAX = 56;

const NO_MEMBERS: ReadonlySet<QP> = new Set();
const IPV4_AT = 12;

/** See the module's comment. */
export class MulticastGroups {
  readonly #members = new Map<string, Set<QP>>();

  /** Attaches a queue pair. Again does nothing. ENOMEM when the group or the host has no room. */
  attach(qp: QP, gid: Uint8Array): void {
    const key = textOf(gid);
    const members = this.#members.get(key) ?? new Set<QP>();
    if (members.has(qp)) return;
    if (members.size >= MEMBERS_MAX) {
      throw new VerbsError('ENOMEM', `a multicast group has at most ${MEMBERS_MAX} queue pairs`);
    }
    if (members.size === 0 && this.#members.size >= GROUPS_MAX) {
      throw new VerbsError('ENOMEM', `a host has at most ${GROUPS_MAX} multicast groups`);
    }
    this.#members.set(key, members.add(qp));
  }

  /** False if the queue pair was not attached. */
  detach(qp: QP, gid: Uint8Array): boolean {
    const key = textOf(gid);
    const members = this.#members.get(key);
    const attached = members?.delete(qp) ?? false;
    if (members?.size === 0) this.#members.delete(key);
    return attached;
  }

  /** A destroyed queue pair leaves all groups. */
  forget(qp: QP): void {
    for (const [key, members] of this.#members) {
      if (members.delete(qp) && members.size === 0) this.#members.delete(key);
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
