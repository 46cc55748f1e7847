/** Checks of the socket: its directory, its daemon, and the users whose daemons clients trust. */
import { accessSync, constants, existsSync, lstatSync, type Stats } from 'node:fs';
import { dirname } from 'node:path';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { failureCode, failureText } from '#daemon/console/failure';
import { directoryFault, isFromRuntimeDirectory } from '#daemon/ipc/socket-place';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { ALLOW_DAEMON_VARIABLE, parseUid } from '#verbs-api/client/daemon-trust';
import { startCommand } from '#verbs-api/client/start-command';
import { broken, type Finding, info, ok, type Place, warn } from './finding.ts';

/** The longest path of a Unix socket, including its NUL. */
const SOCKET_PATH_MAX_BYTES = 108;
const UNREACHABLE: ReadonlySet<string | undefined> = new Set(['EACCES', 'ENOTDIR', 'ELOOP']);

/** The directory of the socket. */
export function examineSocket({ socketPath }: Place): Finding {
  if (Buffer.byteLength(socketPath) >= SOCKET_PATH_MAX_BYTES) {
    return broken(
      `${socketPath} is too long for a Unix socket`,
      'use a shorter path with --socket or IWARPD_SOCKET',
    );
  }
  const folder = dirname(socketPath);
  const stats = statsOf(folder);
  if (stats === 'hidden') return closed(folder, 'is not accessible');
  if (stats === undefined) return examineMissing(folder);
  const finding = judgeSocketFolder(folder, stats, process.getuid?.() ?? 0);
  if (finding !== undefined) return finding;
  return existsSync(socketPath)
    ? ok(`${socketPath}; no other user can replace it`)
    : info(`${folder} exists; no daemon has created its socket there`);
}

/** Whether the daemon will be able to create its directory. */
function examineMissing(folder: string): Finding {
  let parent = dirname(folder);
  while (statsOf(parent) === undefined) parent = dirname(parent);
  try {
    accessSync(parent, constants.W_OK | constants.X_OK);
    return info(`${folder} does not exist yet; \`iwarpd start\` creates it`);
  } catch {
    return closed(folder, `does not exist and cannot be created in ${parent}`);
  }
}

function closed(folder: string, why: string): Finding {
  const derived = isFromRuntimeDirectory(folder);
  return broken(`${folder}${derived ? ', from $XDG_RUNTIME_DIR,' : ''} ${why}`, folderFix(derived));
}

function folderFix(derived: boolean): string {
  return `${derived ? 'unset XDG_RUNTIME_DIR, or ' : ''}use a path of your own with --socket or IWARPD_SOCKET`;
}

/** 'hidden' if a parent is not accessible, or is not a directory. */
function statsOf(path: string): Stats | 'hidden' | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch (error) {
    if (UNREACHABLE.has(failureCode(error))) return 'hidden';
    throw error;
  }
}

/** The fault of the socket's directory; undefined if there is none. */
export function judgeSocketFolder(
  folder: string,
  stats: Pick<Stats, 'uid' | 'mode' | 'isDirectory'>,
  uid: number,
): Finding | undefined {
  const fault = directoryFault(folder, stats, uid);
  if (fault === undefined) return undefined;
  const derived = isFromRuntimeDirectory(folder);
  return broken(fault, folderFix(derived));
}

/** Which users' daemons may access the memory of clients. */
export function examineTrust(): Finding {
  return judgeTrust(process.env[ALLOW_DAEMON_VARIABLE]);
}

/** Judges the environment variable that trusts the daemons of another user. */
export function judgeTrust(allowed: string | undefined): Finding {
  const fix = `unset ${ALLOW_DAEMON_VARIABLE}`;
  if (allowed === undefined || allowed === '') {
    return ok('only your own daemons and those of root; --allow-daemon-uid adds another user');
  }
  const uid = parseUid(allowed);
  if (uid === undefined) return broken(`${ALLOW_DAEMON_VARIABLE} is not a uid in decimal`, fix);
  return warn(
    `also daemons of uid ${uid} (${ALLOW_DAEMON_VARIABLE}): they can read and write the memory of your programs`,
    fix,
  );
}

/** The daemon's own devices always reach each other: isolation matters to other hosts and daemons. */
function networkText({ network }: DaemonStatus): string {
  return network === 'host' ? 'host' : 'isolated, which --network host would open';
}

/** The running daemon, if any. */
export async function examineDaemon({ socketPath }: Place): Promise<Finding> {
  try {
    const status = await queryDaemon('status', {}, { socketPath });
    const names = status.devices.map(({ device }) => device.name).join(', ');
    return ok(
      `iwarpd ${status.version} is running as pid ${status.pid}; devices ${names}; CRC32C by ${status.crcEngine}; loopback by ${status.loopback === 'tcp' ? 'TCP' : 'memory'}; network ${networkText(status)}`,
    );
  } catch (error) {
    const code = failureCode(error);
    if (code === 'ENODEV' || code === 'ECONNREFUSED') {
      return info(`not running at ${socketPath}`, startCommand(socketPath));
    }
    const fix =
      code === 'EACCES'
        ? 'use a socket of your own with --socket or IWARPD_SOCKET'
        : 'stop it and start it again';
    return broken(failureText(error), fix);
  }
}
