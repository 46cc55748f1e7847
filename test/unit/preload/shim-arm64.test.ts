/**
 * The shim of an arm64 machine, run by qemu's emulation of its processor on the system calls of
 * this one. Omitted are measurements, and scenarios that the emulation cannot run for any program:
 * to execute arm64 programs from an arm64 program ("executed"), `vfork`, to fork while threads run
 * ("unwatched", "forked-while-busy"), and to fail messages of which one piece cannot be read
 * ("bad-addresses", "bad-netlink").
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { FakeDaemon } from '#test/support/fake-daemon';
import { ARM64, missingFor, ShimRig } from '#test/support/shim-rig';

const SCENARIOS = {
  'device-probe':
    'nodes aliases commands bad-responses channels queues doorbells flushes flushes-last threads',
  'event-probe':
    'records waiting duplicates epolled purged signals ' +
    'signals-in-commands cancelled several-readers cm-events cm-cancelled cm-arguments cm-disconnects',
  'process-probe':
    'forked grandchildren forked-manager cloned closed hidden numbers ranges reused churned',
  'discovery-probe': 'netlink rsockets dies lies sysfs',
  'agent-probe': 'copies confined starting many',
};
type Probe = keyof typeof SCENARIOS;
const PROBES = Object.keys(SCENARIOS) as Probe[];

const reason = missingFor(ARM64);

describe.runIf(reason === '')(`the shim on arm64${reason}`, () => {
  let rig: ShimRig;
  let daemon: FakeDaemon;

  beforeAll(() => {
    rig = new ShimRig(ARM64, ...PROBES);
  });

  afterAll(() => rig.remove());

  beforeEach(async () => {
    daemon = new FakeDaemon();
    await daemon.start();
  });

  afterEach(() => daemon.stop());

  it.each(
    PROBES.flatMap((probe) => SCENARIOS[probe].split(' ').map((name) => [probe, name] as const)),
  )('%s: %s', async (probe, scenario) => {
    const variables = { IWARPD_SOCKET: daemon.socketPath, SYSFS_PATH: daemon.sysfsPath };
    const outcome = await rig.run(rig.probe(probe), [scenario], variables);
    expect(outcome).toEqual({ status: 0, stdout: '', stderr: '' });
    for (const file of daemon.files) await expect.poll(() => file.closed).toBe(true);
  });
});
