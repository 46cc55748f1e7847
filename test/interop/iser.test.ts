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
/** QEMU's name if it has no other. */
const INITIATOR = 'iqn.2008-11.org.linux-kvm';
const LUN = `iser://127.0.0.1:${ISER_PORT}/${TARGET}/1`;
/** libiscsi has no memory for much longer reads: ENOMEM. */
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
 * Runs an initiator. libiscsi's synchronous calls fail when an answer takes a second, which a lost packet on
 * a busy machine can cost: then again.
 */
function run(...words: readonly string[]): Promise<Finished> {
  return until('an initiator whose answers are in time', async () => {
    const done = await runCommand(['run', '--socket', socket(), '--', ...words]);
    return /revents is not POLLIN/.test(done.stderr) ? undefined : done;
  });
}

/** Starts a daemon with these devices, and a target whose disk is the file `disk`. */
async function startTarget(devices: readonly string[]): Promise<void> {
  await folder.daemon(socket(), devices);
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
    ['RoCE, though packets are lost', ['--device', 'roce0=roce'], ['--probability', '0.002']],
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
    const block = randomBytes(BLOCK_BYTES);
    writeFileSync(folder.file('block'), block);
    const blocks = DISK_BYTES / BLOCK_BYTES;
    const writes = Array.from({ length: blocks }, (_, at) => {
      return ['-c', `write -s ${folder.file('block')} ${at * BLOCK_BYTES} ${BLOCK_BYTES}`];
    });
    const written = await run('qemu-io', '-f', 'raw', ...writes.flat(), LUN);
    expect(written.status, written.stderr).toBe(0);
    expect(disk().equals(Buffer.concat(Array.from({ length: blocks }, () => block)))).toBe(true);
  });
});
