/**
 * Programs that move or unmap registered memory. A kernel pins its pages; here devices follow the
 * changes that the preload library sees, and the log names memory that they cannot reach.
 */
import { beforeAll, expect, it } from 'vitest';
import { DaemonProcess } from '../support/daemon-process.ts';
import { describeWith } from '../support/prerequisites.ts';
import { type EndedProgram, ShimProgram, shimEnvironment } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const TIERS = ['process_vm', 'agent'] as const;

let program: string;

describeWith(['native'], 'registered memory', () => {
  beforeAll(() => {
    program = compileProgram('moved-memory');
  });

  /** Runs the program on a daemon that reaches memory this way; returns the daemon's log, too. */
  async function run(tier: string, how: string): Promise<{ ended: EndedProgram; log: string }> {
    const daemon = await DaemonProcess.start({
      devices: [{ name: 'roce0', addresses: ['127.0.72.45'], transport: 'roce' }],
      memoryTiers: [tier as 'agent'],
    });
    try {
      const environment = await shimEnvironment(daemon.socketPath);
      const ended = await new ShimProgram([program, 'roce0', how], environment).end();
      await daemon.end('SIGTERM');
      return { ended, log: daemon.log };
    } finally {
      await daemon.clean();
    }
  }

  it.each(TIERS)('that mremap moved is used at its new place, reached by %s', async (tier) => {
    const { ended, log } = await run(tier, 'moved');
    expect(ended).toMatchObject({ output: 'all continued\n', status: 0 });
    expect(log).not.toContain('registered memory');
  });

  it.each(TIERS)('that is unmapped fails, and the log has its address: %s', async (tier) => {
    const { ended, log } = await run(tier, 'unmapped');
    const [address = '', status] = ended.output.split('\n');
    expect(status).toBe('local protection error');
    const lines = log.split('\n').filter((line) => line.includes('registered memory'));
    expect(lines[0]).toContain(address);
  });
});
