/** Where a daemon is: the socket that a program names, or the one that this process uses by default. */
import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname } from 'node:path';
import {
  defaultSocketPath,
  INSTANCE_NAME,
  instanceSocketPath,
  socketDirectory,
} from '#contract/protocol/ipc-admin';
import { kind, nearest, optional, wholeNumber } from '#contract/verbs/arguments';
import { invalid } from '#contract/verbs/errors';
import { type DaemonPlace, type DaemonTrust, UID_MAX } from './daemon-trust.ts';

export interface DaemonOptions extends DaemonTrust {
  /**
   * Path of the daemon's socket. Default: `$IWARPD_SOCKET`, else `iwarpd/iwarpd.sock` under
   * `$XDG_RUNTIME_DIR`, else in a directory of this user under the temporary directory.
   */
  readonly socketPath?: string | undefined;
  /**
   * Name of a private instance, as `iwarpd start --instance` takes it: its socket is beside the default one.
   * Instead of `socketPath`.
   */
  readonly instance?: string | undefined;
}

/** The kinds of the fields of `DaemonOptions`. */
export const DAEMON_FIELDS = {
  socketPath: optional(
    kind('the path of a socket', (value) => typeof value === 'string' && value !== ''),
  ),
  instance: optional(
    kind(
      'an instance name: 1 to 32 letters, digits, or any of . _ -',
      (value) => typeof value === 'string' && INSTANCE_NAME.test(value),
    ),
  ),
  allowDaemonUid: optional(wholeNumber(0, UID_MAX)),
} as const;

/** The socket path that this process uses by default. */
export function socketPathOfThisProcess(): string {
  return defaultSocketPath(ownPlace());
}

/**
 * ` (Did you mean NAME?)` for the missing socket of an instance with a similar name, or nothing. Reads the
 * directory of this user's sockets.
 */
export function instanceHint(socketPath: string): string {
  const directory = socketDirectory(ownPlace());
  if (dirname(socketPath) !== directory) return '';
  const near = nearest(basename(socketPath, SOCKET_SUFFIX), instanceNames(directory));
  return near === undefined ? '' : ` (Did you mean ${near}?)`;
}

/** Names of the instances that have a socket in the directory. */
function instanceNames(directory: string): string[] {
  try {
    return readdirSync(directory)
      .filter((name) => name.endsWith(SOCKET_SUFFIX))
      .map((name) => basename(name, SOCKET_SUFFIX))
      .filter((name) => INSTANCE_NAME.test(name));
  } catch {
    // No daemon has run yet.
    return [];
  }
}

const SOCKET_SUFFIX = '.sock';

function ownPlace() {
  return {
    environment: process.env,
    // In a container, a user often has a number only and no name.
    uid: process.geteuid?.() ?? 0,
    temporaryDirectory: tmpdir(),
  };
}

/** The place that these options name. EINVAL if they name two. */
export function placeOf({ socketPath, instance, allowDaemonUid }: DaemonOptions): DaemonPlace {
  if (instance === undefined) {
    return { path: socketPath ?? socketPathOfThisProcess(), allowDaemonUid };
  }
  if (socketPath !== undefined) {
    const text = '`socketPath` and `instance` each name a daemon: give one of them';
    throw invalid(text);
  }
  return { path: instanceSocketPath(instance, ownPlace()), allowDaemonUid };
}
