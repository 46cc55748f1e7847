/**
 * Doorbells that the preload library leaves out: a program whose posts meet every moment of the
 * daemon's polling carries out all of them.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';

const SOURCE = join(repositoryRoot(), 'test/interop/programs/doorbells.c');
const BURSTS = 10_000;

let rig: RoceRig;
let folder: string;
let program: string;

describeWith(['native'], 'a program that posts whenever it likes', () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'iwarpd-doorbells-'));
    program = join(folder, 'doorbells');
    const words = ['-std=gnu11', '-Wall', '-Werror', '-O1', SOURCE, '-o', program, '-libverbs'];
    const { status, stderr } = spawnSync('gcc', words, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.6'], transport: 'roce' });
  });

  afterAll(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it('notices every post', async () => {
    const words = [program, 'roce0', '1', String(BURSTS)];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    expect(ended.output).toBe('all completed\n');
  });
});
