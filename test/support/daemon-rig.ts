/** A daemon in this process, in its own directory, with its log as lines. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import type { DaemonConfigInput } from '#daemon/main/config';
import { type Daemon, startDaemon } from '#daemon/main/daemon';

export class DaemonRig {
  readonly directory = mkdtempSync(join(tmpdir(), 'iwarpd-test-'));
  readonly socketPath = join(this.directory, 'iwarpd.sock');
  readonly log: string[] = [];
  #daemon: Daemon | undefined;

  static async start(options: DaemonConfigInput = {}): Promise<DaemonRig> {
    const rig = new DaemonRig();
    const log = pino({ level: 'debug' }, { write: (line: string) => void rig.log.push(line) });
    rig.#daemon = await startDaemon({ socketPath: rig.socketPath, ...options }, { log });
    return rig;
  }

  get daemon(): Daemon {
    if (this.#daemon === undefined) throw new Error('the daemon did not start');
    return this.#daemon;
  }

  async stop(): Promise<void> {
    this.#daemon?.assertDeepInvariants();
    await this.#daemon?.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
