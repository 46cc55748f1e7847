/** Where a daemon is: the socket that a program names, or the one that this process uses by default. */
import { tmpdir } from 'node:os';
import { defaultSocketPath } from '../contract/protocol/ipc-admin.ts';
import type { DaemonPlace, DaemonTrust } from './daemon-trust.ts';

/** Which daemon to connect to. */
export interface DaemonOptions extends DaemonTrust {
  /** Path of the daemon's socket. Default: see `defaultSocketPath`. */
  readonly socketPath?: string | undefined;
}

/** The socket path that this process uses by default. */
export function socketPathOfThisProcess(): string {
  return defaultSocketPath({
    environment: process.env,
    // In a container, a user often has a number only and no name.
    uid: process.geteuid?.() ?? 0,
    temporaryDirectory: tmpdir(),
  });
}

/** The place that these options name. */
export function placeOf({ socketPath, allowDaemonUid }: DaemonOptions): DaemonPlace {
  return { path: socketPath ?? socketPathOfThisProcess(), allowDaemonUid };
}
