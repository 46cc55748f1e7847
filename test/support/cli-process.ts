/** Runs the compiled `iwarpd` command as a real process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PROGRAM_MS, patience, until } from './patience.ts';

/** Resolved both from the sources and from `dist`. */
const MAINS = ['../../dist/daemon/cli/main.js', '../../daemon/cli/main.js'].map((path) =>
  fileURLToPath(new URL(path, import.meta.url)),
);

export function commandWords(words: readonly string[]): string[] {
  const main = MAINS.find((path) => existsSync(path));
  if (main === undefined) throw new Error('dist/ lacks the command: run npm run build');
  return [process.execPath, main, ...words];
}

/** The compiled modules that TypeScript programs import. */
const VERBS_APIS = ['../../dist/verbs-api/index.js', '../../verbs-api/index.js'].map(
  (path) => new URL(path, import.meta.url).href,
);

/**
 * The command of a TypeScript program that tries to create completion queues of these sizes. The
 * daemon refuses all of them, and the program exits with status 3.
 */
export function refusedWords(sizes: readonly number[]): string[] {
  const api = VERBS_APIS.find((url) => existsSync(fileURLToPath(url)));
  const program = `
    const { connectDaemon } = await import(${JSON.stringify(api)});
    const device = await (await connectDaemon()).open();
    for (const cqe of ${JSON.stringify(sizes)}) {
      await device.createCQ({ cqe }).then(() => process.exit(4), () => undefined);
    }
    process.exit(3);`;
  return [process.execPath, '--input-type=module', '-e', program];
}

/** Output and status of a finished command. */
export interface Finished {
  /** Exit status; undefined when a signal ended it. */
  readonly status: number | undefined;
  readonly signal: string | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

export class RunningCommand {
  readonly #child: ChildProcess;
  readonly #ended: Promise<Finished>;
  stdout = '';
  stderr = '';

  /** `within` is a command that runs it. */
  constructor(
    words: readonly string[],
    environment: Readonly<Record<string, string>> = {},
    within: readonly string[] = [],
    input: 'ignore' | 'pipe' = 'ignore',
  ) {
    const [command = '', ...rest] = [...within, ...commandWords(words)];
    this.#child = spawn(command, rest, {
      env: { ...process.env, ...environment },
      stdio: [input, 'pipe', 'pipe'],
    });
    this.#child.stdout?.on('data', (bytes: Buffer) => {
      this.stdout += bytes.toString();
    });
    this.#child.stderr?.on('data', (bytes: Buffer) => {
      this.stderr += bytes.toString();
    });
    this.#ended = once(this.#child, 'close').then(([status, signal]) => ({
      status: status ?? undefined,
      signal: signal ?? undefined,
      stdout: this.stdout,
      stderr: this.stderr,
    }));
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the command did not start');
    return this.#child.pid;
  }

  /** Sends a signal; `SIGINT` is what Ctrl-C does. */
  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Writes to its standard input, which stays open; `input` must be a pipe. */
  type(bytes: Uint8Array): void {
    // A command that ends leaves the rest unread.
    this.#child.stdin?.on('error', () => undefined);
    this.#child.stdin?.write(bytes);
  }

  /** Stops reading its standard output, as `head` does when it has enough. */
  closeStdout(): void {
    this.#child.stdout?.destroy();
  }

  /** Waits until its output matches; throws with the output when it ends or takes too long. */
  async until(pattern: RegExp, stream: 'stdout' | 'stderr' = 'stdout'): Promise<void> {
    const lack = (): string => `${pattern} in ${stream}: ${this.stdout}\n${this.stderr}`;
    await until(lack, async () => {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) await this.#ended;
      if (pattern.test(this[stream])) return true;
      if (this.#child.exitCode !== null) throw new Error(`no ${lack()}`);
      return false;
    });
  }

  /** Waits for its end; kills it when that takes too long: `idleMs` on an idle machine. */
  async end(idleMs: number = PROGRAM_MS): Promise<Finished> {
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), patience(idleMs));
    const finished = await this.#ended;
    clearTimeout(timer);
    return finished;
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }
}

export async function runCommand(
  words: readonly string[],
  environment?: Readonly<Record<string, string>>,
  within?: readonly string[],
): Promise<Finished> {
  return await new RunningCommand(words, environment, within).end();
}

/** A test's own folder for sockets and files, and the commands that run in it. */
export class CommandFolder {
  #path: string | undefined;
  readonly #running: RunningCommand[] = [];

  /** The folder; a new one after `clean`, for a second attempt of a test. */
  get path(): string {
    this.#path ??= mkdtempSync(join(tmpdir(), 'iwarpd-e2e-'));
    return this.#path;
  }

  file(name: string): string {
    return join(this.path, name);
  }

  /** Starts a command that `clean` ends. */
  start(
    words: readonly string[],
    environment?: Readonly<Record<string, string>>,
    input?: 'ignore' | 'pipe',
  ): RunningCommand {
    const command = new RunningCommand(words, environment, [], input);
    this.#running.push(command);
    return command;
  }

  /** Starts a daemon on `socket` and waits until it is ready. */
  async daemon(socket: string, words: readonly string[] = []): Promise<RunningCommand> {
    const daemon = this.start(['start', '--socket', socket, '--log-level', 'warn', ...words]);
    await daemon.until(/ready/);
    return daemon;
  }

  /** Ends what still runs and removes the folder. */
  async clean(): Promise<void> {
    await Promise.all(this.#running.splice(0).map((command) => command.kill()));
    if (this.#path !== undefined) rmSync(this.#path, { recursive: true, force: true });
    this.#path = undefined;
  }
}

/** Ends a command as Ctrl-C does. It must succeed. */
export async function ended(command: RunningCommand): Promise<Finished> {
  command.signal('SIGINT');
  const finished = await command.end();
  if (finished.status !== 0) throw new Error(finished.stderr);
  return finished;
}

/** Words that retry a client until its server listens. */
export function retried(...words: readonly string[]): string[] {
  const script = 'for i in $(seq 100); do "$@" && exit; sleep 0.1; done; exit 1';
  return ['sh', '-c', script, 'sh', ...words];
}
