/**
 * rdma-core's own tests, of the release that Debian ships, on the emulated RNIC: pyverbs opens it as
 * any program does. The package carries the tests as documentation, in part compressed.
 */
import { chmodSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { missingPackages, repositoryRoot } from '../support/prerequisites.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { type Outcomes, outcomes, PACKAGED_TESTS, PYTHON, unpackTests } from './pyverbs-runner.ts';

const COMMAND = join(repositoryRoot(), 'dist/daemon/cli/main.js');

let folder: string;

/**
 * The tests ask iproute2 for the address of the device's interface. Each daemon here has its own
 * loopback address, at which their fixed port is free, but which no interface lists.
 */
function writeAddressTool(directory: string, address: string): void {
  const answer = JSON.stringify([
    { address: '00:00:00:00:00:00', addr_info: [{ local: address }] },
  ]);
  const path = join(directory, 'ip');
  writeFileSync(path, `#!/bin/sh\necho '${answer}'\n`);
  chmodSync(path, 0o755);
}

let lastHost = 0;

/** Runs modules, or single tests of them, on a separate daemon. */
async function runTests(...names: readonly string[]): Promise<Outcomes> {
  const host = ++lastHost;
  const address = `127.0.71.${host}`;
  const tools = join(folder, `tools-${host}`);
  mkdirSync(tools);
  writeAddressTool(tools, address);
  const run = [process.execPath, COMMAND, 'run', '--device', `rnic0=${address}`, '--'];
  const runner = [PYTHON, '-u', join(folder, 'tests/run_tests.py'), '-v', '--dev', 'rnic0'];
  const tests = names.map((name) => `tests.${name}`);
  const environment = {
    PATH: `${tools}:${process.env['PATH'] ?? ''}`,
    PYTHONDONTWRITEBYTECODE: '1',
  };
  const ended = await new ShimProgram([...run, ...runner, ...tests], environment).end();
  return outcomes(ended.output);
}

/** The expected result of a module; its other tests are skipped, since the device lacks the feature. */
interface Expectation {
  readonly module: string;
  readonly ok: readonly string[];
  /** Tests that connect queue pairs without a connection manager, which no iWARP device can do. */
  readonly broken?: readonly string[];
  /** Tests that choose random attributes, and are skipped if siw's provider lacks one of them. */
  readonly drawn?: readonly string[];
}

const MODULES: readonly Expectation[] = [
  {
    module: 'test_pd',
    ok: ['test_alloc_pd', 'test_dealloc_pd', 'test_destroy_pd_twice', 'test_multiple_pd_creation'],
  },
  {
    module: 'test_device',
    ok: [
      'test_dev_list',
      'test_open_dev',
      'test_phys_port_cnt_ex',
      'test_query_device',
      'test_query_device_ex',
      'test_query_gid',
      'test_query_gid_ex',
      'test_query_gid_table',
      'test_query_gid_table_bad_flow',
      'test_query_pkey',
      'test_query_port',
      'test_query_port_bad_flow',
    ],
  },
  {
    module: 'test_cq',
    ok: ['test_create_cq', 'test_create_cq_bad_flow', 'test_create_cq_with_comp_channel'],
  },
  { module: 'test_cqex', ok: ['test_create_cq_ex'] },
  { module: 'test_addr', ok: [] },
  { module: 'test_fork', ok: ['test_is_fork_initialized'] },
  { module: 'test_parent_domain', ok: [] },
  { module: 'test_odp', ok: [] },
  { module: 'test_atomic', ok: [] },
  { module: 'test_flow', ok: [] },
  {
    module: 'test_qp',
    ok: ['test_create_rc_qp_no_attr', 'test_create_rc_qp_with_attr'],
    drawn: ['test_create_rc_qp_ex_no_attr', 'test_create_rc_qp_ex_with_attr', 'test_query_rc_qp'],
  },
  {
    module: 'test_mr',
    ok: ['test_reg_mr_bad_flags'],
    broken: [
      'test_mr_rereg_access',
      'test_mr_rereg_access_bad_flow',
      'test_mr_rereg_addr',
      'test_mr_rereg_pd',
    ],
  },
];

/** Tests of test_rdmacm that move bytes over connections. */
const CONNECTIONS = ['sync_traffic', 'async_read', 'async_write', 'async_reject_traffic'] as const;

/** Tests of test_rdmacm that need InfiniBand, and their messages when an iWARP device refuses. */
const REFUSALS: readonly { name: string; says: RegExp; why: string }[] = [
  {
    name: 'async_traffic',
    says: /Player (active|passive) got: $/m,
    why: 'asserts the ACK timeout of an InfiniBand queue pair',
  },
  {
    name: 'async_traffic_external_qp',
    says: /Expected this event: 5, got this event: RDMA_CM_EVENT_ESTABLISHED/,
    why: 'waits for the InfiniBand step before the connection is established',
  },
  { name: 'async_udp_traffic', says: /Failed to Create QP\. Errno: 95/, why: 'needs datagrams' },
  {
    name: 'async_multicast_traffic',
    says: /skipped 'Multicast is not supported on this device'/,
    why: 'needs multicast',
  },
];

const missing = missingPackages('pyverbs');
// Some images of Debian omit packages' documentation, and with it these tests.
const unpacked = existsSync(PACKAGED_TESTS) ? '' : `${PACKAGED_TESTS} was left out`;
const lack = missing.length > 0 ? `missing packages: ${missing.join(' ')}` : unpacked;
const reason = lack === '' ? '' : ` (${lack})`;

describe.skipIf(lack !== '')(`rdma-core's own tests${reason}`, () => {
  beforeAll(() => {
    folder = temporaryFolder();
    unpackTests(join(folder, 'tests'));
  });

  it.each(MODULES)('$module', async ({ module, ok, broken = [], drawn = [] }) => {
    const found = await runTests(module);
    const sure = found.ok.filter((name) => !drawn.includes(name));
    expect(sure.sort(), found.output).toEqual([...ok].sort());
    expect([...found.broken].sort(), found.output).toEqual([...broken].sort());
    if (broken.length > 0) {
      const refused = /Failed to modify QP state to RTS\. Errno: 22/g;
      expect(found.output.match(refused)).toHaveLength(broken.length);
    }
  });

  // siw reports a false state. Half of the random choices need a feature that its provider lacks.
  it('test_qp: the state of a queue pair is reported correctly', async () => {
    const test = 'test_query_rc_qp';
    const draws = Array.from({ length: 20 }, () => `test_qp.QPTest.${test}`);
    const { ok, broken, output } = await runTests(...draws);
    expect(ok, output).toContain(test);
    expect(broken, output).toEqual([]);
  });

  it.each(CONNECTIONS)('test_rdmacm: %s', async (name) => {
    const test = `test_rdmacm_${name}`;
    const { ok, output } = await runTests(`test_rdmacm.CMTestCase.${test}`);
    expect(ok, output).toEqual([test]);
  });

  // Most of their time they wait for each other.
  it.concurrent.each(REFUSALS)('test_rdmacm: $name is refused, since it $why', async (refusal) => {
    const { ok, output } = await runTests(`test_rdmacm.CMTestCase.test_rdmacm_${refusal.name}`);
    expect(ok).toEqual([]);
    expect(output).toMatch(refusal.says);
  });
});
