/**
 * Two programs whose long messages are copied by the sender's agent: every byte and the order of messages, and
 * memory that the receiver reuses while the sender is stopped or killed.
 */
import { copyFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

let rig: RoceRig;
let program: string;

describeWith(['native'], 'long messages between two programs', () => {
  beforeAll(async () => {
    program = compileProgram('direct-copies');
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.46'], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  async function run(how: string, file = program): Promise<readonly string[]> {
    const ended = await new ShimProgram([file, 'roce0', how], rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    return ended.output.trim().split('\n').sort();
  }

  it('arrive whole and in order, copied by an agent', async () => {
    expect(await run('order')).toEqual([
      'an agent copies',
      'sends are whole',
      'writes are in order',
    ]);
  });

  it.each(['stop-dereg', 'kill-dereg', 'stop-destroy', 'stop-rights'])(
    'are not written into memory that the receiver reuses: %s',
    async (how) => {
      expect(await run(how)).toContain('nothing is written later');
    },
  );

  it('do not fail the receiver when the sender is killed', async () => {
    expect(await run('kill-send')).toContain('the receiver does not fail');
  });

  it('do not hold up atomics on the same region', async () => {
    expect(await run('atomics')).toContain('an agent copies');
  });

  // Only root may leave page faults of the kernel unresolved.
  it.runIf(process.getuid?.() === 0).each(['stall-source', 'stall-target', 'stall-unmap'])(
    'end the program whose memory does not answer, and no other: %s',
    async (how) => {
      // The daemon remembers programs with such memory by their names.
      const named = join(dirname(program), how);
      copyFileSync(program, named);
      expect(await run(how, named)).toContain('only the other program ends');
    },
  );
});
