/** SPDK's NVMe over Fabrics: its target, and bdevperf as a host, which compares what it reads. */
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CommandFolder, runCommand } from '#test/support/cli-process';
import { patience } from '#test/support/patience';
import {
  HugePages,
  NVME_NAME,
  NVME_PORT,
  SPDK_ENVIRONMENT,
  SpdkTarget,
  TARGET_FILES,
} from './spdk-target.ts';
import { describeWithTree, treePath } from './tree.ts';

const HOST = 'build/examples/bdevperf';
const ADDRESS = '127.0.0.1';
/** On a busy machine longer, so that the fault comes in time. */
const seconds = (): number => Math.ceil(patience(3000) / 1000);
/** The host connects again after a second, without limit, and repeats what failed. */
const HOST_CONFIG = {
  subsystems: [
    {
      subsystem: 'bdev',
      config: [
        { method: 'bdev_nvme_set_options', params: { bdev_retry_count: -1 } },
        {
          method: 'bdev_nvme_attach_controller',
          params: {
            ...{ name: 'Nvme0', trtype: 'RDMA', adrfam: 'IPv4', traddr: ADDRESS },
            ...{ trsvcid: String(NVME_PORT), subnqn: NVME_NAME },
            ...{ ctrlr_loss_timeout_sec: -1, reconnect_delay_sec: 1 },
          },
        },
      ],
    },
  ],
};

const folder = new CommandFolder();
let pages: HugePages | undefined;
let target: SpdkTarget | undefined;

beforeEach(async (context) => {
  context.skip(process.getuid?.() !== 0, 'only root can reserve huge pages');
  context.skip(availableParallelism() < 2, 'each of two programs spins on a processor');
  pages = await HugePages.reserve();
});

afterEach(async () => {
  await target?.stop();
  target = undefined;
  await folder.clean();
  pages?.release();
  pages = undefined;
});

describeWithTree('spdk', [...TARGET_FILES, HOST], "SPDK's NVMe over Fabrics", () => {
  it.each<[string, string, string[], RegExp]>([
    [
      'RoCE, and connects again when a queue pair fails',
      'roce0=roce:127.0.0.1',
      ['qp-fatal', '--opcode', 'send', '--nth', '200'],
      /Resetting controller successful/,
    ],
    [
      'iWARP, and connects again when a queue pair fails',
      'iwarp0=127.0.0.1',
      ['qp-fatal', '--opcode', 'send', '--nth', '200'],
      /Resetting controller successful/,
    ],
    [
      'RoCE, though packets are lost',
      'roce0=roce:127.0.0.1',
      ['drop', '--probability', '0.01'],
      /Total/,
    ],
  ])('reads what it wrote over %s', async (_, device, fault, shown) => {
    if (pages === undefined) throw new Error('no huge pages');
    const socket = folder.file('d/s');
    await folder.daemon(socket, ['--device', device]);
    target = await SpdkTarget.start(pages, socket, folder.file('target'), [ADDRESS]);
    const added = await runCommand(['fault', 'add', ...fault, '--socket', socket]);
    expect(added.status, added.stderr).toBe(0);
    const config = folder.file('host.json');
    writeFileSync(config, JSON.stringify(HOST_CONFIG));
    const host = [treePath('spdk', HOST), ...pages.words(1), '-r', folder.file('host')];
    const work = ['-c', config, '-q', '16', '-o', '4096', '-w', 'verify', '-t', `${seconds()}`];
    const words = ['run', '--socket', socket, '--', ...host, ...work];
    const { status, stdout, stderr } = await runCommand(words, SPDK_ENVIRONMENT);
    const output = `${stdout}${stderr}`;
    expect(status, output).toBe(0);
    expect(output).toMatch(shown);
    const [, iops, failed] = /Total +: +([\d.]+) +[\d.]+ +([\d.]+)/.exec(output) ?? [];
    expect(Number(iops), output).toBeGreaterThan(0);
    expect(failed, output).toBe('0.00');
  });
});
