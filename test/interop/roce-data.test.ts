/**
 * The shapes of perftest's transfers by a program that checks every byte, on a RoCE device: RC, UC
 * and UD, lengths to 8 MiB, path MTUs, events, shared receive queues, several queue pairs, both
 * directions, inline, lists of work requests, immediate data, atomics.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith, repositoryRoot } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';

const SOURCE = join(repositoryRoot(), 'test/interop/programs/roce-data.c');
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
let folder: string;
let program: string;

describeWith(['native'], 'a program that looks at its data', () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'iwarpd-data-'));
    program = join(folder, 'roce-data');
    const words = ['-std=gnu11', '-Wall', '-Werror', '-O1', SOURCE, '-o', program, '-libverbs'];
    const { status, stderr } = spawnSync('gcc', words, { encoding: 'utf8' });
    expect(status, stderr).toBe(0);
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.5'], transport: 'roce' });
  });

  afterAll(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each([
    ['IPv4', '1'],
    ['link-local', '0'],
  ])('receives it unchanged, by the %s GID', async (_, index) => {
    const words = [program, 'roce0', index];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    expect(ended.output).toBe(SHAPES.map((shape) => `${shape}: as sent\n`).join(''));
  });
});
