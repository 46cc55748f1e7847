/** SPDK's target of NVMe over Fabrics, with one disk, and the huge pages that SPDK's programs need. */
import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tryLock } from '#native-bridge/libc/file-lock';
import { RunningCommand } from '#test/support/cli-process';
import { patience, TEST_MS, until } from '#test/support/patience';
import { treePath } from './tree.ts';

/** Files of the tree that these classes use. */
export const TARGET_FILES = ['build/bin/nvmf_tgt', 'scripts/rpc.py', 'build/lib'] as const;
export const NVME_PORT = 4420;
export const NVME_NAME = 'nqn.2016-06.io.spdk:disk';
/** Of every program of SPDK. */
export const SPDK_ENVIRONMENT = { LD_LIBRARY_PATH: treePath('spdk', 'build/lib') } as const;
const DISK_MIB = 32;
const RESERVED = '/proc/sys/vm/nr_hugepages';
/** Pages of 2 MiB: enough for a target and one more program. */
const HUGE_PAGES = 512;
const PROGRAM_MIB = 384;

/** Reserved until `release`. Only root can, and one process at a time. */
export class HugePages {
  readonly #directory: string;
  readonly #before: string;
  readonly #lock: number;

  private constructor(directory: string, before: string, lock: number) {
    this.#directory = directory;
    this.#before = before;
    this.#lock = lock;
  }

  static async reserve(): Promise<HugePages> {
    const lock = openSync(join(tmpdir(), 'iwarpd-huge.lock'), 'w');
    await until('the huge pages of another suite', () => tryLock(lock), TEST_MS);
    const before = readFileSync(RESERVED, 'utf8').trim();
    const pages = new HugePages(mkdtempSync(join(tmpdir(), 'iwarpd-huge-')), before, lock);
    try {
      if (Number(before) < HUGE_PAGES) writeFileSync(RESERVED, String(HUGE_PAGES));
      const got = Number(readFileSync(RESERVED, 'utf8'));
      if (got < HUGE_PAGES) throw new Error(`${got} huge pages, not ${HUGE_PAGES}`);
      const { status } = spawnSync('mount', ['-t', 'hugetlbfs', 'none', pages.#directory]);
      if (status !== 0) throw new Error('cannot mount hugetlbfs');
    } catch (error) {
      pages.release();
      throw error;
    }
    return pages;
  }

  /** Options of a program that uses them, on this processor, without PCI devices. */
  words(processor: number): string[] {
    const core = `0x${(1 << processor).toString(16)}`;
    return ['-m', core, '-s', String(PROGRAM_MIB), '--no-pci', '--huge-dir', this.#directory];
  }

  /** After the programs: pages of one that was killed stay until the file system is gone. */
  release(): void {
    spawnSync('umount', ['--lazy', '--quiet', this.#directory]);
    rmdirSync(this.#directory);
    writeFileSync(RESERVED, this.#before);
    closeSync(this.#lock);
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
   * Starts a target that listens on these addresses. `control`: the path of its RPC socket. `within`: words that run
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
    const running = new RunningCommand(words, SPDK_ENVIRONMENT, within);
    const target = new SpdkTarget(running, control);
    try {
      await target.#setUp(addresses);
    } catch (error) {
      await target.stop();
      throw new Error(`no target: ${running.stdout}${running.stderr}`, { cause: error });
    }
    return target;
  }

  async #setUp(addresses: readonly string[]): Promise<void> {
    await until('the target', () => this.#administer('spdk_get_version') === '');
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
      const failure = this.#administer(step);
      if (failure !== '') throw new Error(`${step}: ${failure}`);
    }
  }

  /** Makes an RPC. Returns why it failed; '' if it did not. */
  #administer(call: string): string {
    const script = [treePath('spdk', 'scripts/rpc.py'), '-s', this.#control, ...call.split(' ')];
    const options = { encoding: 'utf8', timeout: patience() } as const;
    const { status, stdout, stderr } = spawnSync('python3', script, options);
    return status === 0 ? '' : `status ${status}, ${stdout}${stderr}`;
  }

  async stop(): Promise<void> {
    this.#running.signal('SIGTERM');
    await this.#running.end();
  }
}
