/** SPDK's target of NVMe over Fabrics, with one disk, and the huge pages that SPDK's programs need. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RunningCommand } from '#test/support/cli-process';
import { until } from '#test/support/patience';
import { treePath } from './tree.ts';

/** Files of the tree that these classes use. */
export const TARGET_FILES = ['build/bin/nvmf_tgt', 'scripts/rpc.py', 'build/lib'] as const;
export const NVME_PORT = 4420;
export const NVME_NAME = 'nqn.2016-06.io.spdk:disk';
const DISK_MIB = 32;
const RESERVED = '/proc/sys/vm/nr_hugepages';
/** For a target and one more program, of 2 MiB each. */
const HUGE_PAGES = 512;
const PROGRAM_MIB = 384;

/** Reserved until `release`. Only root can. */
export class HugePages {
  readonly #directory = mkdtempSync(join(tmpdir(), 'iwarpd-huge-'));
  readonly #before = readFileSync(RESERVED, 'utf8');

  constructor() {
    if (Number(this.#before) < HUGE_PAGES) writeFileSync(RESERVED, String(HUGE_PAGES));
    const { status } = spawnSync('mount', ['-t', 'hugetlbfs', 'none', this.#directory]);
    if (status !== 0) throw new Error('cannot mount hugetlbfs');
  }

  /** Options of a program that uses them, on this processor, without PCI devices. */
  words(processor: number): string[] {
    const core = `0x${(1 << processor).toString(16)}`;
    return ['-m', core, '-s', String(PROGRAM_MIB), '--no-pci', '--huge-dir', this.#directory];
  }

  /** After the programs: pages of one that was killed stay until the file system is gone. */
  release(): void {
    spawnSync('umount', [this.#directory]);
    rmdirSync(this.#directory);
    writeFileSync(RESERVED, this.#before);
  }
}

export class SpdkTarget {
  readonly #running: RunningCommand;
  readonly #control: string;

  private constructor(running: RunningCommand, control: string) {
    this.#running = running;
    this.#control = control;
  }

  /**
   * Starts one whose control socket is `control`, at addresses of devices of the daemon. `within`: words that run
   * a command where the daemon is, if not here.
   */
  static async start(
    pages: HugePages,
    daemonSocket: string,
    control: string,
    addresses: readonly string[],
    within: readonly string[] = [],
  ): Promise<SpdkTarget> {
    const program = [treePath('spdk', 'build/bin/nvmf_tgt'), ...pages.words(0), '-r', control];
    const words = ['run', '--socket', daemonSocket, '--', ...program];
    const target = new SpdkTarget(new RunningCommand(words, spdkLibraries(), within), control);
    await until('the target', () => target.#administer('spdk_get_version') === '');
    const steps = [
      'nvmf_create_transport -t RDMA -u 8192',
      `bdev_malloc_create -b M0 ${DISK_MIB} 512`,
      `nvmf_create_subsystem ${NVME_NAME} -a -s SN1`,
      `nvmf_subsystem_add_ns ${NVME_NAME} M0`,
      ...addresses.map((address) => {
        return `nvmf_subsystem_add_listener ${NVME_NAME} -t rdma -a ${address} -s ${NVME_PORT}`;
      }),
    ];
    for (const step of steps) {
      const failure = target.#administer(step);
      if (failure === '') continue;
      await target.kill();
      throw new Error(`${step}: ${failure}`);
    }
    return target;
  }

  /** Makes a remote procedure call. Returns why it failed; '' if it did not. */
  #administer(call: string): string {
    const script = [treePath('spdk', 'scripts/rpc.py'), '-s', this.#control, ...call.split(' ')];
    const { status, stdout, stderr } = spawnSync('python3', script, { encoding: 'utf8' });
    return status === 0 ? '' : `status ${status}, ${stdout}${stderr}`;
  }

  async kill(): Promise<void> {
    this.#running.signal('SIGTERM');
    await this.#running.end();
  }
}

/** The environment of SPDK's programs. */
export function spdkLibraries(): Readonly<Record<string, string>> {
  return { LD_LIBRARY_PATH: treePath('spdk', 'build/lib') };
}
