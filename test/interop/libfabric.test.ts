/** libfabric, unmodified: its calls of rdma_cm before a connection. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { patience, programSeconds } from '../support/patience.ts';
import { describeWith, missingPackages, repositoryRoot } from '../support/prerequisites.ts';
import { ADDRESS, ProgramBench } from './program-bench.ts';

const MAIN = join(repositoryRoot(), 'dist/daemon/cli/main.js');
const TIMEOUT_MS = 60_000;

describeWith(['rdma-tools'], 'fi_info over iwarpd', () => {
  let bench: ProgramBench;

  beforeAll(async () => {
    bench = new ProgramBench();
    await bench.start();
  });
  afterAll(() => bench.stop());

  it('finds the device of a node without a service: it resolves port 0', async () => {
    const { status, output } = await bench.run(['fi_info', '-p', 'verbs', '-n', ADDRESS], 20);
    expect(status, output).toBe(0);
    expect(output).toContain('domain: iwarp0');
  });
});

/** A network namespace with two addresses; all its processes end with it. */
const APART = ['--net', '--pid', '--mount-proc', '--fork', '--kill-child'];

function obstacle(): string {
  const missing = missingPackages('rdma-tools');
  if (missing.length > 0) return ` (missing packages: ${missing.join(' ')})`;
  const script = 'ip link add v0 type veth peer name v1';
  const { status } = spawnSync('unshare', [...APART, 'sh', '-c', script]);
  return status === 0 ? '' : ' (this user may make no network with unshare)';
}

const reason = obstacle();

describe.skipIf(reason !== '')(`libfabric over two daemons${reason}`, () => {
  // ofi_rxm is not tested: libfabric 1.17 may crash when it closes it.
  it.each([
    ['iWARP, connections', '', 'verbs', 'msg'],
    ['RoCE, connections', 'roce:', 'verbs', 'msg'],
    ['RoCE, reliable datagrams over datagrams', 'roce:', 'verbs;ofi_rxd', 'rdm'],
  ])('fi_pingpong over %s: a bind to localhost names no device', (_, wire, layers, end) => {
    const words = `fi_pingpong -p '${layers}' -e ${end} -I 20 -S 4096 -c`;
    // By default libfabric uses the link-local GID, which reaches no other host.
    const gid = wire === '' ? '' : 'env FI_VERBS_GID_IDX=1 ';
    const run = (device: string) =>
      `${gid}node ${MAIN} run --network host --device ${device} -- timeout ${programSeconds()}`;
    const script = `
        ip link set lo up
        ip link add v0 type veth peer name v1
        ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up
        ip addr add 10.77.0.2/24 dev v1 && ip link set v1 up
        ${run(`a=${wire}10.77.0.1`)} ${words} & server=$!
        for i in $(seq 200); do
          grep -q ':B9E8 00000000:0000 0A' /proc/net/tcp /proc/net/tcp6 && break; sleep 0.1
        done
        ${run(`b=${wire}10.77.0.2`)} ${words} 10.77.0.1 || exit 1
        wait $server`;
    const options = { encoding: 'utf8', timeout: patience(TIMEOUT_MS) } as const;
    const { status, stdout, stderr } = spawnSync(
      'unshare',
      [...APART, 'sh', '-c', script],
      options,
    );
    expect(status, stdout + stderr).toBe(0);
    expect(stdout.match(/^4k +20 +=20 /gm)).toHaveLength(2);
  });
});
