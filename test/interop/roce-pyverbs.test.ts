/**
 * rdma-core's own tests, of the release that Debian ships, on a RoCE device: as many of each module
 * pass as on the kernel's rxe, which was measured. There, one test of test_qpex fails besides.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RoceRig } from '../support/roce-rig.ts';
import { missingPackages } from './prerequisites.ts';
import { type Outcomes, outcomes, PACKAGED_TESTS, PYTHON, unpackTests } from './pyverbs-runner.ts';
import { ShimProgram } from './shim-programs.ts';

/** Tests that pass, by module. The others are skipped, since the device lacks the feature. */
const PASSED: readonly (readonly [module: string, ok: number])[] = [
  ['test_addr', 3],
  ['test_atomic', 7],
  ['test_cq', 4],
  ['test_cq_events', 2],
  ['test_cqex', 4],
  ['test_device', 13],
  ['test_mr', 8],
  ['test_pd', 4],
  ['test_qp', 21],
  ['test_qpex', 18],
  ['test_relaxed_ordering', 2],
];

let folder: string;
let rig: RoceRig;

async function runModule(module: string): Promise<Outcomes> {
  const runner = [PYTHON, '-u', join(folder, 'tests/run_tests.py'), '-v', '--dev', 'roce0'];
  const environment = { ...rig.environment, PYTHONDONTWRITEBYTECODE: '1' };
  const words = [...runner, `tests.${module}`];
  return outcomes(await new ShimProgram(words, environment, { limitMs: 50_000 }).end());
}

const missing = missingPackages('pyverbs');
const unpacked = existsSync(PACKAGED_TESTS) ? '' : `${PACKAGED_TESTS} was left out`;
const lack = missing.length > 0 ? `missing packages: ${missing.join(' ')}` : unpacked;
const reason = lack === '' ? '' : ` (${lack})`;

describe.skipIf(lack !== '')(`rdma-core's own tests on RoCE${reason}`, { timeout: 60_000 }, () => {
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'iwarpd-pyverbs-'));
    unpackTests(join(folder, 'tests'));
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.2'], transport: 'roce' });
  });

  afterAll(async () => {
    await rig.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it.each(PASSED)('%s: %i pass, none fails', async (module, ok) => {
    const found = await runModule(module);
    expect(found.broken, found.output).toEqual([]);
    expect(found.ok, found.output).toHaveLength(ok);
  });
});
