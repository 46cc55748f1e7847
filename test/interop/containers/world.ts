/**
 * Namespaces for containers, which leave nothing behind.
 *
 * `world.sh` holds them while this process lives and needs them. Commands in a world may mount file
 * systems, add networks and leave processes; all of that ends with the world. For downloads, a
 * command can use the machine's network, and otherwise sees the world.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PROGRAM_MS, patience } from '#test/support/patience';
import { repositoryRoot } from '#test/support/prerequisites';

/** The script that holds a world; it takes the world's folder. */
export const WORLD_SCRIPT = join(repositoryRoot(), 'test/interop/containers/world.sh');

const OUTPUT_MAX_BYTES = 64 << 20;

/** How a command in a world ended. */
export interface Outcome {
  /** Exit status; 128 and more when a signal ended it, as in a shell. */
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  /** Default: the world's own network, which reaches nothing outside. */
  readonly network?: 'machine' | 'world';
  /** Killed after this long. Default: a minute. */
  readonly timeoutMs?: number;
  readonly input?: string;
}

/** A set of namespaces, with a folder. */
export class World {
  /** For files with the lifetime of the world. */
  readonly folder: string;
  /** The pid of the world's init, as the machine sees it. */
  readonly init: number;
  readonly #keeper: ChildProcess;
  readonly #environment: Record<string, string | undefined>;

  private constructor(folder: string, init: number, keeper: ChildProcess) {
    this.folder = folder;
    this.init = init;
    this.#keeper = keeper;
    this.#environment = { ...process.env, LC_ALL: 'C.UTF-8' };
  }

  /** Makes a world; throws the machine's message if it is not permitted. */
  static async open(): Promise<World> {
    const folder = mkdtempSync(join(tmpdir(), `iwarpd-world-${process.pid}-`));
    const keeper = spawn('bash', [WORLD_SCRIPT, folder], {
      stdio: ['pipe', 'pipe', 'pipe'],
      // In a new session: a signal that ends this process must not end the one that cleans up.
      detached: true,
    });
    let said = '';
    keeper.stderr?.on('data', (bytes: Buffer) => {
      said += bytes.toString();
    });
    const init = await new Promise<number>((resolve, reject) => {
      let line = '';
      const timer = setTimeout(() => {
        keeper.stdin?.end();
        reject(new Error(`waited in vain for a world: ${said}`));
      }, patience());
      keeper.stdout?.on('data', (bytes: Buffer) => {
        line += bytes.toString();
        const [, pid] = /^ready (\d+)\n/.exec(line) ?? [];
        if (pid === undefined) return;
        clearTimeout(timer);
        resolve(Number(pid));
      });
      keeper.once('close', () => {
        clearTimeout(timer);
        reject(new Error(`no namespaces: ${said.trim().split('\n')[0] ?? 'no reason given'}`));
      });
    });
    return new World(folder, init, keeper);
  }

  /** A path in the world's folder. */
  file(name: string): string {
    return join(this.folder, name);
  }

  /** Sets variables for all commands from now on. */
  setEnvironment(variables: Readonly<Record<string, string>>): void {
    Object.assign(this.#environment, variables);
  }

  run(words: readonly string[], options: CommandOptions = {}): Promise<Outcome> {
    const { timeoutMs = PROGRAM_MS, input } = options;
    return new Promise((resolve) => {
      const settings = {
        env: this.#environment,
        maxBuffer: OUTPUT_MAX_BYTES,
        timeout: patience(timeoutMs),
        killSignal: 'SIGKILL' as const,
      };
      const [program, ...rest] = this.#entering(words, options);
      const child = execFile(program, rest, settings, (error, stdout, stderr) => {
        if (error === null) return resolve({ status: 0, stdout, stderr });
        const late = error.killed === true ? `\nkilled after ${timeoutMs} ms` : '';
        const status = typeof error.code === 'number' ? error.code : 255;
        resolve({ status, stdout, stderr: stderr + late });
      });
      child.stdin?.on('error', () => undefined);
      child.stdin?.end(input ?? '');
    });
  }

  /** Runs a command that must succeed, and returns its output. */
  async output(words: readonly string[], options: CommandOptions = {}): Promise<string> {
    const { status, stdout, stderr } = await this.run(words, options);
    if (status === 0) return stdout;
    const said = `${stdout}\n${stderr}`.trim().split('\n').slice(-25).join('\n');
    throw new Error(`${words.slice(0, 6).join(' ')} … ended with ${status}:\n${said}`);
  }

  /** Starts a command that ends with the world, at the latest. */
  start(words: readonly string[]): ChildProcess {
    const [program, ...rest] = this.#entering(words, {});
    return spawn(program, rest, { env: this.#environment, stdio: 'ignore' });
  }

  /** Ends all that runs in it, and waits until its folder is gone. */
  async close(): Promise<void> {
    const gone = once(this.#keeper, 'close');
    this.#keeper.stdin?.end();
    await gone;
  }

  #entering(words: readonly string[], { network }: CommandOptions): [string, ...string[]] {
    const own = network === 'machine' ? [] : ['--net'];
    const spaces = ['--mount', '--pid', '--ipc', '--uts', '--cgroup', ...own];
    return ['nsenter', '--target', String(this.init), ...spaces, '--', ...words];
  }
}
