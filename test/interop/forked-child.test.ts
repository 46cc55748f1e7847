/**
 * Programs that fork without executing another: what their children do with inherited devices. The same
 * program runs on Linux's siw and rxe in `kernel-peer.test.ts` and `rxe-peer.test.ts`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { compileForkedChild, linesOf, stepsOfChild } from './forked-child.ts';
import { describeWith } from './prerequisites.ts';
import { ShimProgram } from './shim-programs.ts';

const TRANSPORTS = { iwarp: '127.0.72.25', roce: '127.0.72.26' } as const;

let folder: string;
let program: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'iwarpd-forked-'));
  program = join(folder, 'forked-child');
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describeWith(['native'], 'a forked child', () => {
  let rig: RoceRig;

  beforeAll(() => compileForkedChild(program));

  it.each([
    ['iwarp', 'alive'],
    ['iwarp', 'gone'],
    ['roce', 'alive'],
    ['roce', 'gone'],
  ] as const)(
    'on %s has what the kernel gives it while its parent is %s, and sends none of its bytes',
    async (transport, parent) => {
      const address = TRANSPORTS[transport];
      rig = await RoceRig.start({ name: 'device0', addresses: [address], transport });
      try {
        const words = [program, address, String(await freePort()), parent];
        const ended = await new ShimProgram(words, rig.environment).end();
        expect(ended.status, ended.output).toBe(0);
        const said = linesOf(ended.output);
        expect(said.child).toEqual(stepsOfChild(transport));
        const alive = parent === 'alive';
        expect(said.parent).toEqual(alive ? ['ibv_post_send: ok'] : []);
        // On Linux, the next doorbell of the parent sends what the child has posted, too.
        const before = ['parent', 'parent, seen by the child'];
        expect(said.peer).toEqual(alive ? [...before, 'parent at last'] : before);
        rig.host.assertDeepInvariants();
      } finally {
        await rig.stop();
      }
    },
    70_000,
  );
});
