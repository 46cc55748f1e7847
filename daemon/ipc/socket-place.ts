/**
 * The place of the daemon's socket: a directory of its user alone, and no other daemon at the same
 * path. A socket that a dead daemon left behind is replaced.
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
/** Rights of group and others in a mode. */
const OPEN_BITS = 0o077;
const WORLD_WRITABLE = 0o002;
const STICKY = 0o1000;
/** Another daemon holds the place for as long as it takes to bind. */
const LOCK_ATTEMPTS = 100;
const LOCK_RETRY_MS = 20;
/** Connections that may wait to be accepted. */
const BACKLOG = 511;

/** Options of `listenAtPlace`. */
export interface PlaceOptions {
  readonly path: string;
  /** True: the directory may be open to others, and the socket is. */
  readonly shared: boolean;
}

/**
 * Makes the directory when it is missing, checks it, and lets `server` listen. Rejects with
 * `VerbsError`: EACCES for a directory that others own or can enter, EADDRINUSE when a daemon runs
 * there, EINVAL for a path that is too long or no socket.
 */
export async function listenAtPlace(server: Server, options: PlaceOptions): Promise<void> {
  const { path } = options;
  if (Buffer.byteLength(path) > SOCKET_PATH_MAX_BYTES) {
    throw new VerbsError('EINVAL', `the socket path is longer than a Unix socket allows: ${path}`);
  }
  const directory = dirname(path);
  mkdirSync(directory, { recursive: true, mode: PRIVATE_DIRECTORY_MODE });
  checkDirectory(directory, options.shared);
  const lock = await lockDirectory(directory);
  try {
    removeStale(path);
    await listen(server, path);
    chmodSync(path, options.shared ? SHARED_SOCKET_MODE : PRIVATE_SOCKET_MODE);
  } finally {
    closeSync(lock);
  }
}

function checkDirectory(directory: string, shared: boolean): void {
  const stats = lstatSync(directory);
  const uid = process.getuid?.();
  if (!stats.isDirectory()) throw new VerbsError('EACCES', `${directory} is not a directory`);
  if (stats.uid !== uid && !(shared && stats.uid === 0)) {
    throw new VerbsError('EACCES', `${directory} belongs to user ${stats.uid}, not to ${uid}`);
  }
  if (shared) {
    if ((stats.mode & WORLD_WRITABLE) !== 0 && (stats.mode & STICKY) === 0) {
      throw new VerbsError('EACCES', `anybody can replace files in ${directory}`);
    }
  } else if ((stats.mode & OPEN_BITS) !== 0) {
    const mode = (stats.mode & 0o777).toString(8);
    throw new VerbsError(
      'EACCES',
      `${directory} is open to others (mode ${mode}): use a directory of mode 700 for the socket`,
    );
  }
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
