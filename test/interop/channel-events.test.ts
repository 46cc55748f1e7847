/**
 * Completion channels of unmodified programs: events that the program takes in its own memory. None is
 * lost, whoever reads, and whatever is destroyed meanwhile.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RoceRig } from '../support/roce-rig.ts';
import { describeWith, repositoryRoot } from './prerequisites.ts';
import { ShimProgram } from './shim-programs.ts';

const SOURCE = join(repositoryRoot(), 'test/interop/programs/events.c');
/** Of each of four queue pairs; fewer on a machine that is slow. */
const ROUNDS = 5000;
const KILLS = 5;
const DEVICES = ['iwarp0', 'roce0'];

let rig: RoceRig;
let folder: string;
let program: string;

describeWith(['native'], 'threads that sleep until a channel wakes them', () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'iwarpd-events-'));
    program = join(folder, 'events');
    const words = ['-std=gnu11', '-Wall', '-Werror', '-O1', '-pthread', SOURCE];
    const { status, stderr } = spawnSync('gcc', [...words, '-o', program, '-libverbs'], {
      encoding: 'utf8',
    });
    expect(status, stderr).toBe(0);
    rig = await RoceRig.start(
      { name: 'iwarp0', addresses: ['127.0.72.15'] },
      { name: 'roce0', addresses: ['127.0.72.16'], transport: 'roce' },
    );
  });

  afterAll(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each(DEVICES)('get every event of %s, and none of a queue that is gone', async (device) => {
    const words = [program, device, String(ROUNDS)];
    const ended = await new ShimProgram(words, rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    expect(ended.output).toBe('under way\nall came\n');
  });

  it('leave nothing when they are killed meanwhile', async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      const words = [program, DEVICES[kill % 2] ?? '', '0', 'forever'];
      const running = new ShimProgram(words, rig.environment);
      await running.until(/under way/);
      await sleep(100);
      await running.kill();
    }
    for (let wait = 0; wait < 500 && rig.programs > 0; wait += 1) await sleep(10);
    expect(rig.programs).toBe(0);
    rig.host.assertDeepInvariants();
  });
});
