/**
 * Completion channels of unmodified programs, which take events from their own memory. No event is
 * lost, whichever process reads and whatever is destroyed meanwhile.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { quiet } from '../support/patience.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { listens, ShimProgram } from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { compileProgram } from './c-programs.ts';

/** Rounds of each of four queue pairs; fewer on a slow machine. */
const ROUNDS = 5000;
const KILLS = 5;
const ADDRESSES = { iwarp0: '127.0.72.15', roce0: '127.0.72.16' } as const;
const DEVICES = ['iwarp0', 'roce0'] as const;

/** Round trips of a program whose system calls are counted. */
const COUNTED = 1000;

let rig: RoceRig;
let program: string;
let edges: string;

describeWith(['native'], 'threads that sleep until a channel wakes them', () => {
  beforeAll(async () => {
    program = compileProgram('events');
    edges = compileProgram('edges', ['-lrdmacm']);
    rig = await RoceRig.start(
      { name: 'iwarp0', addresses: [ADDRESSES.iwarp0] },
      { name: 'roce0', addresses: [ADDRESSES.roce0], transport: 'roce' },
    );
  });

  afterAll(() => rig.stop());

  it.each(DEVICES)('get every event of %s, and none of a queue that is gone', async (device) => {
    const ended = await new ShimProgram([program, device, String(ROUNDS)], rig.environment).end();
    expect(ended.status, ended.output).toBe(0);
    expect(ended.output).toBe('under way\nall came\n');
  });

  it.each(DEVICES)('are woken by each event of %s while older ones are unread', async (device) => {
    const ended = await new ShimProgram([edges, device, ADDRESSES[device]], rig.environment).end();
    expect(ended).toMatchObject({ output: 'every event woke\n', status: 0 });
  });

  it('leave nothing when they are killed in the middle', async () => {
    for (let kill = 0; kill < KILLS; kill += 1) {
      const words = [program, DEVICES[kill % 2] ?? '', '0', 'forever'];
      const running = new ShimProgram(words, rig.environment);
      await running.until(/under way/);
      await quiet(100);
      await running.kill();
    }
    await expect.poll(() => rig.programs()).toBe(0);
    rig.host.assertDeepInvariants();
  });
});

describeWith(
  ['native', 'rdma-programs', 'strace'],
  'a program that sleeps until it has a completion',
  () => {
    const folder = temporaryFolder();
    let counted: RoceRig;

    beforeAll(async () => {
      counted = await RoceRig.start({
        name: 'roce0',
        addresses: [ADDRESSES.roce0],
        transport: 'roce',
      });
    });

    afterAll(() => counted.stop());

    it('arms its queue without a system call: it sends one doorbell for each message', async () => {
      const log = join(folder, 'calls');
      const trace = [
        'strace',
        '-f',
        '-c',
        '-U',
        'calls,name',
        '-e',
        'trace=sendmsg,sendto',
        '-o',
        log,
      ];
      const words = [
        'ibv_rc_pingpong',
        '-e',
        '-g',
        '1',
        '-n',
        `${COUNTED}`,
        '-p',
        `${await freePort()}`,
      ];
      const server = new ShimProgram(words, counted.environment);
      await listens(Number(words.at(-1)), server);
      const client = new ShimProgram([...trace, ...words, '127.0.0.1'], counted.environment);
      const [served, asked] = await Promise.all([server.end(), client.end()]);
      expect([served.status, asked.status], asked.output).toEqual([0, 0]);
      const sent = /^ *(\d+) sendmsg$/m.exec(readFileSync(log, 'utf8'))?.[1];
      expect(Number(sent)).toBeGreaterThan(0);
      // And what sets the queues up.
      expect(Number(sent)).toBeLessThan(COUNTED + 100);
    });
  },
);
