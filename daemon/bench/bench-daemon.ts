/** A daemon of the bench: a process with its own socket and device. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { CommandFailure } from '../console/failure.ts';

const READY_TIMEOUT_MS = 15_000;
const STOP_TIMEOUT_MS = 10_000;
const COLLECT_TIMEOUT_MS = 10_000;

interface BenchDaemonOptions {
  /** Address of its only device, unless `devices` is given. */
  readonly address: string;
  /** Its devices, in the syntax of `iwarpd start --device`. */
  readonly devices?: readonly string[];
  /** Kind of its device. Default: iWARP over TCP. */
  readonly kind?: 'roce' | 'sctp' | undefined;
  /** Folder for a CPU profile, written when it stops. Default: no profile. */
  readonly profileFolder?: string | undefined;
  readonly http?: boolean;
  /** Whether it collects garbage on request. */
  readonly collectable?: boolean;
}

/** USER_HZ, the unit of the times in /proc/PID/stat: 100 on every Linux on which Node runs. */
const TICKS_PER_SECOND = 100;

export class BenchDaemon {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly pid: number;
  readonly socketPath: string;
  readonly address: string;

  private constructor(child: ChildProcess, pid: number, folder: string, address: string) {
    this.#child = child;
    this.pid = pid;
    this.#folder = folder;
    this.socketPath = join(folder, 'iwarpd.sock');
    this.address = address;
  }

  /** Starts a daemon and waits until it is ready. */
  static async start({
    address,
    devices,
    kind,
    profileFolder,
    http,
    collectable,
  }: BenchDaemonOptions): Promise<BenchDaemon> {
    const folder = mkdtempSync(join(tmpdir(), 'iwarpd-bench-'));
    const profile =
      profileFolder === undefined
        ? []
        : [
            '--cpu-prof',
            `--cpu-prof-dir=${profileFolder}`,
            `--cpu-prof-name=daemon-${address}.cpuprofile`,
          ];
    const collector =
      collectable === true
        ? ['--expose-gc', '--import', new URL('../bench/collect-garbage.js', import.meta.url).href]
        : [];
    // Profiles name the modules, not the bundle.
    const entry = profileFolder === undefined ? 'main.js' : 'command.js';
    const main = fileURLToPath(new URL(`../cli/${entry}`, import.meta.url));
    const all = devices ?? [`bench0=${kind === undefined ? '' : `${kind}:`}${address}`];
    const options = ['--socket', join(folder, 'iwarpd.sock')];
    for (const device of all) options.push('--device', device);
    if (http === true) options.push('--http', '127.0.0.1:0');
    // The daemon stops when the other end of the channel, the bench, exits.
    const child = spawn(
      process.execPath,
      [...profile, ...collector, main, 'start', '--no-native', '--log-level', 'warn', ...options],
      { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] },
    );
    if (child.pid === undefined) throw new CommandFailure('cannot start a daemon for the bench');
    const daemon = new BenchDaemon(child, child.pid, folder, address);
    try {
      await untilReady(child);
    } catch (error) {
      await daemon.stop();
      throw error;
    }
    return daemon;
  }

  /** Resident memory in bytes, as the kernel counts it. */
  residentBytes(): number {
    const status = readFileSync(`/proc/${this.pid}/status`, 'utf8');
    return Number(/^VmRSS:\s*([0-9]+) kB/m.exec(status)?.[1] ?? Number.NaN) * 1024;
  }

  /** Waits until it has collected its garbage; requires `collectable`. */
  async collectGarbage(): Promise<void> {
    const child = this.#child;
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new CommandFailure("the bench's daemon did not collect its garbage in time"));
      }, COLLECT_TIMEOUT_MS);
      child.once('message', () => {
        clearTimeout(timer);
        resolve();
      });
      child.send('collect');
    });
  }

  openFiles(): number {
    return readdirSync(`/proc/${this.pid}/fd`).length;
  }

  cpuSeconds(): number {
    const fields = readFileSync(`/proc/${this.pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  }

  /** The URL of its HTTP server, and the headers to send. Rejects without `http`. */
  async http(): Promise<{ readonly url: string; readonly headers: Record<string, string> }> {
    const { http } = await queryDaemon('status', {}, { socketPath: this.socketPath });
    if (http?.tokenFile === undefined) {
      throw new CommandFailure("the bench's daemon does not serve HTTP");
    }
    const token = readFileSync(http.tokenFile, 'utf8').trim();
    return { url: http.url, headers: { authorization: `Bearer ${token}` } };
  }

  /** Stops the daemon and waits until it has exited. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child.exitCode === null && child.signalCode === null) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
        child.once('exit', () => {
          clearTimeout(timer);
          resolve();
        });
        child.kill('SIGTERM');
      });
    }
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function untilReady(child: ChildProcess): Promise<void> {
  let errors = '';
  child.stderr?.on('data', (bytes: Buffer) => {
    errors = (errors + bytes.toString()).slice(-4096);
  });
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => reject(failure('was not ready in time')), READY_TIMEOUT_MS);
    const failure = (what: string) =>
      new CommandFailure(`the bench's daemon ${what}: ${errors.trim() || 'no output'}`);
    child.stdout?.once('data', () => {
      clearTimeout(timer);
      resolve();
    });
    child.once('exit', (code) => {
      clearTimeout(timer);
      reject(failure(`exited with status ${code}`));
    });
  });
}
