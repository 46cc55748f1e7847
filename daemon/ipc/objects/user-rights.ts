/**
 * What only some users may do, decided by who asks: a daemon of root acts for programs of every user,
 * which must not get by it what the kernel would refuse them.
 *
 * The user of a program is the one who connected (SO_PEERCRED). Its capabilities do not count: the
 * process may have started another program since then, which has more.
 */
import {
  Capability,
  firstUnprivilegedPort,
  hasCapability,
} from '../../../native-bridge/libc/privileges.ts';
import { VerbsError } from '../../../verbs-api/contract/verbs/errors.ts';
import type { SocketAddress } from '../../../verbs-api/contract/verbs/provider.ts';

/** See the module's comment. */
export interface UserRights {
  /** Ports below `net.ipv4.ip_unprivileged_port_start` (CAP_NET_BIND_SERVICE). */
  readonly lowPorts: boolean;
  /** Q_Keys with their highest bit set, which QP 1 and services of the network have (CAP_NET_RAW). */
  readonly controlledQkeys: boolean;
}

const ROOT: UserRights = { lowPorts: true, controlledQkeys: true };
const OTHERS: UserRights = { lowPorts: false, controlledQkeys: false };
const CONTROLLED_QKEY = 0x8000_0000;

/** The rights of this process, which its programs have as well. */
export function ownRights(): UserRights {
  return {
    lowPorts: hasCapability(Capability.netBindService),
    controlledQkeys: hasCapability(Capability.netRaw),
  };
}

/** The rights of a user: root's, those of the daemon for its own user, or none. */
export function rightsOf(uid: number): UserRights {
  if (uid === 0) return ROOT;
  return uid === process.getuid?.() ? ownRights() : OTHERS;
}

/** EACCES for a port that the user may not bind, as from the kernel. */
export function assertMayBind(rights: UserRights, { port }: SocketAddress): void {
  if (rights.lowPorts || port === 0) return;
  const first = firstUnprivilegedPort();
  if (port >= first) return;
  const advice = 'choose a higher one, or change net.ipv4.ip_unprivileged_port_start';
  throw new VerbsError('EACCES', `port ${port} is for root, as all below ${first}; ${advice}`);
}

/** EPERM for a Q_Key that the user may not give a queue pair, as from the kernel. */
export function assertMayHaveQkey(rights: UserRights, qkey: number): void {
  if (rights.controlledQkeys || qkey < CONTROLLED_QKEY) return;
  const text = `Q_Key 0x${qkey.toString(16)} is for root: its highest bit is set`;
  throw new VerbsError('EPERM', text);
}
