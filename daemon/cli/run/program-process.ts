/** The process of a program under `run`: how it ends, and which signals are forwarded to it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import type { Readable } from 'node:stream';
import { Interruption } from '#daemon/console/failure';

/** A shell reports a program killed by a signal as this plus the signal's number. */
const STATUS_SIGNALLED = 128;

/** Signals whose default action writes a core file: one of this process would be useless. */
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

const PASSED_SIGNALS: readonly NodeJS.Signals[] = [
  'SIGINT',
  'SIGTERM',
  'SIGHUP',
  'SIGQUIT',
  'SIGUSR1',
  'SIGUSR2',
];
/** Signals that a terminal sends to all foreground processes, the program included. */
const TERMINAL_SIGNALS: readonly NodeJS.Signals[] = ['SIGINT', 'SIGQUIT'];

/** How a program ended; `error` if it did not start. */
export type ProgramEnd =
  | { readonly status: number }
  | { readonly signal: NodeJS.Signals }
  | { readonly error: Error };

interface ProgramStart {
  readonly words: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  readonly passing: SignalPassing;
  /** Receives standard output and standard error as pipes; without it, the program inherits this process's. */
  readonly onOutput?: ((stdout: Readable, stderr: Readable) => void) | undefined;
}

export function runToEnd(start: ProgramStart): Promise<ProgramEnd> {
  const { words, environment, passing, onOutput } = start;
  return new Promise((resolve) => {
    const [name = '', ...rest] = words;
    const outputs = onOutput === undefined ? 'inherit' : 'pipe';
    const child = spawn(name, rest, { stdio: ['inherit', outputs, outputs], env: environment });
    passing.program = child;
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

/** Collects signals for a program instead of handling them, and forwards them once it runs. */
export class SignalPassing {
  /** The first signal that arrived before the program started. */
  early: NodeJS.Signals | undefined;
  /** Receives the signals from now on. */
  program: ChildProcess | undefined;
  readonly #restore: (() => void)[];

  /** `interruption` has fired if a signal arrived even earlier. */
  constructor(interruption: AbortSignal) {
    const { aborted, reason } = interruption;
    if (aborted) this.early = (reason instanceof Interruption ? reason.by : undefined) ?? 'SIGTERM';
    this.#restore = PASSED_SIGNALS.map((signal) => {
      const before = process.listeners(signal);
      process.removeAllListeners(signal);
      const pass = (): void => this.#pass(signal);
      process.on(signal, pass);
      return () => {
        process.off(signal, pass);
        for (const listener of before) process.on(signal, listener);
      };
    });
  }

  /** Restores the handling of signals in this process. */
  end(): void {
    for (const restore of this.#restore.splice(0)) restore();
  }

  #pass(signal: NodeJS.Signals): void {
    if (this.program === undefined) {
      // A second signal ends a start that hangs.
      if (this.early !== undefined) process.exit(STATUS_SIGNALLED + constants.signals[signal]);
      this.early = signal;
    } else if (!process.stdin.isTTY || !TERMINAL_SIGNALS.includes(signal)) {
      this.program.kill(signal);
    }
  }
}

/** Ends this process with the signal that ended the program, so its parent sees the same status. */
export function endBySignal(signal: NodeJS.Signals): void {
  process.exitCode = STATUS_SIGNALLED + constants.signals[signal];
  if (CORE_SIGNALS.includes(signal)) return;
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
}
