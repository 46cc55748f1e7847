/** Programs that poll when their daemon ends: their work completes in error, and nothing hangs. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { DaemonProcess } from '../support/daemon-process.ts';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { ShimProgram, shimEnvironment } from '../support/shim-programs.ts';

const SOURCE = join(repositoryRoot(), 'test/interop/programs/orphan.c');
const ADDRESSES = ['127.0.72.7'];

describeWith(['examples'], 'a program whose daemon ends', () => {
  let folder: string;
  let daemon: DaemonProcess;

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'iwarpd-orphan-'));
    const words = ['-O1', SOURCE, '-o', join(folder, 'orphan'), '-libverbs'];
    const { status, stderr } = spawnSync('gcc', words, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
  });

  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  beforeEach(async () => {
    daemon = await DaemonProcess.start({
      devices: [
        { name: 'roce0', addresses: ADDRESSES, transport: 'roce' },
        { name: 'iwarp0', addresses: ADDRESSES },
      ],
    });
  });

  afterEach(() => daemon.clean());

  it.each([
    ['roce0', '1', 'SIGKILL'],
    ['roce0', '1', 'SIGTERM'],
    ['iwarp0', '-1', 'SIGKILL'],
    ['iwarp0', '-1', 'SIGTERM'],
  ] as const)('on %s with GID %s: flushed after %s', async (device, gid, signal) => {
    const environment = await shimEnvironment(daemon.socketPath);
    const program = new ShimProgram([join(folder, 'orphan'), device, gid], environment);
    await program.until(/ready\n/);
    await daemon.end(signal);
    const { status, output } = await program.end();
    expect(status, output).toBe(0);
    expect(output).toBe('ready\nflushed\n');
  });
});
