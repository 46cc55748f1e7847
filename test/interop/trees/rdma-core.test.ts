/** The tests of a new release of rdma-core, with the libraries and providers of its tree, on a RoCE device. */
import { expect, it } from 'vitest';
import { runCommand } from '#test/support/cli-process';
import { outcomes } from '../pyverbs-runner.ts';
import { describeWithTree, treePath } from './tree.ts';

const RUNNER = 'build/bin/run_tests.py';
/** Tests that pass; the others need what rxe lacks: mlx5, EFA, XRC, device memory. */
const PASSING = 117;

describeWithTree('rdma-core', [RUNNER, 'build/python/pyverbs'], "rdma-core's own tests", () => {
  it('pass or are skipped', async () => {
    const device = ['run', '--fresh', '--device', 'roce0=roce:127.0.0.1', '--'];
    const words = [...device, treePath('rdma-core', RUNNER), '-v', '--dev', 'roce0'];
    const { stderr } = await runCommand(words, { PYTHONDONTWRITEBYTECODE: '1' });
    const { ok, broken } = outcomes(stderr);
    expect(broken, stderr).toEqual([]);
    expect(ok.length, stderr).toBeGreaterThanOrEqual(PASSING);
  });
});
