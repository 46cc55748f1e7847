/** The daemon trusts its own user and root. Also decides whether two programs share a user. */
import { type PeerProcess, UNKNOWN_UID } from '#native-bridge/libc/peer-process';

/** True for the daemon's own user and for root. */
export function isTrusted(uid: number): boolean {
  return uid === 0 || uid === process.getuid?.();
}

/** Whether two programs belong to the same user, and may name each other's objects. */
export function isSameUser(one: PeerProcess, other: PeerProcess): boolean {
  if (one.uid !== other.uid) return false;
  return one.uid !== UNKNOWN_UID || one.identity === other.identity;
}

/** The user of a program as a single value, distinct from other users'. */
export function userOf(uid: number | undefined, program: object): number | object | undefined {
  return uid === UNKNOWN_UID ? program : uid;
}
