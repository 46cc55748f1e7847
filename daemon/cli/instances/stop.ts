/** `iwarpd stop`: ends a running daemon, and waits until it has ended. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { DaemonConnection } from '../../../verbs-api/client/daemon-connection.ts';
import { instanceHint, socketPathOfThisProcess } from '../../../verbs-api/client/daemon-place.ts';
import { Role } from '../../../verbs-api/contract/protocol/ipc-frames.ts';
import { CommandFailure, failureCode, failureText } from '../../console/failure.ts';
import { type Output, printJson } from '../../console/output.ts';
import { findDaemons } from './found-daemons.ts';

/** Options of the command. */
export interface StopArguments {
  readonly socket?: string;
  readonly all?: boolean;
  readonly timeout: number;
  readonly json?: boolean;
}

/** A daemon that was stopped. */
interface Stopped {
  readonly pid: number;
  readonly socketPath: string;
}

/** Between two looks at a process. */
const LOOK_MS = 20;
/** Errors of a socket at which nothing listens. */
const NOT_RUNNING: readonly string[] = ['ENODEV', 'ECONNREFUSED'];

/** Stops one daemon, or all of this user. CommandFailure if there is none, or one does not end in time. */
export async function runStop(given: StopArguments, output: Output): Promise<void> {
  const stopped = given.all === true ? await stopAll(given) : [await stopOne(given)];
  if (given.json === true) return printJson(output, { stopped });
  if (stopped.length === 0) output.line('no daemons');
  for (const { pid, socketPath } of stopped) output.line(`stopped pid ${pid} at ${socketPath}`);
}

async function stopOne({ socket, timeout }: StopArguments): Promise<Stopped> {
  const socketPath = socket ?? socketPathOfThisProcess();
  try {
    return await stop(socketPath, timeout);
  } catch (error) {
    if (!NOT_RUNNING.includes(failureCode(error) ?? '')) throw error;
    const text = `no daemon at ${socketPath}${instanceHint(socketPath)}; \`iwarpd list\` prints those that run`;
    throw new CommandFailure(text, { cause: error });
  }
}

/** The private daemons of runs end with their programs. */
async function stopAll({ timeout }: StopArguments): Promise<Stopped[]> {
  const running = (await findDaemons()).filter((each) => each.state === 'running');
  const instances = running.filter(({ name }) => name !== undefined);
  return await Promise.all(instances.map(({ socketPath }) => stop(socketPath, timeout)));
}

/** While the connection is open, no other process has the daemon's pid. */
async function stop(socketPath: string, timeoutSeconds: number): Promise<Stopped> {
  const place = { path: socketPath, allowDaemonUid: undefined };
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
