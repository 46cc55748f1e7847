/** A server with many objects that is killed, and started again: its resources are free as soon as it has ended. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

/** Several times the number that the daemon destroys in a turn. */
const QUEUE_PAIRS = 2000;
const ADDRESSES = { iwarp0: '127.0.72.45', roce0: '127.0.72.46' } as const;

let rig: RoceRig;
let program: string;

describeWith(['native'], 'a server that is started again', () => {
  beforeAll(async () => {
    program = compileProgram('restarted-server', ['-lrdmacm']);
    rig = await RoceRig.start(
      { name: 'iwarp0', addresses: [ADDRESSES.iwarp0] },
      { name: 'roce0', addresses: [ADDRESSES.roce0], transport: 'roce' },
    );
  });

  afterAll(() => rig.stop());

  it.each(['iwarp0', 'roce0'] as const)(
    'listens on %s at the port of the one that was killed with thousands of queue pairs',
    async (device) => {
      const words = [program, device, ADDRESSES[device], `${await freePort()}`, `${QUEUE_PAIRS}`];
      const ended = await new ShimProgram(words, rig.environment).end();
      expect(ended).toMatchObject({ output: 'listens again\n', status: 0 });
    },
  );
});
