/**
 * Doorbells that the preload library omits: every post is carried out, at whatever moment of the
 * daemon's polling the program makes it.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const BURSTS = 10_000;

let rig: RoceRig;
let program: string;

describeWith(['native'], 'a program that posts whenever it likes', () => {
  beforeAll(async () => {
    program = compileProgram('doorbells');
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.6'], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  it('notices every post', async () => {
    const words = [program, 'roce0', '1', String(BURSTS)];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    expect(ended.output).toBe('all completed\n');
  });
});
