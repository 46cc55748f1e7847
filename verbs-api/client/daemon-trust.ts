/**
 * Which daemons this process trusts. A daemon reads and writes the memory of its clients, and a
 * socket in a shared directory could be anyone's: a client therefore checks the peer's user
 * (SO_PEERCRED) before it sends a byte.
 */
import { invalid, VerbsError } from '#contract/verbs/errors';
import { peerCredentials } from '#native-bridge/libc/unix-socket';

/** Names a user whose daemon is trusted, in addition to this process's user and root. */
export const ALLOW_DAEMON_VARIABLE = 'IWARPD_ALLOW_DAEMON_UID';

/** The largest uid; the one above it means "no user". */
export const UID_MAX = 2 ** 32 - 2;

export interface DaemonPlace {
  /** Path of its socket. */
  readonly path: string;
  readonly allowDaemonUid?: number | undefined;
  /** How long the daemon has to answer the greeting. Default: `GREETING_TIMEOUT_MS`. */
  readonly greetingTimeoutMs?: number | undefined;
}

/** Options of everything that connects to a daemon. */
export interface DaemonTrust {
  /**
   * Also trusts a daemon of this user, which can then read and write all memory that this program
   * registers. Default: `$IWARPD_ALLOW_DAEMON_UID`; without it, only daemons of this process's user
   * and of root.
   */
  readonly allowDaemonUid?: number | undefined;
}

/** A uid in decimal; undefined for anything else. */
export function parseUid(text: string): number | undefined {
  const uid = /^[0-9]{1,10}$/.test(text) ? Number(text) : Number.NaN;
  return uid <= UID_MAX ? uid : undefined;
}

/**
 * Checks the process at the other end of `fd`, a connected Unix socket, and returns its pid. Throws
 * `VerbsError`: EACCES for a daemon of another user, EINVAL for a variable that names no user.
 */
export function checkDaemon(fd: number, { path, allowDaemonUid }: DaemonPlace): number {
  const { pid, uid } = peerCredentials(fd);
  if (isTrustedUser(uid, allowDaemonUid)) return pid;
  const own = process.geteuid?.() ?? 0;
  throw new VerbsError(
    'EACCES',
    `refusing the daemon at ${path}: it runs as uid ${uid}, not as you (uid ${own}) or root, and could use this program's memory; ` +
      `if you trust it, use the option allowDaemonUid: ${uid} (--allow-daemon-uid ${uid}) or ${ALLOW_DAEMON_VARIABLE}=${uid}`,
  );
}

/**
 * True for this process's user, root, and the user allowed by the options. EINVAL as `checkDaemon`.
 */
export function isTrustedUser(uid: number, allowed?: number): boolean {
  if (uid === process.geteuid?.() || uid === 0) return true;
  return uid === (allowed ?? allowedByEnvironment());
}

/** The user that the environment allows; undefined if unset. EINVAL if it is not a uid. */
function allowedByEnvironment(): number | undefined {
  const text = process.env[ALLOW_DAEMON_VARIABLE];
  if (text === undefined || text === '') return undefined;
  const uid = parseUid(text);
  if (uid === undefined) {
    throw invalid(`${ALLOW_DAEMON_VARIABLE}: '${text}' is not a uid in decimal`);
  }
  return uid;
}
