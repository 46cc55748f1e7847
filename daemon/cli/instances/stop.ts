/** `iwarpd stop`: stops running daemons and waits until they have ended. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Role } from '#contract/protocol/ipc-frames';
import { CommandFailure, failureCode, failureText } from '#daemon/console/failure';
import { type Output, printJson } from '#daemon/console/output';
import { DaemonConnection } from '#verbs-api/client/daemon-connection';
import { instanceHint, socketPathOfThisProcess } from '#verbs-api/client/daemon-place';
import { ANSWER_MS, instanceSockets } from './found-daemons.ts';

export interface StopArguments {
  readonly socket?: string;
  /** Sockets of several daemons, instead of `socket`. */
  readonly sockets?: readonly string[];
  readonly all?: boolean;
  readonly timeout: number;
  readonly json?: boolean;
}

interface Stopped {
  readonly pid: number;
  readonly socketPath: string;
}

/** Interval between two checks of a process. */
const LOOK_MS = 20;
/** Errors of a socket without a listener. */
const NOT_RUNNING: readonly string[] = ['ENODEV', 'ECONNREFUSED'];

/**
 * Stops daemons in parallel: the named ones, or all of this user. CommandFailure, after the others
 * have ended, for one that does not exist or does not end in time.
 */
export async function runStop(given: StopArguments, output: Output): Promise<void> {
  const { all, socket = socketPathOfThisProcess(), sockets = [socket], timeout } = given;
  // The private daemons of runs end with their programs.
  const paths = all === true ? instanceSockets() : sockets;
  const ends = await Promise.allSettled(paths.map((path) => stopOne(path, timeout, all === true)));
  const stopped = ends.flatMap((end) => (end.status === 'fulfilled' ? (end.value ?? []) : []));
  const failures = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason] : []));
  if (given.json === true && (stopped.length > 0 || failures.length === 0)) {
    printJson(output, { stopped });
  } else {
    if (stopped.length + failures.length === 0) output.line('no daemons');
    for (const { pid, socketPath } of stopped) output.line(`stopped pid ${pid} at ${socketPath}`);
  }
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1) throw new CommandFailure(failures.map(failureText).join('; '));
}

/** Undefined if there is no daemon and `mayBeGone` says that this is not a failure. */
async function stopOne(
  socketPath: string,
  timeout: number,
  mayBeGone: boolean,
): Promise<Stopped | undefined> {
  try {
    return await stop(socketPath, timeout);
  } catch (error) {
    const code = failureCode(error) ?? '';
    if (code === 'ETIMEDOUT' && error instanceof Error) {
      throw new CommandFailure(
        `${error.message}; if it is stopped (SIGSTOP), \`kill -CONT\` continues it; \`kill -9\` ends it in any case`,
        { cause: error },
      );
    }
    if (!NOT_RUNNING.includes(code)) throw error;
    if (mayBeGone) return undefined;
    const text = `no daemon at ${socketPath}${instanceHint(socketPath)}; \`iwarpd list\` prints those that run`;
    throw new CommandFailure(text, { cause: error });
  }
}

/** While the connection is open, no other process has the daemon's pid. */
async function stop(socketPath: string, timeoutSeconds: number): Promise<Stopped> {
  const greetingTimeoutMs = Math.max(ANSWER_MS, timeoutSeconds * 1000);
  const place = { path: socketPath, greetingTimeoutMs };
  const connection = await DaemonConnection.open(place, Role.admin);
  const { daemonPid: pid } = connection;
  try {
    if (pid === 0) {
      throw new CommandFailure(
        `cannot stop the daemon at ${socketPath}: it runs in another container, where it must be stopped`,
      );
    }
    const started = startTime(pid);
    terminate(pid, socketPath);
    const deadline = performance.now() + timeoutSeconds * 1000;
    while (startTime(pid) === started && started !== undefined) {
      if (performance.now() >= deadline) {
        throw new CommandFailure(
          `the daemon at ${socketPath} (pid ${pid}) has not ended within ${timeoutSeconds} s; wait longer with --timeout, or \`kill -9 ${pid}\``,
        );
      }
      await sleep(LOOK_MS);
    }
    return { pid, socketPath };
  } finally {
    connection.destroy();
  }
}

function terminate(pid: number, socketPath: string): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch (error) {
    if (failureCode(error) === 'ESRCH') return;
    throw new CommandFailure(
      `cannot stop the daemon at ${socketPath} (pid ${pid}): ${failureText(error)}; it belongs to another user`,
      { cause: error },
    );
  }
}

/** Start time of the process, to distinguish it from a later one with the same pid; undefined once it has ended. */
function startTime(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state = 'X', ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A zombie has ended; its parent may be slow to notice.
    return state === 'Z' || state === 'X' ? undefined : rest[18];
  } catch {
    return undefined;
  }
}
