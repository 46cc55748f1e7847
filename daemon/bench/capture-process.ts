/** `iwarpd capture` as a process beside the measured ones. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { CommandFailure } from '../console/failure.ts';

const START_TIMEOUT_MS = 15_000;
const STOP_TIMEOUT_MS = 30_000;

export class CaptureProcess {
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess) {
    this.#child = child;
  }

  /** Starts it, and waits until it is capturing. */
  static async start(socketPath: string, file: string): Promise<CaptureProcess> {
    const main = fileURLToPath(new URL('../cli/main.js', import.meta.url));
    const child = spawn(process.execPath, [main, 'capture', '--socket', socketPath, '-w', file], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const capture = new CaptureProcess(child);
    let said = '';
    try {
      await new Promise<void>((resolve, reject) => {
        const timer = setTimeout(() => reject(failure('does not begin')), START_TIMEOUT_MS);
        const failure = (what: string) => new CommandFailure(`the capture ${what}: ${said}`);
        child.stderr?.on('data', (bytes: Buffer) => {
          said = (said + bytes.toString()).slice(-4096);
          if (!said.includes('capturing to')) return;
          clearTimeout(timer);
          resolve();
        });
        child.once('exit', (code) => {
          clearTimeout(timer);
          reject(failure(`ended with status ${code}`));
        });
      });
    } catch (error) {
      await capture.stop();
      throw error;
    }
    return capture;
  }

  /** Stops it, and waits until everything is written. */
  async stop(): Promise<void> {
    const child = this.#child;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    child.kill('SIGINT');
    await ended;
    clearTimeout(timer);
  }
}
