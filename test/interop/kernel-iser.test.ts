/**
 * Linux's iSER initiator in a guest, over siw and over rxe; tgt's target at the guest's neighbour, on the devices of
 * one daemon.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CommandFolder, RunningCommand, runCommand } from '../support/cli-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ISER_PORT, IserTarget } from './iser-target.ts';
import {
  GUEST_START_TIMEOUT_MS,
  type Guest,
  HOST_ADDRESS,
  startGuest,
} from './kernel-peer/kernel-peer.ts';
import { Neighbour } from './kernel-peer/neighbour.ts';

const DISK_BYTES = 4 << 20;
const TARGET = 'iqn.2026-01.test:disk';
const INITIATOR = 'iqn.2026-01.test:guest';
/** Where the guest's only SCSI disk appears. */
const DISK = '/dev/sda';
/** Of the neighbour's end of the wire. */
const ROCE_ADDRESS = '10.1.0.2';

const folder = new CommandFolder();
const socket = (): string => folder.file('s');
const disk = (): string => folder.file('disk');
const copy = (): string => folder.file('copy');
let guest: Guest;
let neighbour: Neighbour;
let daemon: RunningCommand;
let target: IserTarget | undefined;
let obstacle: string | undefined;

async function boot(): Promise<void> {
  if (process.getuid?.() !== 0) {
    obstacle = 'only root can start tgtd';
    return;
  }
  try {
    neighbour = await Neighbour.open();
    const siw = { mpaVersion: 2, crcRequired: false } as const;
    const options = { iser: true, rxe: true, siw, share: folder.path, wire: neighbour };
    guest = await startGuest(options);
  } catch (error) {
    obstacle = `no kernel peer: ${error instanceof Error ? error.message : error}`;
    process.stderr.write(`skipped: iSER with Linux's initiator (${obstacle})\n`);
    return;
  }
  writeFileSync(disk(), randomBytes(DISK_BYTES));
  const devices = ['--device', 'roce0=roce', '--device', 'iwarp0=127.0.0.1', '--no-crc'];
  const { within } = neighbour;
  daemon = new RunningCommand(['start', '--socket', socket(), ...devices], {}, within);
  await daemon.until(/ready/);
  const initiators = [INITIATOR];
  target = await IserTarget.start({
    ...{ folder, socket: socket(), name: TARGET, disk: disk(), initiators, within },
  });
  await guest.succeed(
    `echo InitiatorName=${INITIATOR} >/etc/iscsi/initiatorname.iscsi; mkdir -p /run/lock; iscsid`,
  );
}

/** A command of the daemon that must succeed. */
async function control(...words: readonly string[]): Promise<void> {
  const done = await runCommand([...words, '--socket', socket()]);
  expect(done.status, done.stderr).toBe(0);
}

describeWith(['kernel-peer', 'kernel-iser'], "iSER with Linux's initiator", () => {
  beforeAll(boot, GUEST_START_TIMEOUT_MS);
  beforeEach((context) => {
    context.skip(obstacle !== undefined, obstacle);
  });
  afterAll(async () => {
    await guest?.stop();
    await target?.kill();
    await daemon?.kill();
    await neighbour?.close();
    await folder.clean();
  });

  // In this order: `rxe-peer` deletes siw0.
  describe.each([
    ['siw', HOST_ADDRESS, 'iwarp0', ['slice', '--bytes', '999']],
    ['rxe', ROCE_ADDRESS, 'roce0', ['drop', '--probability', '0.01']],
  ])('over %s', (driver, address, device, damage) => {
    const node = `iscsiadm -m node -T ${TARGET} -p ${address}:${ISER_PORT}`;

    beforeAll(async () => {
      if (obstacle !== undefined) return;
      if (driver === 'rxe') await guest.succeed('rxe-peer');
      // A busy target may not answer its pings in time.
      const calm = '-n node.conn[0].timeo.noop_out_interval -v 0';
      await guest.succeed(`${node} -o new -I iser && ${node} -o update ${calm}`);
    });

    beforeEach(async () => {
      await guest.succeed(`${node} --login; until [[ -b ${DISK} ]]; do sleep 0.2; done`);
    });

    afterEach(async () => {
      await control('fault', 'remove', '--all');
      await guest.succeed(`${node} --logout`);
    });

    async function expectContentRead(): Promise<void> {
      await guest.succeed(`dd if=${DISK} of=${copy()} bs=64K iflag=direct`);
      expect(readFileSync(copy()).equals(readFileSync(disk()))).toBe(true);
    }

    it(`reads and writes a disk under "${damage[0]}"`, async () => {
      await control('fault', 'add', ...damage, '--device', device);
      await expectContentRead();
      const content = randomBytes(DISK_BYTES);
      writeFileSync(folder.file('new'), content);
      await guest.succeed(`dd if=${folder.file('new')} of=${DISK} bs=64K oflag=direct`);
      expect(readFileSync(disk()).equals(content)).toBe(true);
    });

    it("logs in again when the target's queue pair fails, and reads to the end", async () => {
      const fault = ['qp-fatal', '--device', device, '--opcode', 'write', '--nth', '20'];
      await guest.succeed('dmesg -C');
      await control('fault', 'add', ...fault);
      await expectContentRead();
      const log = await guest.succeed(`dmesg | grep 'connection.*conn error'`);
      expect(log.trim().split('\n')).toHaveLength(1);
    });
  });
});
