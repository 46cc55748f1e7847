/** Daemons and clients as processes, and what a daemon holds as the kernel tells it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { DaemonOptions } from '../../daemon/main/config.ts';
import { queryDaemon } from '../../verbs-api/client/daemon-link.ts';
import type { DaemonStatus } from '../../verbs-api/contract/ipc-admin.ts';

const START_TIMEOUT_MS = 20_000;
const SETTLE_TIMEOUT_MS = 10_000;

/** What a daemon holds: any of it that grows with every client is a leak. */
export interface Footprint {
  readonly clients: number;
  readonly descriptors: number;
  readonly sharedMappings: number;
  readonly files: readonly string[];
}

/** Starts a compiled program of this folder. */
export function startProgram(name: string, ...words: readonly string[]): ChildProcess {
  const path = fileURLToPath(new URL(`../../dist/test/e2e/${name}.js`, import.meta.url));
  if (!existsSync(path)) throw new Error(`dist/ lacks ${name}: run npm run build`);
  return spawn(process.execPath, [path, ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Waits until the program printed a line with `text`; throws when it ends first. */
export async function printed(child: ChildProcess, text: string): Promise<void> {
  let output = '';
  const deadline = AbortSignal.timeout(START_TIMEOUT_MS);
  const ended = once(child, 'exit', { signal: deadline }).then(([status]) => {
    throw new Error(`ended with ${status} before '${text}': ${output}`);
  });
  const found = new Promise<void>((resolve) => {
    child.stdout?.on('data', (octets: Buffer) => {
      output += octets.toString();
      if (output.includes(text)) resolve();
    });
  });
  await Promise.race([found, ended]);
  ended.catch(() => undefined);
}

/** A daemon in a process of its own, in a directory of its own. */
export class DaemonProcess {
  readonly directory: string;
  readonly socketPath: string;
  /** Lines of the log. */
  log = '';
  readonly #child: ChildProcess;

  private constructor(options: DaemonOptions) {
    this.directory = mkdtempSync(join(tmpdir(), 'iwarpd-e2e-'));
    this.socketPath = join(this.directory, 'iwarpd.sock');
    const all: DaemonOptions = { socketPath: this.socketPath, ...options };
    this.#child = startProgram('daemon-main', JSON.stringify(all));
    this.#child.stderr?.on('data', (octets: Buffer) => {
      this.log += octets.toString();
    });
  }

  /** Starts one and waits until it is ready. */
  static async start(options: DaemonOptions = {}): Promise<DaemonProcess> {
    const daemon = new DaemonProcess(options);
    await printed(daemon.#child, '"socketPath"');
    return daemon;
  }

  /** What the daemon says about itself. */
  status(): Promise<DaemonStatus> {
    return queryDaemon('status', {}, { socketPath: this.socketPath });
  }

  /** What the daemon holds, without the query itself. */
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

  /** Waits until it holds what it is expected to hold; returns what it held at last. */
  async settled(expected: Footprint): Promise<Footprint> {
    const deadline = Date.now() + SETTLE_TIMEOUT_MS;
    for (;;) {
      const now = await this.footprint();
      if (JSON.stringify(now) === JSON.stringify(expected) || Date.now() > deadline) return now;
      await sleep(20);
    }
  }

  /** Sends a signal. */
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
