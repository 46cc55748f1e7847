/**
 * Rights that only some users have. A daemon running as root acts for programs of every user and
 * must not do for them anything that the kernel would refuse. The same holds for native devices,
 * which every daemon opens as its own user.
 *
 * The user of a program is the one who connected (SO_PEERCRED). Its capabilities do not count: the
 * process may since have executed another program that has more.
 */
import { type Stats, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { VerbsError } from '#contract/verbs/errors';
import type { SocketAddress } from '#contract/verbs/provider';
import { Capability, firstUnprivilegedPort, hasCapability } from '#native-bridge/libc/privileges';

export interface UserRights {
  /** Ports below `net.ipv4.ip_unprivileged_port_start` (CAP_NET_BIND_SERVICE). */
  readonly lowPorts: boolean;
  /** Q_Keys with the highest bit set, which QP 1 and network services use (CAP_NET_RAW). */
  readonly controlledQkeys: boolean;
}

const ROOT: UserRights = { lowPorts: true, controlledQkeys: true };
const OTHERS: UserRights = { lowPorts: false, controlledQkeys: false };
const CONTROLLED_QKEY = 0x8000_0000;

let own: UserRights | undefined;

/** The rights of this process, read once; programs of its user have the same. */
export function ownRights(): UserRights {
  own ??= {
    lowPorts: hasCapability(Capability.netBindService),
    controlledQkeys: hasCapability(Capability.netRaw),
  };
  return own;
}

/** The rights of a user: all for root, the daemon's for its own user, none for others. */
export function rightsOf(uid: number): UserRights {
  if (uid === 0) return ROOT;
  return uid === process.getuid?.() ? ownRights() : OTHERS;
}

/** Throws EACCES for a port that the user may not bind, as the kernel does. */
export function assertMayBind(rights: UserRights, { port }: SocketAddress): void {
  if (rights.lowPorts || port === 0) return;
  const first = firstUnprivilegedPort();
  if (port >= first) return;
  const text =
    `cannot bind port ${port}: ports below ${first} are privileged; choose a higher port, or lower ` +
    'net.ipv4.ip_unprivileged_port_start';
  throw new VerbsError('EACCES', text);
}

/** Throws EPERM for a Q_Key that the user may not set on a queue pair, as the kernel does. */
export function assertMayHaveQkey(rights: UserRights, qkey: number): void {
  if (rights.controlledQkeys || qkey < CONTROLLED_QKEY) return;
  const text =
    `cannot set Q_Key 0x${qkey.toString(16)}: Q_Keys with the highest bit set are privileged; ` +
    'choose a smaller one';
  throw new VerbsError('EPERM', text);
}

/** A program's user, as reported by the kernel for a connection. */
export interface ProgramUser {
  readonly uid: number;
  /** Undefined if unknown. */
  readonly gid: number | undefined;
}

/** Bits of one class in a file mode. */
const READ_WRITE = 0o6;
const SEARCH = 0o1;
const GROUP_SHIFT = 3;
const OWNER_SHIFT = 6;

/**
 * Whether a user may open a device node to read and write, by owner, group and mode of the node and
 * of its directory. False for a node that does not exist or is not visible.
 */
export function mayOpenNode(path: string, user: ProgramUser): boolean {
  try {
    return (
      permits(statSync(dirname(path)), user, SEARCH) && permits(statSync(path), user, READ_WRITE)
    );
  } catch {
    return false;
  }
}

function permits({ mode, uid, gid }: Stats, user: ProgramUser, bits: number): boolean {
  const has = (shift: number): boolean => ((mode >> shift) & bits) === bits;
  if (user.uid === uid) return has(OWNER_SHIFT);
  if (user.gid === gid) return has(GROUP_SHIFT);
  // The user's supplementary groups are unknown; the node's group may be one of them, so require both.
  return has(0) && has(GROUP_SHIFT);
}
