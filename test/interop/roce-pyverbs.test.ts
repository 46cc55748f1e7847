/**
 * rdma-core's own tests, of the release that Debian ships, on a RoCE device. `roce-pyverbs.tsv` has
 * their outcomes, beside those measured on the kernel's rxe and siw: a test that passes on rxe
 * passes here. `IWARPD_WRITE_TABLE=1` writes the outcomes of the run into the table.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { missingPackages, repositoryRoot } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { type Environment, ShimProgram } from '../support/shim-programs.ts';
import { outcomes, PACKAGED_TESTS, PYTHON, unpackTests } from './pyverbs-runner.ts';

const TABLE = join(repositoryRoot(), 'test/interop/roce-pyverbs.tsv');
/** A line of the table. */
interface Row {
  readonly module: string;
  readonly test: string;
  roce: string;
  readonly rxe: string;
  readonly siw: string;
}

const lines = readFileSync(TABLE, 'utf8').trimEnd().split('\n');
const header = lines.filter((line) => line.startsWith('#') || line.startsWith('module\t'));
const rows: readonly Row[] = lines.slice(header.length).map((line) => {
  const [module = '', test = '', roce = '', rxe = '', siw = ''] = line.split('\t');
  return { module, test, roce, rxe, siw };
});
const modules = new Set(rows.map(({ module }) => module));

let folder: string;
let rig: RoceRig;
/** Its device has every address: the tests of rdma_cm use that of its network interface. */
let connecting: RoceRig;

/** Runs a module; the outcome of each of its tests, as the table spells it. */
async function runModule(module: string): Promise<Readonly<Record<string, string>>> {
  const runner = [PYTHON, '-u', join(folder, 'tests/run_tests.py'), '-v', '--dev', 'roce0'];
  const { environment: devices } = module === 'test_rdmacm' ? connecting : rig;
  const environment = { ...devices, PYTHONDONTWRITEBYTECODE: '1' };
  const ended = await new ShimProgram([...runner, `tests.${module}`], environment).end();
  const { ok, broken, skipped, output } = outcomes(ended.output);
  expect(broken, output).toEqual([]);
  const of = (outcome: string) => (name: string) => [name, outcome] as const;
  return Object.fromEntries([...ok.map(of('ok')), ...skipped.map(of('skip'))]);
}

/** Polls an empty extended completion queue for a while, and asks for one with timestamps. */
const EXTENDED_POLLS = `
import resource, time
from pyverbs.cq import CQEX, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context
from pyverbs.pyverbs_error import PyverbsRDMAError

context = Context(name='roce0')
queue = CQEX(context, CqInitAttrEx(cqe=4))
attributes = PollCqAttr()
waits = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
before = waits()
end = time.process_time() + 0.5
while waits() - before <= 10 and time.process_time() < end:
    assert queue.start_poll(attributes) == 2
print('waits', waits() - before)
try:
    CQEX(context, CqInitAttrEx(cqe=4, wc_flags=1 << 7))
except PyverbsRDMAError as error:
    print('errno', error.error_code)
`;

import { temporaryFolder } from '../support/temporary-folder.ts';

/** Yields of the script's thread in half a second of processor time; the errno for timestamps. */
async function pollExtended(variables: Environment): Promise<{ waits: number; errno: number }> {
  const environment = { ...rig.environment, ...variables };
  const { status, output } = await new ShimProgram(
    [PYTHON, '-c', EXTENDED_POLLS],
    environment,
  ).end();
  expect(status, output).toBe(0);
  const [, waits, errno] = /waits (\d+)\nerrno (\d+)/.exec(output) ?? [];
  return { waits: Number(waits), errno: Number(errno) };
}

const missing = missingPackages('pyverbs');
const unpacked = existsSync(PACKAGED_TESTS) ? '' : `${PACKAGED_TESTS} was left out`;
const lack = missing.length > 0 ? `missing packages: ${missing.join(' ')}` : unpacked;
const reason = lack === '' ? '' : ` (${lack})`;

describe.skipIf(lack !== '')(`rdma-core's own tests on RoCE${reason}`, () => {
  beforeAll(async () => {
    folder = temporaryFolder();
    unpackTests(join(folder, 'tests'));
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.2'], transport: 'roce' });
    connecting = await RoceRig.start({ name: 'roce0', addresses: [], transport: 'roce' });
  });

  afterAll(async () => {
    await rig.stop();
    await connecting.stop();
    if (process.env['IWARPD_WRITE_TABLE'] === undefined) return;
    const written = rows.map((row) =>
      [row.module, row.test, row.roce, row.rxe, row.siw].join('\t'),
    );
    writeFileSync(TABLE, `${[...header, ...written].join('\n')}\n`);
  });

  it('ibv_start_poll sleeps between vain polls, as ibv_poll_cq does', async () => {
    const EOPNOTSUPP = 95;
    const { waits, errno } = await pollExtended({});
    expect(waits).toBeGreaterThan(10);
    // Its provider refuses timestamps on every device.
    expect(errno).toBe(EOPNOTSUPP);
    expect((await pollExtended({ IWARPD_POLL: 'spin' })).waits).toBeLessThan(10);
  });

  it.each([...modules])('%s: as in the table', async (module) => {
    const found = await runModule(module);
    const expected = rows.filter((row) => row.module === module);
    expect(Object.keys(found).sort()).toEqual(expected.map(({ test }) => test).sort());
    if (process.env['IWARPD_WRITE_TABLE'] === undefined) {
      expect(found).toEqual(Object.fromEntries(expected.map(({ test, roce }) => [test, roce])));
    }
    for (const row of expected) row.roce = found[row.test] ?? row.roce;
  });
});

describe('the table of rdma-core’s tests', () => {
  it('has no test that passes on rxe and not here', () => {
    const passing = rows.filter(({ rxe }) => rxe === 'ok');
    expect(passing.filter(({ roce }) => roce !== 'ok')).toEqual([]);
    expect(passing.length).toBeGreaterThan(80);
  });
});
