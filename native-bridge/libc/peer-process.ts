/**
 * The process that connected a Unix socket, held by a pidfd: a later process with the same pid is
 * never mistaken for it.
 */
import { readFileSync, statSync } from 'node:fs';
import { closeDescriptor, duplicateDescriptor } from './descriptor.ts';
import { SystemCallError } from './libc.ts';
import { isSharedUid } from './privileges.ts';
import { isProcessAlive, maySignal, openProcessDescriptor } from './process-vm.ts';
import { type PeerCredentials, peerCredentials, peerProcessDescriptor } from './unix-socket.ts';

/** Errors of kernels without SO_PEERPIDFD (before Linux 6.5). */
const UNKNOWN_OPTION: ReadonlySet<string> = new Set(['ENOPROTOOPT', 'EOPNOTSUPP']);

/** A process at the other end of a connection. */
export interface PeerProcess extends PeerCredentials {
  /**
   * Differs between two processes, even if they had the same pid one after the other. If /proc hides
   * processes (hidepid), those two get the same identity, as do all processes of other PID namespaces.
   */
  readonly identity: string;
  /** Returns a pidfd, which the caller closes. Throws `SystemCallError`: ESRCH if the process is gone. */
  openDescriptor(): number;
}

let strangers = 0;

/**
 * Stands for users that this process cannot distinguish; no user has this uid. All users that its
 * user namespace does not map share one number, which may be its own.
 */
export const UNKNOWN_UID = 4_294_967_295;

export class SocketPeer implements PeerProcess {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
  readonly #descriptor: () => number | undefined;
  /** Opened at once if the socket cannot be asked later; an error if that failed. */
  #early: number | SystemCallError | undefined;
  #identity: string | undefined;

  /**
   * The peer of the connected socket `descriptor()`, which returns undefined once it is closed. With
   * `distinguishesUsers`, a user whose uid may be shared gets `UNKNOWN_UID`. Throws `SystemCallError`.
   */
  constructor(descriptor: () => number | undefined, asksSocket = true, distinguishesUsers = false) {
    const { pid, uid, gid } = peerCredentials(descriptor() ?? -1);
    this.pid = pid;
    this.gid = gid;
    this.#descriptor = descriptor;
    if (pid !== 0 && !(asksSocket && canAskSockets(descriptor))) this.#early = openNow(pid, uid);
    const isUnknown = distinguishesUsers && isSharedUid(uid) && !this.#isOwn(uid);
    this.uid = isUnknown ? UNKNOWN_UID : uid;
  }

  get identity(): string {
    // Another PID namespace: neither /proc nor a pidfd gives any information here.
    if (this.pid === 0) return '0';
    this.#identity ??= this.#identify();
    return this.#identity;
  }

  openDescriptor(): number {
    if (this.#early instanceof SystemCallError) throw this.#early;
    if (this.#early !== undefined) return duplicateDescriptor(this.#early);
    const socket = this.#descriptor();
    if (socket === undefined) throw new SystemCallError('getsockopt SO_PEERPIDFD', EBADF);
    return peerProcessDescriptor(socket);
  }

  /** The connection is over. A second call does nothing. */
  close(): void {
    if (typeof this.#early !== 'number') return;
    closeDescriptor(this.#early);
    this.#early = new SystemCallError('pidfd_open', EBADF);
  }

  /** Makes the kernel compare users that have the same number here. */
  #isOwn(uid: number): boolean {
    if (uid !== process.getuid?.()) return false;
    try {
      const descriptor = this.openDescriptor();
      try {
        return maySignal(descriptor);
      } finally {
        closeDescriptor(descriptor);
      }
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
      return false;
    }
  }

  #identify(): string {
    let descriptor: number | undefined;
    try {
      descriptor = this.openDescriptor();
      const since = startTime(this.pid);
      // The number belongs to that process as long as the process lives.
      if (isProcessAlive(descriptor)) return `${this.pid} since ${since}`;
    } catch (error) {
      if (!(error instanceof SystemCallError)) throw error;
    } finally {
      if (descriptor !== undefined) closeDescriptor(descriptor);
    }
    // Nothing is known about it, so it gets a unique identity.
    strangers += 1;
    return `stranger ${strangers}`;
  }
}

const EBADF = 9;
const ESRCH = 3;

let socketsCanBeAsked: boolean | undefined;

/** Whether the kernel supports SO_PEERPIDFD: checked at the first connection. */
function canAskSockets(descriptor: () => number | undefined): boolean {
  if (socketsCanBeAsked !== undefined) return socketsCanBeAsked;
  try {
    closeDescriptor(peerProcessDescriptor(descriptor() ?? -1));
    socketsCanBeAsked = true;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    if (UNKNOWN_OPTION.has(error.code)) socketsCanBeAsked = false;
    // Otherwise this peer is gone, or descriptors are short: the next connection decides.
    return !UNKNOWN_OPTION.has(error.code);
  }
  return socketsCanBeAsked;
}

/**
 * Opens a pidfd right after the connection arrived, when the pid is unlikely to have been reused.
 * Refuses a process of another user; the check happens while the descriptor holds the process.
 */
function openNow(pid: number, uid: number): number | SystemCallError {
  let descriptor: number;
  try {
    descriptor = openProcessDescriptor(pid);
  } catch (error) {
    if (error instanceof SystemCallError) return error;
    throw error;
  }
  if (ownerOf(pid) === uid && isProcessAlive(descriptor)) return descriptor;
  closeDescriptor(descriptor);
  return new SystemCallError('pidfd_open', ESRCH, `pid ${pid}`);
}

function ownerOf(pid: number): number | undefined {
  return statSync(`/proc/${pid}`, { throwIfNoEntry: false })?.uid;
}

/** Start time of a process, in clock ticks since boot; '' if hidden. */
function startTime(pid: number): string {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // After the name, which may contain anything, follow the state and 18 more fields.
    return text.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? '';
  } catch {
    return '';
  }
}
