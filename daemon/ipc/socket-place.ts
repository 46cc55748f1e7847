/**
 * The location of the daemon's socket: a directory in which no other user can replace it, with one
 * daemon per path. Replaces the socket of a dead daemon.
 */
import {
  chmodSync,
  closeSync,
  constants,
  lstatSync,
  mkdirSync,
  openSync,
  type Stats,
  unlinkSync,
} from 'node:fs';
import type { Server } from 'node:net';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { getSystemErrorMap } from 'node:util';
import { invalid, VerbsError } from '#contract/verbs/errors';
import { closeDescriptor } from '#native-bridge/libc/descriptor';
import { tryLock } from '#native-bridge/libc/file-lock';
import { SystemCallError } from '#native-bridge/libc/libc';
import {
  connectUnix,
  peerCredentials,
  SOCKET_PATH_MAX_BYTES,
} from '#native-bridge/libc/unix-socket';

const PRIVATE_DIRECTORY_MODE = 0o700;
const PRIVATE_SOCKET_MODE = 0o600;
const SHARED_SOCKET_MODE = 0o666;
/** Write permission of group and others. */
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;
/** Attempts to lock; another daemon holds the lock only while it binds. */
const LOCK_ATTEMPTS = 100;
const LOCK_RETRY_MS = 20;
/** Connections that may wait for accept(). */
const BACKLOG = 511;

interface PlaceOptions {
  readonly path: string;
  /** True if other users may connect; the server then checks them. */
  readonly shared: boolean;
}

/**
 * Creates the directory if missing, checks it, and makes `server` listen. Rejects with
 * `VerbsError`: EACCES if the socket cannot be created or other users could replace its directory,
 * EADDRINUSE if a daemon is running there, EINVAL if the path is too long or is not a socket.
 */
export async function listenAtPlace(server: Server, options: PlaceOptions): Promise<void> {
  const { path } = options;
  if (Buffer.byteLength(path) > SOCKET_PATH_MAX_BYTES) {
    throw invalid(`${path} is too long for a Unix socket; choose a shorter path with --socket`);
  }
  preparePlace(path);
  const directory = dirname(path);
  const lock = await lockDirectory(directory);
  try {
    removeStale(path);
    await listen(server, path);
    chmodSync(path, options.shared ? SHARED_SOCKET_MODE : PRIVATE_SOCKET_MODE);
  } finally {
    closeSync(lock);
  }
}

/** Creates the directory of a socket if it is missing, and checks it. `VerbsError` as `listenAtPlace`. */
export function preparePlace(path: string): void {
  const directory = dirname(path);
  makeDirectory(directory);
  checkDirectory(directory);
}

/**
 * Why another user could remove or replace a socket in this directory; undefined if none could. The
 * directory must belong to this user and be writable by no other user, or be sticky, so that users
 * can remove only their own files. Read access does not matter, since the socket itself is closed
 * to others.
 */
export function directoryFault(
  directory: string,
  stats: Pick<Stats, 'uid' | 'mode' | 'isDirectory'>,
  uid: number | undefined,
): string | undefined {
  if (!stats.isDirectory()) return `${directory} is not a directory`;
  const sticky = (stats.mode & STICKY) !== 0;
  if (stats.uid !== uid && !(stats.uid === 0 && sticky)) {
    return `${directory} belongs to user ${stats.uid}, not to ${uid}`;
  }
  if ((stats.mode & OTHERS_WRITE) === 0 || sticky) return undefined;
  const mode = (stats.mode & 0o777).toString(8);
  return `others can replace files in ${directory} (mode ${mode})`;
}

function makeDirectory(directory: string): void {
  try {
    mkdirSync(directory, { recursive: true, mode: PRIVATE_DIRECTORY_MODE });
  } catch (error) {
    const choose = 'choose another socket with --socket';
    const fix = isFromRuntimeDirectory(directory) ? `unset $XDG_RUNTIME_DIR, or ${choose}` : choose;
    throw new VerbsError('EACCES', `cannot create ${directory}: ${reasonOf(error)}; ${fix}`);
  }
}

/** True for a directory in $XDG_RUNTIME_DIR, which the user did not choose. */
export function isFromRuntimeDirectory(directory: string): boolean {
  const runtime = process.env['XDG_RUNTIME_DIR'];
  return runtime !== undefined && runtime !== '' && directory.startsWith(`${runtime}/`);
}

function reasonOf(error: unknown): string {
  const errno: unknown = error instanceof Error ? Reflect.get(error, 'errno') : undefined;
  const [code, text] = (typeof errno === 'number' && getSystemErrorMap().get(errno)) || [];
  if (code === undefined) return String(error);
  return code === 'EACCES' || code === 'EPERM' ? 'permission denied' : `${text} (${code})`;
}

function checkDirectory(directory: string): void {
  const fault = directoryFault(directory, lstatSync(directory), process.getuid?.());
  if (fault === undefined) return;
  throw new VerbsError(
    'EACCES',
    `${fault}; choose a socket in a directory of your own with --socket`,
  );
}

/** Serialises daemons that start at the same time. The caller closes the descriptor. */
async function lockDirectory(directory: string): Promise<number> {
  const fd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    for (let attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
      if (tryLock(fd)) return fd;
      await sleep(LOCK_RETRY_MS);
    }
    throw new VerbsError('EBUSY', `another daemon is starting in ${directory}`);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Removes the socket of a dead daemon. EADDRINUSE for a live one. */
function removeStale(path: string): void {
  const stats = statsOf(path);
  if (stats === undefined) return;
  if (!stats.isSocket())
    throw invalid(`${path} exists and is not a socket; choose another path with --socket`);
  if (stats.uid !== process.geteuid?.() && process.geteuid?.() !== 0) {
    throw new VerbsError(
      'EACCES',
      `${path} is a socket of uid ${stats.uid}; choose another with --socket`,
    );
  }
  const owner = liveOwner(path);
  if (owner !== undefined) {
    throw new VerbsError(
      'EADDRINUSE',
      `a daemon already runs at ${path} (${owner}); use it, stop it, or start another with --instance NAME`,
    );
  }
  unlinkSync(path);
}

/** The daemon that listens at the path, if any. */
function liveOwner(path: string): string | undefined {
  try {
    const fd = connectUnix(path);
    const { pid } = peerCredentials(fd);
    closeDescriptor(fd);
    return `pid ${pid}`;
  } catch (error) {
    if (!(error instanceof SystemCallError)) throw error;
    if (error.code === 'ECONNREFUSED') return undefined;
    return error.code === 'EAGAIN' ? 'it is busy' : error.code;
  }
}

function statsOf(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function listenFailure(error: unknown, path: string): VerbsError {
  const fix = 'choose another path with --socket';
  return new VerbsError('EACCES', `cannot create the socket ${path}: ${reasonOf(error)}; ${fix}`);
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (error: Error): void => reject(listenFailure(error, path));
    server.once('error', fail);
    server.listen({ path, backlog: BACKLOG }, () => {
      server.off('error', fail);
      resolve();
    });
  });
}
