/** Unmodified programs on a daemon: started one by one, in the environment that `iwarpd env` prints. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { runCommand } from './cli-process.ts';
import { PROGRAM_MS, patience, quiet } from './patience.ts';
import { processStacks } from './process-stacks.ts';

/** Variables for a program. */
export type Environment = Readonly<Record<string, string>>;

/** How a program is started. */
interface ProgramOptions {
  /** User and group of the program; default: the test's own. Only root can choose. */
  readonly user?: number;
}

/** Output and status of a program. */
export interface EndedProgram {
  /** Exit status; undefined when a signal ended it. */
  readonly status: number | undefined;
  readonly signal: NodeJS.Signals | undefined;
  /** Whether it was killed because it took too long. */
  readonly late: boolean;
  /** Standard output and standard error. */
  readonly output: string;
}

/** A running program. It is killed when its time is over; its output then ends with its stacks. */
export class ShimProgram {
  readonly #child: ChildProcess;
  readonly #ended: Promise<EndedProgram>;
  output = '';

  constructor(words: readonly string[], environment: Environment, options: ProgramOptions = {}) {
    const [name = '', ...rest] = words;
    const { user } = options;
    const child = spawn(name, rest, {
      env: { ...process.env, ...environment },
      ...(user === undefined ? {} : { uid: user, gid: user, cwd: '/' }),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    const keep = (bytes: Buffer): void => {
      this.output += bytes.toString();
    };
    child.stdout?.on('data', keep);
    child.stderr?.on('data', keep);
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      if (child.pid !== undefined) this.output += processStacks(child.pid);
      child.kill('SIGKILL');
    }, patience(PROGRAM_MS));
    this.#ended = once(child, 'close').then(([status, signal]) => {
      clearTimeout(timer);
      return {
        status: status ?? undefined,
        signal: signal ?? undefined,
        late,
        output: this.output,
      };
    });
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the program did not start');
    return this.#child.pid;
  }

  /** Whether it runs. */
  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  end(): Promise<EndedProgram> {
    return this.#ended;
  }

  async kill(): Promise<EndedProgram> {
    this.#child.kill('SIGKILL');
    return await this.#ended;
  }

  /** Waits until its output matches; throws with the output when it ends before. */
  async until(pattern: RegExp): Promise<void> {
    while (!pattern.test(this.output)) {
      if (!this.running) {
        const { status, signal, output } = await this.#ended;
        if (pattern.test(output)) return;
        throw new Error(`ended (${status ?? signal}) without ${pattern}: ${output}`);
      }
      await quiet(5);
    }
  }
}

/** Ports on which this machine listens over TCP. */
function listeningPorts(): Set<number> {
  const listening = /^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:0000 0A /gm;
  const tables = ['/proc/net/tcp', '/proc/net/tcp6'].map((path) => readFileSync(path, 'utf8'));
  const found = tables.flatMap((table) => [...table.matchAll(listening)]);
  return new Set(found.map(([, port = '']) => Number.parseInt(port, 16)));
}

/** Waits until a program listens at `port`; throws when it ends before. */
export async function listens(port: number, program: ShimProgram): Promise<void> {
  while (!listeningPorts().has(port)) {
    if (!program.running) throw new Error(`ended instead of listening: ${program.output}`);
    await quiet(5);
  }
}

/** The variables that `iwarpd env` prints for the daemon at `socketPath`. */
export async function shimEnvironment(socketPath: string): Promise<Environment> {
  const { status, signal, stdout, stderr } = await runCommand(['env', '--socket', socketPath]);
  if (status !== 0) throw new Error(`iwarpd env ended with ${status ?? signal}: ${stderr}`);
  const found = [...stdout.matchAll(/^export (\w+)='?(.*?)'?$/gm)];
  return Object.fromEntries(found.map(([, name = '', value = '']) => [name, value]));
}
