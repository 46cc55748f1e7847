/** iSER: tgt's target and QEMU's initiator, by the devices of one daemon. */
import { randomBytes } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { CommandFolder, type Finished, runCommand } from '../support/cli-process.ts';
import { until } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ISER_PORT, IserTarget } from './iser-target.ts';

const DISK_BYTES = 8 << 20;
const TARGET = 'iqn.2026-01.test:disk';
/** QEMU's default. */
const INITIATOR = 'iqn.2008-11.org.linux-kvm';
const LUN = `iser://127.0.0.1:${ISER_PORT}/${TARGET}/1`;
/** Much longer reads fail with ENOMEM in libiscsi. */
const BLOCK_BYTES = 64 << 10;
const BLOCK = `bs=${BLOCK_BYTES}`;

const folder = new CommandFolder();
const socket = () => folder.file('d/s');
let target: IserTarget | undefined;

afterEach(async () => {
  await target?.kill();
  target = undefined;
  await folder.clean();
});

/**
 * Runs an initiator. libiscsi's synchronous calls fail if an answer takes a second, which can happen on a busy
 * machine when a packet is lost; then it runs again.
 */
function run(...words: readonly string[]): Promise<Finished> {
  return until('an initiator whose answers are in time', async () => {
    const done = await runCommand(['run', '--socket', socket(), '--', ...words]);
    return /revents is not POLLIN/.test(done.stderr) ? undefined : done;
  });
}

/** Starts a daemon with these devices, and a target whose disk is the file `disk`. */
async function startTarget(devices: readonly string[]): Promise<void> {
  await folder.daemon(socket(), ['--network', 'isolated', ...devices]);
  const disk = folder.file('disk');
  const initiators = [INITIATOR];
  target = await IserTarget.start({ folder, socket: socket(), name: TARGET, disk, initiators });
}

const disk = () => readFileSync(folder.file('disk'));

function newFile(name: string): Buffer {
  const bytes = randomBytes(DISK_BYTES);
  writeFileSync(folder.file(name), bytes);
  return bytes;
}

describeWith(['iser'], 'iSER', () => {
  beforeEach((context) => context.skip(process.getuid?.() !== 0, 'only root can start tgtd'));

  it.each<[string, string[], string[]]>([
    ['iWARP', ['--device', 'iwarp0=127.0.0.1'], []],
    [
      'RoCE, though packets are lost',
      ['--device', 'roce0=roce:127.0.0.1'],
      ['--probability', '0.002'],
    ],
  ])('carries a disk both ways over %s', async (_, devices, loss) => {
    const content = newFile('disk');
    await startTarget(devices);
    if (loss.length > 0) {
      const words = ['fault', 'add', 'drop', ...loss, '--socket', socket()];
      expect((await runCommand(words)).status).toBe(0);
    }
    const copy = folder.file('copy');
    const read = ['qemu-img', 'dd', '-f', 'raw', '-O', 'raw', BLOCK, `if=${LUN}`, `of=${copy}`];
    const done = await run(...read);
    expect(done.status, done.stderr).toBe(0);
    expect(readFileSync(copy).equals(content)).toBe(true);

    // Longer writes corrupt libiscsi's heap, so not by qemu-img, which writes 2 MiB at once.
    const blocks = Array.from({ length: DISK_BYTES / BLOCK_BYTES }, (_, at) => at);
    const writes = blocks.map((at) => {
      return ['-c', `write -P ${at + 1} ${at * BLOCK_BYTES} ${BLOCK_BYTES}`];
    });
    const written = await run('qemu-io', '-f', 'raw', ...writes.flat(), LUN);
    expect(written.status, written.stderr).toBe(0);
    const filled = Buffer.concat(blocks.map((at) => Buffer.alloc(BLOCK_BYTES, at + 1)));
    expect(disk().equals(filled)).toBe(true);
  });
});
