/**
 * The shapes of perftest's transfers by a program that checks every byte, on a RoCE device: RC, UC
 * and UD, lengths to 8 MiB, path MTUs, events, shared receive queues, several queue pairs, both
 * directions, inline, lists of work requests, immediate data, atomics.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const SHAPES = [
  'RC',
  'RC, MTU 256',
  'RC, events',
  'RC, four pairs on shared receive queues',
  'UC',
  'UC, four pairs',
  'UD',
  'UD, four pairs on shared receive queues',
];

let rig: RoceRig;
let program: string;

describeWith(['native'], 'a program that looks at its data', () => {
  beforeAll(async () => {
    program = compileProgram('roce-data');
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.5'], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  it.each([
    ['IPv4', '1'],
    ['link-local', '0'],
  ])('receives it unchanged, by the %s GID', async (_, index) => {
    const ended = await new ShimProgram([program, 'roce0', index], rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    expect(ended.output).toBe(SHAPES.map((shape) => `${shape}: as sent\n`).join(''));
  });
});
