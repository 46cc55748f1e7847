/** Messages of tens of MiB and of 2^31 bytes on a RoCE device, and numbers that cannot be guessed. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

let rig: RoceRig;
let program: string;

describeWith(['native'], 'long messages', () => {
  beforeAll(async () => {
    program = compileProgram('roce-large');
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.21'], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  it('arrive as they were sent, up to 2^31 bytes, at the largest path MTU and the smallest', async () => {
    const { status, output } = await new ShimProgram([program, 'roce0'], rig.environment).end();
    expect(status, output).toBe(0);
    expect(output.trim().split('\n')).toEqual([
      'numbers: not to be guessed',
      'send, 4096: 83886081 bytes',
      'write, 4096: 83886082 bytes',
      'read, 4096: 83886083 bytes',
      'longest: 2147483648 bytes',
      'send, 256: 41943041 bytes',
      'write, 256: 41943042 bytes',
      'read, 256: 41943043 bytes',
    ]);
  });
});
