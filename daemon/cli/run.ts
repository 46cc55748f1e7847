/** `iwarpd run` and `iwarpd env`: unmodified rdma-core programs on the emulated devices. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { queryDaemon } from '../../verbs-api/client/daemon-link.ts';
import type { DeviceConfig } from '../adapter/device-config.ts';
import { startDaemon } from '../main/daemon.ts';
import { CommandFailure, failureCode } from './failure.ts';
import type { Output } from './output.ts';
import { findProgram, preloadObstacle } from './program-file.ts';
import { exportLines, shimVariables } from './shim-environment.ts';

/** Exit statuses of a shell for a program that is not there, or cannot be executed. */
const STATUS_NOT_FOUND = 127;
const STATUS_NOT_EXECUTABLE = 126;
/** A shell reports a program that a signal ended as this and the signal's number. */
const STATUS_SIGNALLED = 128;

/** Signals whose default action writes a core file: it would be one of this process, and useless. */
const CORE_SIGNALS: readonly NodeJS.Signals[] = [
  'SIGQUIT',
  'SIGILL',
  'SIGTRAP',
  'SIGABRT',
  'SIGBUS',
  'SIGFPE',
  'SIGSEGV',
  'SIGXCPU',
  'SIGXFSZ',
  'SIGSYS',
];

/** Signals that are passed on to the program. */
const PASSED_SIGNALS: readonly NodeJS.Signals[] = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
  'SIGQUIT',
  'SIGUSR1',
  'SIGUSR2',
];
/** Those that a terminal sends to every process at it, the program included. */
const TERMINAL_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT'];

/** The options as commander hands them over. */
export interface RunArguments {
  readonly socket: string;
  readonly fresh: boolean;
  readonly device: readonly DeviceConfig[] | undefined;
}

/** A daemon to use, and what to do when it is not needed any more. */
interface UsedDaemon {
  readonly socketPath: string;
  stop(): Promise<void>;
}

/** How a program ended. */
type ProgramEnd =
  | { readonly status: number }
  | { readonly signal: NodeJS.Signals }
  | { readonly error: Error };

/**
 * Runs a program to its end, and ends this process as the program ended. CommandFailure when it
 * cannot be started.
 */
export async function runProgram(
  words: readonly string[],
  given: RunArguments,
  output: Output,
): Promise<void> {
  const [name = '', ...rest] = words;
  const found = findProgram(name, process.env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin');
  if ('error' in found) throw notRunnable(name, found.error);
  const runner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const obstacle = preloadObstacle(found.path, runner);
  if (obstacle !== undefined) {
    output.note(`iwarpd: ${found.path} ${obstacle}: it will not see the emulated devices`);
  }
  // A library that is missing has to be told before a daemon is started.
  shimVariables(given.socket, process.env);
  const daemon = await usedDaemon(given);
  let end: ProgramEnd;
  try {
    const variables = shimVariables(daemon.socketPath, process.env);
    end = await runToEnd(name, rest, { ...process.env, ...variables });
  } finally {
    await daemon.stop();
  }
  if ('error' in end) throw notRunnable(name, failureCode(end.error) ?? 'EACCES');
  if ('status' in end) process.exitCode = end.status;
  else endBySignal(end.signal);
}

/** Prints what `run` would set, for a shell. */
export async function printEnvironment(socketPath: string, output: Output): Promise<void> {
  const variables = shimVariables(socketPath, process.env);
  for (const line of exportLines(variables)) output.line(line);
  if (!(await isRunning(socketPath))) {
    output.note(`iwarpd: no daemon runs at ${socketPath} yet: iwarpd start`);
  }
}

function notRunnable(name: string, code: string): CommandFailure {
  if (code === 'ENOENT') {
    return new CommandFailure(`there is no program ${name}`, { exitStatus: STATUS_NOT_FOUND });
  }
  const message = `${name} cannot be executed (${code})`;
  return new CommandFailure(message, { exitStatus: STATUS_NOT_EXECUTABLE });
}

/** The daemon that runs already, unless a fresh one is wanted, or has to be for its devices. */
async function usedDaemon({ socket, fresh, device }: RunArguments): Promise<UsedDaemon> {
  if (!fresh && device === undefined && (await isRunning(socket))) {
    return { socketPath: socket, stop: () => Promise.resolve() };
  }
  const folder = mkdtempSync(join(tmpdir(), 'iwarpd-run-'));
  const socketPath = join(folder, 'iwarpd.sock');
  try {
    const devices = device?.map(({ name, addresses }) => ({ name, addresses: [...addresses] }));
    const daemon = await startDaemon({
      socketPath,
      // The program's standard error is its own.
      logLevel: 'error',
      // Unmodified programs see emulated devices only; native ones they have without us.
      native: false,
      ...(devices === undefined ? {} : { devices }),
    });
    return {
      socketPath,
      stop: async () => {
        await daemon.stop();
        rmSync(folder, { recursive: true, force: true });
      },
    };
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

/** Whether a daemon answers. VerbsError when one is there and refuses. */
async function isRunning(socketPath: string): Promise<boolean> {
  try {
    await queryDaemon('status', {}, { socketPath });
    return true;
  } catch (error) {
    const code = failureCode(error);
    if (code === 'ENODEV' || code === 'ECONNREFUSED') return false;
    throw error;
  }
}

function runToEnd(
  name: string,
  words: readonly string[],
  environment: NodeJS.ProcessEnv,
): Promise<ProgramEnd> {
  return new Promise((resolve) => {
    // Before the program is there to be asked for signals: one that comes in between is not lost.
    const passing = passSignals();
    const child = spawn(name, words, { stdio: 'inherit', env: environment });
    passing.to(child);
    const settle = (end: ProgramEnd): void => {
      passing.end();
      resolve(end);
    };
    child.once('error', (error) => {
      if (child.pid === undefined) settle({ error });
    });
    child.once('exit', (status, signal) => {
      settle(signal === null ? { status: status ?? 0 } : { signal });
    });
  });
}

/** Signals on their way to a program. */
interface SignalPassing {
  /** Names the program; signals that came before go to it now. */
  to(child: ChildProcess): void;
  /** Gives signals back to what they do here. */
  end(): void;
}

/** Keeps signals for a program, in place of what they do here. */
function passSignals(): SignalPassing {
  const early: NodeJS.Signals[] = [];
  let program: ChildProcess | undefined;
  const handlers = PASSED_SIGNALS.map((signal) => {
    const before = process.listeners(signal);
    process.removeAllListeners(signal);
    const pass = (): void => {
      if (process.stdin.isTTY && TERMINAL_SIGNALS.includes(signal)) return;
      if (program === undefined) early.push(signal);
      else program.kill(signal);
    };
    process.on(signal, pass);
    return { signal, before, pass };
  });
  return {
    to(child) {
      program = child;
      for (const signal of early) child.kill(signal);
    },
    end() {
      for (const { signal, before, pass } of handlers) {
        process.off(signal, pass);
        for (const listener of before) process.on(signal, listener);
      }
    },
  };
}

/** Ends this process by the signal that ended the program, so that its parent sees the same. */
function endBySignal(signal: NodeJS.Signals): void {
  process.exitCode = STATUS_SIGNALLED + constants.signals[signal];
  if (CORE_SIGNALS.includes(signal)) return;
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}
