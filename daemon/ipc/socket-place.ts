/**
 * The place of the daemon's socket: a directory where nobody else can replace it, and no other
 * daemon at the same path. A socket that a dead daemon left behind is replaced.
 */
import {
  chmodSync,
  closeSync,
  lstatSync,
  mkdirSync,
  openSync,
  type Stats,
  unlinkSync,
} from 'node:fs';
import type { Server } from 'node:net';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { closeDescriptor } from '../../native-bridge/libc/descriptor.ts';
import { tryLock } from '../../native-bridge/libc/file-lock.ts';
import { SystemCallError } from '../../native-bridge/libc/libc.ts';
import {
  connectUnix,
  peerCredentials,
  SOCKET_PATH_MAX_BYTES,
} from '../../native-bridge/libc/unix-socket.ts';
import { VerbsError } from '../../verbs-api/contract/errors.ts';

const PRIVATE_DIRECTORY_MODE = 0o700;
const PRIVATE_SOCKET_MODE = 0o600;
const SHARED_SOCKET_MODE = 0o666;
/** The right of group and others to write. */
const OTHERS_WRITE = 0o022;
const STICKY = 0o1000;
/** Another daemon holds the place for as long as it takes to bind. */
const LOCK_ATTEMPTS = 100;
const LOCK_RETRY_MS = 20;
/** Connections that may wait to be accepted. */
const BACKLOG = 511;

/** Options of `listenAtPlace`. */
export interface PlaceOptions {
  readonly path: string;
  /** True: the socket is open to other users, whom the server then judges. */
  readonly shared: boolean;
}

/**
 * Makes the directory when it is missing, checks it, and lets `server` listen. Rejects with
 * `VerbsError`: EACCES for a directory where others could replace it, EADDRINUSE when a daemon runs
 * there, EINVAL for a path that is too long or no socket.
 */
export async function listenAtPlace(server: Server, options: PlaceOptions): Promise<void> {
  const { path } = options;
  if (Buffer.byteLength(path) > SOCKET_PATH_MAX_BYTES) {
    throw new VerbsError('EINVAL', `the socket path is longer than a Unix socket allows: ${path}`);
  }
  const directory = dirname(path);
  mkdirSync(directory, { recursive: true, mode: PRIVATE_DIRECTORY_MODE });
  checkDirectory(directory);
  const lock = await lockDirectory(directory);
  try {
    removeStale(path);
    await listen(server, path);
    chmodSync(path, options.shared ? SHARED_SOCKET_MODE : PRIVATE_SOCKET_MODE);
  } finally {
    closeSync(lock);
  }
}

/**
 * Why a socket in this directory could be taken away or replaced by another user, or undefined:
 * it has to be the user's own and writable for nobody else, or one where everybody may remove only
 * what is his own. Who may enter does not matter, since the socket itself is closed to others.
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

function checkDirectory(directory: string): void {
  const fault = directoryFault(directory, lstatSync(directory), process.getuid?.());
  if (fault === undefined) return;
  throw new VerbsError('EACCES', `${fault}: name a path of your own for the socket`);
}

/** Keeps daemons that start at the same time apart. The result is to be closed. */
async function lockDirectory(directory: string): Promise<number> {
  const fd = openSync(directory, 'r');
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
  if (!stats.isSocket()) throw new VerbsError('EINVAL', `${path} is there and is not a socket`);
  const owner = liveOwner(path);
  if (owner !== undefined) {
    throw new VerbsError('EADDRINUSE', `a daemon runs at ${path} already (${owner})`);
  }
  unlinkSync(path);
}

/** Who listens at the path, or undefined when nobody does. */
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

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path, backlog: BACKLOG }, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
