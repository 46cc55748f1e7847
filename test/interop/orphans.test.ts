/** Programs that poll when their daemon ends: their work completes in error, and nothing hangs. */
import { afterEach, beforeAll, beforeEach, expect, it } from 'vitest';
import { DaemonProcess } from '../support/daemon-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ShimProgram, shimEnvironment } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const ADDRESSES = ['127.0.72.7'];

describeWith(['examples'], 'a program whose daemon ends', () => {
  let orphan: string;
  let daemon: DaemonProcess;

  beforeAll(() => {
    orphan = compileProgram('orphan');
  });

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
    const program = new ShimProgram([orphan, device, gid], environment);
    await program.until(/ready\n/);
    await daemon.end(signal);
    const { status, output } = await program.end();
    expect(status, output).toBe(0);
    expect(output).toBe('ready\nflushed\n');
  });
});
