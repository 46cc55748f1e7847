/**
 * An agent that copies without a pause: requests of the daemon meanwhile, descriptors of its program, a stop of its
 * program, and the death of its daemon.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const DEVICE = { name: 'roce0', addresses: ['127.0.72.47'], transport: 'roce' } as const;

let program: string;

async function expectEnd(running: ShimProgram, text: string): Promise<void> {
  const ended = await running.end();
  expect(ended, ended.output).toMatchObject({ status: 0, late: false });
  expect(ended.output).toContain(text);
}

describeWith(['native'], 'an agent that copies', () => {
  beforeAll(() => {
    // Exports its functions: the preload library calls one.
    program = compileProgram('copying-agents', ['-rdynamic']);
  });

  describe('for a daemon that lives', () => {
    let rig: RoceRig;

    beforeAll(async () => {
      rig = await RoceRig.start(DEVICE);
    });

    afterAll(() => rig.stop());

    function start(how: string): ShimProgram {
      return new ShimProgram([program, 'roce0', how], rig.environment);
    }

    it('keeps its connection when the program replaces descriptors', async () => {
      await expectEnd(start('numbers'), 'the agent still copies');
    });

    // Only root may leave page faults of the kernel unresolved.
    describe.runIf(process.getuid?.() === 0)('slowly', () => {
      it('serves requests between copies', async () => {
        await expectEnd(start('requests'), 'requests do not wait for copies');
      });
    });
  });
});
