/** The process of a program under `run`: how it ends, and the signals that are passed on to it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import type { Readable } from 'node:stream';

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

/** How a program ended; `error` if it did not start. */
export type ProgramEnd =
  | { readonly status: number }
  | { readonly signal: NodeJS.Signals }
  | { readonly error: Error };

/** A program to run. */
interface ProgramStart {
  readonly words: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  /** Receives standard output and standard error as pipes; without it, the program has this process's. */
  readonly onOutput?: ((stdout: Readable, stderr: Readable) => void) | undefined;
}

/** Runs a program until it ends. */
export function runToEnd({ words, environment, onOutput }: ProgramStart): Promise<ProgramEnd> {
  return new Promise((resolve) => {
    // Before the program starts: no signal in between is lost.
    const passing = passSignals();
    const [name = '', ...rest] = words;
    const outputs = onOutput === undefined ? 'inherit' : 'pipe';
    const child = spawn(name, rest, { stdio: ['inherit', outputs, outputs], env: environment });
    passing.to(child);
    if (child.stdout !== null && child.stderr !== null) onOutput?.(child.stdout, child.stderr);
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
export function endBySignal(signal: NodeJS.Signals): void {
  process.exitCode = STATUS_SIGNALLED + constants.signals[signal];
  if (CORE_SIGNALS.includes(signal)) return;
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}
