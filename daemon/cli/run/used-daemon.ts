/** The daemon of a program under `run`: a running one, or a private one in this process. */
import { lstatSync, rmSync } from 'node:fs';
import type { Logger } from 'pino';
import { CommandFailure, failureCode } from '#daemon/console/failure';
import { sysfsPath } from '#daemon/kernel/sysfs-tree';
import type { Findings } from '#daemon/lint/findings';
import type { DaemonConfigInput } from '#daemon/main/config';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { isTrustedUser } from '#verbs-api/client/daemon-trust';

export interface UsedDaemon {
  readonly socketPath: string;
  /** It serves this run only, so its leaks, faults and log are the program's. */
  readonly isPrivate: boolean;
  /** Stops a private daemon; does nothing to a shared one. */
  stop(): Promise<void>;
}

/** A daemon that is already running. */
export function sharedDaemon(socketPath: string): UsedDaemon {
  return { socketPath, isPrivate: false, stop: () => Promise.resolve() };
}

/** Starts a daemon for one program, in a temporary folder. It records advice in `findings`. */
export async function startPrivate(
  folder: string,
  options: DaemonConfigInput & { readonly socketPath: string },
  log: Logger,
  findings: Findings | undefined,
): Promise<UsedDaemon> {
  const { socketPath } = options;
  // Loaded on demand: without it, a program on a running daemon starts in half the time.
  const { startDaemon } = await import('#daemon/main/daemon');
  const daemon = await startDaemon(options, { log, ...(findings && { findings }) });
  return {
    socketPath,
    isPrivate: true,
    stop: async () => {
      await daemon.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Whether a daemon responds. VerbsError if it refuses this client or is not trusted. */
export async function isRunning(socketPath: string): Promise<boolean> {
  try {
    await queryDaemon('status', {}, { socketPath });
    checkSysfs(sysfsPath(socketPath));
    return true;
  } catch (error) {
    const code = failureCode(error);
    if (code === 'ENODEV' || code === 'ECONNREFUSED') return false;
    throw error;
  }
}

/**
 * Throws CommandFailure unless the device tree is a directory of the daemon's user, since programs
 * would read another user's.
 */
function checkSysfs(directory: string): void {
  const stats = lstatSync(directory, { throwIfNoEntry: false });
  if (stats === undefined || (stats.isDirectory() && isTrustedUser(stats.uid))) return;
  const what = stats.isDirectory()
    ? `it belongs to uid ${stats.uid}, which is not the daemon's user`
    : 'it is not a directory';
  throw new CommandFailure(`refusing the device tree ${directory}: ${what}`);
}
