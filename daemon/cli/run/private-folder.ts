/**
 * The folder of a private daemon, in the temporary directory. Its name identifies the owner: a run that
 * is killed cannot remove its folder, so the next run does.
 */
import { lstatSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CommandFailure, fileFailureText } from '#daemon/console/failure';

const PREFIX = 'iwarpd-run-';
/** `iwarpd-run-PID.PID-NAMESPACE-XXXXXX`. */
const NAME = /^iwarpd-run-(?<pid>\d{1,10})\.(?<namespace>\d{1,20})-\w{6}$/;
const SOCKET_NAME = 'iwarpd.sock';
/** Folders removed per start; others wait for the next one. */
const REMOVED_MAX = 64;

/** Creates a folder for a daemon of this process. CommandFailure if that fails. */
export function makePrivateFolder(): string {
  const directory = tmpdir();
  try {
    return mkdtempSync(join(directory, `${PREFIX}${process.pid}.${pidNamespace()}-`));
  } catch (error) {
    throw new CommandFailure(
      `cannot create a folder in ${directory}: ${fileFailureText(error)}; set TMPDIR to a directory that you can write to`,
      { cause: error },
    );
  }
}

export function socketIn(folder: string): string {
  return join(folder, SOCKET_NAME);
}

export function privateFolders(): string[] {
  const directory = tmpdir();
  try {
    return readdirSync(directory)
      .filter((name) => NAME.test(name))
      .map((name) => join(directory, name))
      .filter(isOwn);
  } catch {
    // No such directory, hence no folders.
    return [];
  }
}

/** Removes the folders of this user's runs that were killed. Never fails. */
export async function removeDeadFolders(): Promise<void> {
  for (const folder of privateFolders().slice(0, REMOVED_MAX)) {
    if (!isAbandoned(folder) || (await answers(socketIn(folder)))) continue;
    try {
      rmSync(folder, { recursive: true, force: true });
    } catch {
      // Another start is removing it.
    }
  }
}

/** A directory of this user, not a link: others can put links into the temporary directory. */
function isOwn(folder: string): boolean {
  const stats = lstatSync(folder, { throwIfNoEntry: false });
  return stats?.isDirectory() === true && stats.uid === process.geteuid?.();
}

/** Its process is gone. Processes of other containers cannot be looked up from here. */
function isAbandoned(folder: string): boolean {
  const { pid, namespace } = NAME.exec(folder.slice(folder.lastIndexOf('/') + 1))?.groups ?? {};
  return namespace === pidNamespace() && !isAlive(Number(pid));
}

/** False for a zombie: it has no open files, and its parent may never wait for it. */
function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2));
  } catch {
    return false;
  }
}

/** Whether a daemon listens: a pid may have been reused by an unrelated process. */
function answers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

/** The number of this PID namespace; 0 without /proc, where processes cannot be looked up. */
function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0';
  } catch {
    return '0';
  }
}
