/** Daemons and clients as processes, and a daemon's resources as the kernel reports them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import type { DaemonConfigInput } from '#daemon/main/config';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { patient, quiet, until } from './patience.ts';
import { repositoryRoot } from './prerequisites.ts';

/** Equal footprints in a row that count as stable. */
const SAME_LOOKS = 25;

/** Resources of a daemon: growth with every client is a leak. */
export interface Footprint {
  readonly clients: number;
  readonly descriptors: number;
  readonly sharedMappings: number;
  readonly files: readonly string[];
}

/** Starts a compiled program of this folder. */
export function startProgram(name: string, ...words: readonly string[]): ChildProcess {
  return spawnProgram(name, words, 'pipe', []);
}

function spawnProgram(
  name: string,
  words: readonly string[],
  stderr: 'pipe' | number,
  within: readonly string[],
): ChildProcess {
  const path = join(repositoryRoot(), `dist/test/e2e/${name}.js`);
  if (!existsSync(path)) throw new Error(`dist/ lacks ${name}: run npm run build`);
  const [command = '', ...rest] = [...within, process.execPath, path, ...words];
  return spawn(command, rest, { stdio: ['ignore', 'pipe', stderr] });
}

/**
 * Waits until the program printed `text`; throws when it ends first. Returns the pattern's first
 * group.
 */
export async function printed(child: ChildProcess, text: string | RegExp): Promise<string> {
  let output = '';
  const deadline = patient();
  const ended = once(child, 'exit', { signal: deadline }).then(([status]) => {
    throw new Error(`ended with ${status} before '${text}': ${output}`);
  });
  const found = new Promise<string>((resolve) => {
    child.stdout?.on('data', (bytes: Buffer) => {
      output += bytes.toString();
      if (typeof text === 'string' && output.includes(text)) resolve('');
      const match = typeof text === 'string' ? null : text.exec(output);
      if (match !== null) resolve(match[1] ?? '');
    });
  });
  try {
    return await Promise.race([found, ended]);
  } finally {
    ended.catch(() => undefined);
  }
}

/** A daemon in a separate process, in its own directory. */
export class DaemonProcess {
  readonly directory: string;
  readonly socketPath: string;
  log = '';
  /** Resolves once all code for clients is loaded and turns are watched. */
  readonly loaded: Promise<void>;
  readonly #child: ChildProcess;

  private constructor(
    options: DaemonConfigInput,
    stderr: 'pipe' | number,
    directory: string | undefined,
    within: readonly string[],
  ) {
    this.directory = directory ?? mkdtempSync(join(tmpdir(), 'iwarpd-e2e-'));
    this.socketPath = join(this.directory, 'iwarpd.sock');
    const all: DaemonConfigInput = { socketPath: this.socketPath, ...options };
    this.#child = spawnProgram('daemon-main', [JSON.stringify(all)], stderr, within);
    this.#child.stderr?.on('data', (bytes: Buffer) => {
      this.log += bytes.toString();
    });
    this.loaded = printed(this.#child, 'loaded').then(() => undefined);
    // Only tests that wait for it get the failure.
    this.loaded.catch(() => undefined);
  }

  /**
   * Starts one and waits until it is ready. `stderr` is a descriptor for its log, if not `log`;
   * `within` a command that runs it.
   */
  static async start(
    options: DaemonConfigInput = {},
    stderr: 'pipe' | number = 'pipe',
    within: readonly string[] = [],
  ): Promise<DaemonProcess> {
    const daemon = new DaemonProcess(options, stderr, undefined, within);
    await printed(daemon.#child, '"socketPath"');
    return daemon;
  }

  /** Starts one in place of another, once that has ended. */
  static async startIn(directory: string, options: DaemonConfigInput = {}): Promise<DaemonProcess> {
    const daemon = new DaemonProcess(options, 'pipe', directory, []);
    await printed(daemon.#child, '"socketPath"');
    return daemon;
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error('the daemon did not start');
    return this.#child.pid;
  }

  status(): Promise<DaemonStatus> {
    return queryDaemon('status', {}, { socketPath: this.socketPath });
  }

  /** Its resident memory in KiB after all garbage is collected. */
  async residentKiB(): Promise<number> {
    this.signal('SIGUSR2');
    // A query takes several turns of the daemon's event loop, and the signal was sent before it.
    await this.status();
    const status = readFileSync(`/proc/${this.pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]);
  }

  /** The daemon's resources, without the query itself. */
  async footprint(): Promise<Footprint> {
    const { clients } = await this.status();
    // The query's own connection is closed by the daemon before the client sees it closed.
    const process = `/proc/${this.#child.pid}`;
    const mappings = readFileSync(`${process}/maps`, 'utf8').split('\n');
    return {
      clients: clients.length,
      descriptors: readdirSync(`${process}/fd`).length,
      sharedMappings: mappings.filter((line) => line.includes('memfd:iwarpd')).length,
      files: readdirSync(this.directory).sort(),
    };
  }

  /**
   * Its resources with this many clients. The sockets of the last ones close some turns of its event loop
   * after their objects are gone, so this waits until nothing has changed for a while.
   */
  async atRest(clients = 0): Promise<Footprint> {
    let last = '';
    let same = 0;
    return await until(
      () => `the daemon to come to rest: ${last}`,
      async () => {
        await quiet(15);
        const now = await this.footprint();
        const text = JSON.stringify(now);
        same = text === last && now.clients === clients ? same + 1 : 0;
        last = text;
        return same === SAME_LOOKS ? now : undefined;
      },
    );
  }

  /** Waits for the expected resources; returns the last ones seen. */
  async settled(expected: Footprint): Promise<Footprint> {
    let now = await this.footprint();
    const isSo = async (): Promise<boolean> => {
      now = await this.footprint();
      return JSON.stringify(now) === JSON.stringify(expected);
    };
    await until('a footprint', isSo).catch(() => undefined);
    return now;
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Sends a signal and waits for the end. Returns the exit status. */
  async end(signal: NodeJS.Signals): Promise<number | null> {
    const ended = this.#child.exitCode === null ? once(this.#child, 'exit') : undefined;
    this.#child.kill(signal);
    await ended;
    return this.#child.exitCode;
  }

  /** Ends it in any case and removes its directory. */
  async clean(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) await this.end('SIGKILL');
    rmSync(this.directory, { recursive: true, force: true });
  }
}
