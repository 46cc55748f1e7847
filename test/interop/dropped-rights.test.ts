/**
 * Programs that open their devices, then drop rights: what they create afterwards uses the connections
 * that they have, as in a kernel the open file is what counts.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { RoceRig } from '../support/roce-rig.ts';
import { describeWith, repositoryRoot } from './prerequisites.ts';
import { ShimProgram } from './shim-programs.ts';

const DEVICES = ['iwarp0', 'roce0'];
const HOWS = ['nothing', 'chroot', 'setuid', 'seteuid'];

let rig: RoceRig;
let folder: string;
let program: string;

describeWith(['native'], 'a program that gives up rights', () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'iwarpd-rights-'));
    program = join(folder, 'dropped-rights');
    const source = join(repositoryRoot(), 'test/interop/programs/dropped-rights.c');
    const words = ['-std=gnu11', '-Wall', '-Werror', '-O1', source, '-o', program];
    const { status, stderr } = spawnSync('gcc', [...words, '-lrdmacm', '-libverbs'], {
      encoding: 'utf8',
    });
    expect(status, stderr).toBe(0);
    rig = await RoceRig.start(
      { name: 'iwarp0', addresses: ['127.0.72.35'] },
      { name: 'roce0', addresses: ['127.0.72.36'], transport: 'roce' },
    );
  });

  beforeEach((context) => context.skip(process.getuid?.() !== 0, 'only root can give up rights'));

  afterAll(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each(DEVICES.flatMap((device) => HOWS.map((how) => [device, how] as const)))(
    'makes a completion channel and all else on %s after %s',
    async (device, how) => {
      const ended = await new ShimProgram([program, device, how], rig.environment).end();
      expect(ended.output).toBe('all made\n');
      expect(ended.status).toBe(0);
    },
  );

  it.each(DEVICES.flatMap((device) => HOWS.map((how) => [device, how] as const)))(
    'forks a child that makes a completion channel and all else on %s after %s',
    async (device, how) => {
      const words = [program, device, how, 'forked'];
      const ended = await new ShimProgram(words, rig.environment).end();
      expect(ended.output).toBe('all made\n');
      expect(ended.status).toBe(0);
    },
  );
});
