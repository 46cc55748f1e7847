/** A daemon as a child process that never outlives its parent. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { HttpReady } from '#contract/protocol/ipc-admin';
import type { DeviceInfo } from '#contract/verbs/attributes';
import { DIRECTORY_VARIABLE } from './private-directory.ts';
import { type WaitOptions, WaitTimeoutError, within } from './waiting.ts';

/** Characters kept of a daemon's output: its end. */
const OUTPUT_MAX_CHARACTERS = 65_536;
const SHOWN_LINES = 20;
const STOP_TIMEOUT_MS = 5000;
/** Variables that would redirect it to another socket, another service manager, or itself. */
const FOREIGN_VARIABLES = [
  'IWARPD_SOCKET',
  'IWARPD_HTTP_TOKEN',
  'NOTIFY_SOCKET',
  'LD_PRELOAD',
  'SYSFS_PATH',
  'NODE_OPTIONS',
];

/** The daemon ended while a test was using it. */
export class DaemonEndedError extends Error {
  /** Stable code: that of a lost device or daemon. */
  readonly code = 'EIO';
  /** The end of its output. */
  declare readonly output: string;

  /** `how` describes how it ended. */
  constructor(how: string, output: string) {
    super(`${how}${lastLines(output)}`);
    // Not listed with an uncaught error: the message has the last lines.
    Object.defineProperty(this, 'output', { value: output });
  }

  override get name(): string {
    return 'DaemonEndedError';
  }
}

/** The fields of a ready line that are used here. */
export interface ReadyLine {
  /** Process id. */
  readonly pid: number;
  /** Devices of the daemon. */
  readonly devices: readonly DeviceInfo[];
  /** The daemon's HTTP server, if it has one. */
  readonly http?: HttpReady | undefined;
}

/** A daemon as a child process that never outlives its parent. */
export class DaemonChild {
  /** Its private directory, which goes with it. */
  readonly directory: string;
  /** Path of its socket. */
  readonly socketPath: string;
  readonly #child: ChildProcess;
  readonly #gone = new AbortController();
  readonly #ended: Promise<void>;
  #stdout = '';
  #output = '';

  /** `words` are arguments of `iwarpd start`. */
  constructor(words: readonly string[]) {
    const main = builtFile('../../daemon/cli/main.js');
    const guard = builtFile('./end-with-parent.js');
    this.directory = mkdtempSync(join(tmpdir(), 'iwarpd-private-'));
    this.socketPath = join(this.directory, 'iwarpd.sock');
    const options = ['--json', '--socket', this.socketPath, ...words];
    this.#child = spawn(process.execPath, ['--import', guard, main, 'start', ...options], {
      env: environment(this.directory),
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    this.#ended = this.#watch();
  }

  /** Aborts when the daemon has ended; the reason is a `DaemonEndedError`. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** The last 64 KiB of the daemon's output, including the log. */
  get output(): string {
    return this.#output;
  }

  /** Waits for the ready line. DaemonEndedError, WaitTimeoutError. */
  async ready(options: WaitOptions): Promise<ReadyLine> {
    const timedOut = (timeoutMs: number): Error =>
      new WaitTimeoutError(
        `the daemon was not ready within ${timeoutMs} ms${lastLines(this.#output)}`,
      );
    return await within({ ...options, daemonGone: this.gone, timedOut }, async (signal) => {
      while (!this.#stdout.includes('\n')) {
        await this.#moreOutput(signal);
        signal.throwIfAborted();
      }
      const [line = ''] = this.#stdout.split('\n');
      // It has the same release, so the line is trusted to have the right shape.
      return JSON.parse(line) as ReadyLine;
    });
  }

  /** Sends a signal. */
  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Stops it, by force if necessary, and removes the directory. */
  async stop(): Promise<void> {
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
    rmSync(this.directory, { recursive: true, force: true });
  }

  #watch(): Promise<void> {
    const { stdin, stdout, stderr } = this.#child;
    stdout?.on('data', (bytes: Buffer) => {
      if (!this.#stdout.includes('\n')) this.#stdout += bytes.toString();
      this.#keep(bytes);
    });
    stderr?.on('data', (bytes: Buffer) => this.#keep(bytes));
    stdin?.on('error', () => undefined);
    // Does not keep the program alive after its tests; the daemon ends with it.
    this.#child.unref();
    for (const pipe of [stdin, stdout, stderr]) if (pipe !== null && 'unref' in pipe) unref(pipe);
    return new Promise((resolve) => {
      const over = (how: string): void => {
        this.#gone.abort(new DaemonEndedError(how, this.#output));
        resolve();
      };
      this.#child.once('error', (error) => over(`the daemon did not start: ${error.message}`));
      this.#child.once('close', (status, signal) => {
        const how = signal === null ? `with status ${status}` : `by ${signal}`;
        over(`the daemon (pid ${this.#child.pid}) ended ${how}`);
      });
    });
  }

  #keep(bytes: Buffer): void {
    this.#output = (this.#output + bytes.toString()).slice(-OUTPUT_MAX_CHARACTERS);
  }

  #moreOutput(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const over = (): void => resolve();
      this.#child.stdout?.once('data', over);
      signal.addEventListener('abort', over, { once: true });
    });
  }
}

/** The last lines of an output, for a message. */
function lastLines(output: string): string {
  const lines = output.trimEnd().split('\n').slice(-SHOWN_LINES);
  return output.trim() === '' ? '; it wrote nothing' : `; its last output:\n${lines.join('\n')}`;
}

function unref(pipe: object): void {
  // A child's pipes are sockets, though their types say streams.
  if ('unref' in pipe && typeof pipe.unref === 'function') pipe.unref();
}

function environment(directory: string): NodeJS.ProcessEnv {
  const variables: NodeJS.ProcessEnv = { ...process.env, [DIRECTORY_VARIABLE]: directory };
  for (const name of FOREIGN_VARIABLES) delete variables[name];
  return variables;
}

/** A compiled file of this package entry, by name, for use from sources too. */
function builtFile(path: string): string {
  const entry = createRequire(import.meta.url).resolve('iwarpd/testing');
  const file = join(dirname(entry), path);
  if (!existsSync(file)) throw new Error(`${file} is missing: build the package first`);
  return file;
}
