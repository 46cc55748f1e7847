/**
 * A daemon whose native devices are another daemon's emulated ones: it runs as a program of that
 * daemon, so its rdma-core finds them. They are two processes, since one blocks on calls to the other.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { preloadPath } from '#daemon/console/preload-library';
import { sysfsPath } from '#daemon/kernel/sysfs-tree';
import type { DaemonConfigInput } from '#daemon/main/config';
import { type Daemon, startDaemon } from '#daemon/main/daemon';
import { RunningCommand } from './cli-process.ts';

/** The environment that makes a process a program of the daemon at `socketPath`. */
export function programEnvironment(socketPath: string): Record<string, string> {
  return {
    LD_PRELOAD: preloadPath(),
    SYSFS_PATH: sysfsPath(socketPath),
    IWARPD_SOCKET: socketPath,
  };
}

/** Both daemons. */
export class NativeDaemonRig {
  readonly directory = mkdtempSync(join(tmpdir(), 'iwarpd-native-'));
  /** Socket of the daemon that emulates. */
  readonly lowerPath = join(this.directory, 'lower.sock');
  /** Socket of the daemon that serves natively what the other emulates. */
  readonly socketPath = join(this.directory, 'native.sock');
  #lower: Daemon | undefined;
  #upper: RunningCommand | undefined;

  /** Starts the emulating daemon with `devices`, and the other one with the words of `start`. */
  async start(devices: DaemonConfigInput['devices'], words: readonly string[]): Promise<void> {
    this.#lower = await startDaemon({
      socketPath: this.lowerPath,
      ...(devices === undefined ? {} : { devices }),
      native: false,
      logLevel: 'silent',
    });
    this.#upper = new RunningCommand(
      ['start', '--socket', this.socketPath, '--log-level', 'debug', ...words],
      programEnvironment(this.lowerPath),
    );
    await this.#upper.until(/ready/);
  }

  /** The daemon with the native devices. */
  get upper(): RunningCommand {
    if (this.#upper === undefined) throw new Error('the daemon has not started');
    return this.#upper;
  }

  /** The daemon that emulates; ending it takes the native devices away. */
  get lower(): Daemon {
    if (this.#lower === undefined) throw new Error('the daemon has not started');
    return this.#lower;
  }

  /** Ends both; returns the exit status of the upper one, which gets a signal. */
  async stop(): Promise<number | undefined> {
    this.#upper?.signal('SIGTERM');
    const finished = await this.#upper?.end();
    await this.#lower?.stop();
    rmSync(this.directory, { recursive: true });
    return finished?.status;
  }
}
