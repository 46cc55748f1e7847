/** Where a daemon is: the socket that a program names, or the one that this process uses by default. */
import { tmpdir } from 'node:os';
import {
  defaultSocketPath,
  INSTANCE_NAME,
  instanceSocketPath,
} from '../contract/protocol/ipc-admin.ts';
import { kind, optional, TEXT, wholeNumber } from '../contract/verbs/arguments.ts';
import { VerbsError } from '../contract/verbs/errors.ts';
import { type DaemonPlace, type DaemonTrust, UID_MAX } from './daemon-trust.ts';

/** Which daemon to connect to. */
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
  socketPath: optional(TEXT),
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
    throw new VerbsError('EINVAL', text);
  }
  return { path: instanceSocketPath(instance, ownPlace()), allowDaemonUid };
}
