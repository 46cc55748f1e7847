/** Programs that poll empty completion queues let other threads run, unless they work in between. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

/** Polls of each kind. */
const POLLS = 1000;
/** Minimum yields: a program yields only at intervals while no thread waits for the core. */
const YIELDS_MIN = 10;

let rig: RoceRig;
let program: string;

/** How often a program yielded: with one queue, with two in turn, and with work between polls. */
async function yieldsOf(variables: Record<string, string>): Promise<readonly number[]> {
  const environment = { ...rig.environment, ...variables };
  const { status, output } = await new ShimProgram([program, 'roce0'], environment).end();
  expect(status, output).toBe(0);
  const counts = /^one (\d+)\ntwo (\d+)\nworking (\d+)\n$/.exec(output);
  expect(counts, output).not.toBeNull();
  return (counts ?? []).slice(1).map(Number);
}

describeWith(['native'], 'a program that polls in vain', () => {
  beforeAll(async () => {
    program = compileProgram('vain-polls');
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.11'], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  it('yields between two polls, but not while it finds work', async () => {
    const [one, two, working] = await yieldsOf({});
    expect(one).toBeGreaterThan(YIELDS_MIN);
    expect(one).toBeLessThan(POLLS);
    expect(two).toBeGreaterThan(YIELDS_MIN);
    expect(working).toBe(0);
  });

  it('keeps its core on request', async () => {
    expect(await yieldsOf({ IWARPD_POLL: 'spin' })).toEqual([0, 0, 0]);
  });
});
