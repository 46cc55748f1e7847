/** tgt's target of iSCSI over RDMA, with one disk, on the devices of a daemon. */
import { spawnSync } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { type CommandFolder, RunningCommand } from '../support/cli-process.ts';
import { freePort } from '../support/free-port.ts';
import { patience, until } from '../support/patience.ts';

/** tgtd's port of iSER: 1.0.85 takes no other for `--iser port`. Its port of iSCSI must differ. */
export const ISER_PORT = 3260;
/** tgtd's control socket has this number in its name; tgtd keeps it in 16 bits. */
const CONTROL = String(process.pid % 32_768);

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
    const { folder, socket, within = [] } = options;
    const pidFile = folder.file('tgtd.pid');
    const iscsi = `portal=127.0.0.1:${await freePort()}`;
    const daemon = `echo $$ >${pidFile}; exec tgtd -f -C ${CONTROL} --iscsi ${iscsi}`;
    const words = ['run', '--socket', socket, '--', 'sh', '-c', daemon];
    const running = new RunningCommand(words, {}, within);
    const target = new IserTarget(running, pidFile);
    try {
      await target.#setUp(options);
    } catch (error) {
      await target.kill();
      throw new Error(`no target: ${running.stderr}`, { cause: error });
    }
    return target;
  }

  async #setUp({ name, disk, initiators }: TargetOptions): Promise<void> {
    const target = ['--mode=target', '--op=new', '--tid=1', `--targetname=${name}`];
    await until('tgtd', () => administer(...target) === '');
    const bind = ['--mode=target', '--op=bind', '--tid=1'];
    // Both an address and a name must match.
    const steps = [
      ['--mode=logicalunit', '--op=new', '--tid=1', '--lun=1', `--backing-store=${disk}`],
      [...bind, '--initiator-address=ALL'],
      ...initiators.map((initiator) => [...bind, `--initiator-name=${initiator}`]),
    ];
    for (const step of steps) {
      const failure = administer(...step);
      if (failure !== '') throw new Error(`tgtadm ${step.join(' ')}: ${failure}`);
    }
  }

  /** Ends it, if it still runs. */
  async kill(): Promise<void> {
    try {
      process.kill(Number(readFileSync(this.#pidFile, 'utf8')), 'SIGKILL');
    } catch {
      this.#running.signal('SIGKILL');
    }
    await this.#running.end();
    for (const end of ['', '.lock'])
      rmSync(`/var/run/tgtd/socket.${CONTROL}${end}`, { force: true });
  }
}

/** Runs tgtadm. Returns why it failed; '' if it did not. */
function administer(...words: readonly string[]): string {
  const given = ['-C', CONTROL, '--lld', 'iser', ...words];
  const { status, stderr } = spawnSync('tgtadm', given, { encoding: 'utf8', timeout: patience() });
  return status === 0 ? '' : `status ${status}, ${stderr}`;
}
