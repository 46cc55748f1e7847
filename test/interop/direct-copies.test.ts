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

const IWARP_ADDRESS = '127.0.72.47';
/** A process connects queue pairs of iWARP only once. */
const IWARP_ROUNDS = 6;

let rig: RoceRig;
let program: string;

describeWith(['native'], 'long messages between two programs', () => {
  beforeAll(async () => {
    program = compileProgram('direct-copies', ['-lrdmacm']);
    rig = await RoceRig.start(
      { name: 'roce0', addresses: ['127.0.72.46'], transport: 'roce' },
      { name: 'iwarp0', addresses: [IWARP_ADDRESS] },
    );
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

  async function runIwarp(how: string): Promise<readonly string[]> {
    const words = [program, 'iwarp0', how, IWARP_ADDRESS];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    return ended.output.trim().split('\n').sort();
  }

  it('arrive whole and in order over iWARP, copied by an agent', async () => {
    expect(await runIwarp('order')).toEqual([
      'an agent copies',
      'sends are whole',
      'writes are in order',
    ]);
  });

  it.each(['stop-dereg', 'kill-dereg', 'stop-destroy', 'stop-error'])(
    'are not written into memory that the receiver reuses over iWARP: %s',
    async (how) => {
      for (let round = 0; round < IWARP_ROUNDS; round += 1)
        expect(await runIwarp(how)).toContain('nothing is written later');
    },
  );

  it.each(['stop-dereg', 'kill-dereg', 'stop-destroy', 'stop-rights', 'stop-error'])(
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
