/**
 * Programs that open their devices, then drop privileges. Objects that they create afterwards use
 * the open connections; on Linux, too, the open file decides. siw's results for one of these
 * programs are in `kernel-peer.test.ts`.
 */
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';
import { HOWS } from './dropped-rights.ts';

const DEVICES = ['iwarp0', 'roce0'];

let rig: RoceRig;
let program: string;

describeWith(['native'], 'a program that gives up rights', () => {
  beforeAll(async () => {
    program = compileProgram('dropped-rights', ['-lrdmacm']);
    rig = await RoceRig.start(
      { name: 'iwarp0', addresses: ['127.0.72.35'] },
      { name: 'roce0', addresses: ['127.0.72.36'], transport: 'roce' },
    );
  });

  beforeEach((context) => context.skip(process.getuid?.() !== 0, 'only root can give up rights'));

  afterAll(() => rig.stop());

  it.each(DEVICES.flatMap((device) => HOWS.map((how) => [device, how] as const)))(
    'creates a completion channel and other objects on %s after %s',
    async (device, how) => {
      const ended = await new ShimProgram([program, device, how], rig.environment).end();
      expect(ended).toMatchObject({ output: 'all made\n', status: 0 });
    },
  );

  it.each(DEVICES.flatMap((device) => HOWS.map((how) => [device, how] as const)))(
    'forks a child that creates a completion channel and other objects on %s after %s',
    async (device, how) => {
      const ended = await new ShimProgram([program, device, how, 'forked'], rig.environment).end();
      expect(ended).toMatchObject({ output: 'all made\n', status: 0 });
    },
  );

  // On Linux the child creates all of them. Here it would need a connection that it may not open.
  it.each(DEVICES.flatMap((device) => HOWS.slice(1).map((how) => [device, how] as const)))(
    'explains why a child that it forks on %s after %s creates nothing',
    async (device, how) => {
      const words = [program, device, how, 'forks'];
      const ended = await new ShimProgram(words, { ...rig.environment, IWARPD_EXPLAIN: '1' }).end();
      expect(ended.output).toMatch(
        /^iwarpd: cannot reach .* before it forked this process; fork first$/m,
      );
      expect(ended.output).toMatch(/^opening: line \d+: not pd != NULL \(Input\/output error\)$/m);
      expect(ended.status).toBe(1);
    },
  );
});
