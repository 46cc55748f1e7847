/** `iwarpd run` and `iwarpd env`: unmodified rdma-core programs on the emulated devices. */
import { type ChildProcess, spawn } from 'node:child_process';
import { lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { queryDaemon } from '../../verbs-api/client/daemon-query.ts';
import { isTrustedUser } from '../../verbs-api/client/daemon-trust.ts';
import { startCommand } from '../../verbs-api/client/start-command.ts';
import { CommandFailure, failureCode } from '../console/failure.ts';
import type { Output } from '../console/output.ts';
import { exportLines, shimVariables } from '../console/shim-environment.ts';
import type { DeviceConfig } from '../host/device-config.ts';
import { sysfsPath } from '../ipc/kernel/sysfs-tree.ts';
import { startDaemon } from '../main/daemon.ts';
import { findProgram, neededLibraries, preloadObstacle } from './program-file.ts';

/** Exit statuses of a shell for a program that is not there, or cannot be executed. */
const STATUS_NOT_FOUND = 127;
const STATUS_NOT_EXECUTABLE = 126;
/** A shell reports a program that a signal ended as this and the signal's number. */
const STATUS_SIGNALLED = 128;

/** Signals whose default action writes a core file: it would be of this process, and useless. */
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
/** Signals that a terminal sends to all processes in the foreground, the program included. */
const TERMINAL_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT'];

/** The options as commander hands them over. */
export interface RunArguments {
  readonly socket: string;
  readonly fresh: boolean;
  readonly device: readonly DeviceConfig[] | undefined;
  /** --socket or --instance names the daemon. */
  readonly named: boolean;
}

/** The daemon to use, and how to stop it afterwards. */
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
 * Runs a program to its end, and ends this process the same way. CommandFailure if it cannot be
 * started.
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
    output.note(`iwarpd: ${found.path} ${obstacle}; it will not see the emulated devices`);
  }
  // Report a missing library before starting a daemon.
  shimVariables(given.socket, process.env);
  const daemon = await usedDaemon(given);
  let end: ProgramEnd;
  try {
    const needed = neededLibraries(found.path);
    const variables = shimVariables(daemon.socketPath, process.env, needed);
    end = await runToEnd(name, rest, { ...process.env, ...variables });
  } finally {
    await daemon.stop();
  }
  if ('error' in end) throw notRunnable(name, failureCode(end.error) ?? 'EACCES');
  if ('status' in end) process.exitCode = end.status;
  else endBySignal(end.signal);
}

/** Prints the variables that `run` sets, for a shell. */
export async function printEnvironment(socketPath: string, output: Output): Promise<void> {
  const variables = shimVariables(socketPath, process.env);
  // First: a shell that evaluates this must not be directed to a daemon that is not trusted.
  const running = await isRunning(socketPath);
  for (const line of exportLines(variables)) output.line(line);
  if (!running) {
    output.note(
      `iwarpd: no daemon at ${socketPath} yet; start it with \`${startCommand(socketPath)}\``,
    );
  }
}

function notRunnable(name: string, code: string): CommandFailure {
  if (code === 'ENOENT') {
    return new CommandFailure(`no such program: ${name}`, { exitStatus: STATUS_NOT_FOUND });
  }
  const message = `cannot execute ${name}: ${code === 'EACCES' ? 'permission denied (EACCES)' : code}`;
  return new CommandFailure(message, { exitStatus: STATUS_NOT_EXECUTABLE });
}

/**
 * The running daemon, or a private one: with --fresh, with --device, or if none runs and the command
 * line names none.
 */
async function usedDaemon(given: RunArguments): Promise<UsedDaemon> {
  const { socket, fresh, device, named } = given;
  if (!fresh && device === undefined) {
    if (await isRunning(socket)) return { socketPath: socket, stop: () => Promise.resolve() };
    // A private daemon in its place would hide a misspelt name.
    if (named) {
      throw new CommandFailure(
        `no daemon at ${socket}; start it with \`${startCommand(socket)}\`, or use a private one with --fresh`,
      );
    }
  }
  const folder = mkdtempSync(join(tmpdir(), 'iwarpd-run-'));
  const socketPath = join(folder, 'iwarpd.sock');
  try {
    const devices = device?.map(({ name, addresses, transport, lowerLayer, sctpTransport }) => {
      const over = {
        ...(lowerLayer === undefined ? {} : { lowerLayer }),
        ...(sctpTransport === undefined ? {} : { sctpTransport }),
      };
      return { name, addresses: [...addresses], transport, ...over };
    });
    const daemon = await startDaemon({
      socketPath,
      // Standard error belongs to the program.
      logLevel: 'error',
      // Unmodified programs see emulated devices only; they can use native ones directly.
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

/**
 * Whether a daemon answers. VerbsError if there is one that refuses this client, or is not trusted.
 */
async function isRunning(socketPath: string): Promise<boolean> {
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
 * CommandFailure for a device tree that is not the daemon's: programs would read another user's.
 */
function checkSysfs(directory: string): void {
  const stats = lstatSync(directory, { throwIfNoEntry: false });
  if (stats === undefined || (stats.isDirectory() && isTrustedUser(stats.uid))) return;
  const what = stats.isDirectory()
    ? `it belongs to uid ${stats.uid}, which is not the daemon's user`
    : 'it is not a directory';
  throw new CommandFailure(`refusing the device tree ${directory}: ${what}`);
}

function runToEnd(
  name: string,
  words: readonly string[],
  environment: NodeJS.ProcessEnv,
): Promise<ProgramEnd> {
  return new Promise((resolve) => {
    // Before the program starts: no signal in between is lost.
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

/** Forwards signals to a program. */
interface SignalPassing {
  /** Sets the program; signals that arrived earlier are forwarded now. */
  to(child: ChildProcess): void;
  /** Restores the handling of signals in this process. */
  end(): void;
}

/** Collects signals for a program instead of handling them here. */
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

/** Ends this process by the signal that ended the program, so its parent sees the same status. */
function endBySignal(signal: NodeJS.Signals): void {
  process.exitCode = STATUS_SIGNALLED + constants.signals[signal];
  if (CORE_SIGNALS.includes(signal)) return;
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}
