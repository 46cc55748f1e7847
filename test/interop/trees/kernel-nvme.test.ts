/**
 * Linux's NVMe/RDMA host in a guest, over rxe; SPDK's target at the guest's neighbour. Not over siw: rdma-core's provider
 * for siw sends the wrong key in a Send with Invalidate.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { CommandFolder, RunningCommand, runCommand } from '#test/support/cli-process';
import { describeWith } from '#test/support/prerequisites';
import { GUEST_START_TIMEOUT_MS, type Guest, startGuest } from '../kernel-peer/kernel-peer.ts';
import { Neighbour } from '../kernel-peer/neighbour.ts';
import { HugePages, NVME_NAME, NVME_PORT, SpdkTarget, TARGET_FILES } from './spdk-target.ts';
import { describeWithTree } from './tree.ts';

const CONTENT_BYTES = 4 << 20;
const BLOCK_BYTES = 64 << 10;
/** Where the only disk appears. */
const DISK = '/dev/nvme0n1';
/** Of the neighbour's end of the wire. */
const ADDRESS = '10.1.0.2';

const folder = new CommandFolder();
const socket = (): string => folder.file('s');
let guest: Guest;
let neighbour: Neighbour;
let daemon: RunningCommand;
let pages: HugePages | undefined;
let target: SpdkTarget | undefined;
let obstacle: string | undefined;

async function boot(): Promise<void> {
  if (process.getuid?.() !== 0) {
    obstacle = 'only root can reserve huge pages';
    return;
  }
  try {
    neighbour = await Neighbour.open();
    guest = await startGuest({ nvme: true, rxe: true, share: folder.path, wire: neighbour });
    pages = await HugePages.reserve();
  } catch (error) {
    obstacle = `no kernel peer: ${error instanceof Error ? error.message : error}`;
    process.stderr.write(`skipped: NVMe over RDMA with Linux's host (${obstacle})\n`);
    return;
  }
  await guest.succeed('rxe-peer');
  const { within } = neighbour;
  daemon = new RunningCommand(
    ['start', '--socket', socket(), '--device', 'roce0=roce'],
    {},
    within,
  );
  await daemon.until(/ready/);
  target = await SpdkTarget.start(pages, socket(), folder.file('target'), [ADDRESS], within);
}

async function control(...words: readonly string[]): Promise<void> {
  const done = await runCommand([...words, '--socket', socket()]);
  expect(done.status, done.stderr).toBe(0);
}

describeWithTree('spdk', TARGET_FILES, "SPDK's target", () => {
  describeWith(['kernel-peer'], "and Linux's host", () => {
    beforeAll(boot, GUEST_START_TIMEOUT_MS);
    beforeEach((context) => {
      context.skip(obstacle !== undefined, obstacle);
    });
    afterAll(async () => {
      await guest?.stop();
      await target?.stop();
      pages?.release();
      await daemon?.kill();
      await neighbour?.close();
      await folder.clean();
    });

    beforeEach(async () => {
      const where = `transport=rdma,traddr=${ADDRESS},trsvcid=${NVME_PORT},nqn=${NVME_NAME}`;
      await guest.succeed(`
        echo ${where},nr_io_queues=1,reconnect_delay=1 >/dev/nvme-fabrics
        until [[ -b ${DISK} ]]; do sleep 0.2; done`);
    });

    afterEach(async () => {
      await control('fault', 'remove', '--all');
      await guest.succeed(`
        echo 1 >/sys/class/nvme/nvme0/delete_controller
        while [[ -b ${DISK} ]]; do sleep 0.2; done`);
    });

    it.each([
      ['though packets are lost', ['drop', '--probability', '0.01']],
      ['though a queue pair fails', ['qp-fatal', '--opcode', 'write', '--nth', '20']],
    ])('reads what it wrote, %s', async (_, fault) => {
      const [written, copy] = [folder.file('written'), folder.file('copy')];
      const content = randomBytes(CONTENT_BYTES);
      writeFileSync(written, content);
      await guest.succeed(`dd if=${written} of=${DISK} bs=${BLOCK_BYTES} oflag=direct`);
      await control('fault', 'add', ...fault);
      await guest.succeed('dmesg -C');
      const count = CONTENT_BYTES / BLOCK_BYTES;
      await guest.succeed(`dd if=${DISK} of=${copy} bs=${BLOCK_BYTES} count=${count} iflag=direct`);
      expect(readFileSync(copy).equals(content)).toBe(true);
      const log = await guest.succeed('dmesg');
      expect(log.includes('Successfully reconnected')).toBe(fault[0] === 'qp-fatal');
    });
  });
});
