/** tgt's target of iSCSI over RDMA, with one disk, on the devices of a daemon. */
import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { type CommandFolder, RunningCommand } from '../support/cli-process.ts';
import { until } from '../support/patience.ts';

/** Its iSER port, which no option of tgtd changes; its iSCSI port must be another one. */
export const ISER_PORT = 3260;
const ISCSI = 'portal=127.0.0.1:3261';
/** tgtd's control socket has this number in its name. */
const CONTROL = String(process.pid);

interface TargetOptions {
  readonly folder: CommandFolder;
  /** The daemon's socket. */
  readonly socket: string;
  readonly name: string;
  /** The file that is the disk, unit 1. */
  readonly disk: string;
  /** Names of the initiators that it accepts. */
  readonly initiators: readonly string[];
  /** Words that run a command where the daemon is, if not here. */
  readonly within?: readonly string[];
}

export class IserTarget {
  readonly #running: RunningCommand;
  readonly #pidFile: string;

  private constructor(running: RunningCommand, pidFile: string) {
    this.#running = running;
    this.#pidFile = pidFile;
  }

  /** Only root can start tgtd. Throws if the target cannot be made. */
  static async start(options: TargetOptions): Promise<IserTarget> {
    const { folder, socket, name, disk, initiators, within = [] } = options;
    const pidFile = folder.file('tgtd.pid');
    const daemon = `echo $$ >${pidFile}; exec tgtd -f -C ${CONTROL} --iscsi ${ISCSI}`;
    const words = ['run', '--socket', socket, '--', 'sh', '-c', daemon];
    const target = new IserTarget(new RunningCommand(words, {}, within), pidFile);
    await until('the target', async () => {
      const made = administer('--mode=target', '--op=new', '--tid=1', `--targetname=${name}`);
      return made ? true : undefined;
    });
    const bind = ['--mode=target', '--op=bind', '--tid=1'];
    // Both an address and a name must match.
    const steps = [
      ['--mode=logicalunit', '--op=new', '--tid=1', '--lun=1', `--backing-store=${disk}`],
      [...bind, '--initiator-address=ALL'],
      ...initiators.map((initiator) => [...bind, `--initiator-name=${initiator}`]),
    ];
    const failed = steps.find((step) => !administer(...step));
    if (failed === undefined) return target;
    await target.kill();
    throw new Error(`tgtadm ${failed.join(' ')} failed`);
  }

  async kill(): Promise<void> {
    process.kill(Number(readFileSync(this.#pidFile, 'utf8')), 'SIGKILL');
    await this.#running.end();
    for (const end of ['', '.lock'])
      rmSync(`/var/run/tgtd/socket.${CONTROL}${end}`, { force: true });
  }
}

function administer(...words: readonly string[]): boolean {
  return spawnSync('tgtadm', ['-C', CONTROL, '--lld', 'iser', ...words]).status === 0;
}
