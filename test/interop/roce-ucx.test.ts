/** UCX, unmodified, over RC and UD queue pairs of a RoCE device: every kind of transfer of UCP. */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { listens, ShimProgram } from '../support/shim-programs.ts';

let rig: RoceRig;

beforeAll(async () => {
  rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.5'], transport: 'roce' });
});

afterEach(() => rig.host.faults.clear());
afterAll(() => rig.stop());

/** Runs both ends with these transports only; the client's output. */
async function perftest(transports: string, test: string): Promise<string> {
  const environment = {
    ...rig.environment,
    UCX_TLS: transports,
    UCX_NET_DEVICES: 'roce0:1',
    UCX_WARN_UNUSED_ENV_VARS: 'n',
  };
  const port = await freePort();
  const words = ['ucx_perftest', '-p', String(port), '-n', '100', '-w', '10', '-t'];
  const command = [...words, ...test.split(' ')];
  const server = new ShimProgram(command, environment);
  await listens(port, server);
  const client = new ShimProgram([...command, '127.0.0.1'], environment);
  const [served, asked] = await Promise.all([server.end(), client.end()]);
  expect(asked.status, `${asked.output}${served.output}`).toBe(0);
  expect(served.status, served.output).toBe(0);
  return asked.output;
}

const TESTS = [
  'tag_lat',
  'tag_bw -s 100000',
  'ucp_put_bw -s 65536',
  'ucp_get -s 65536',
  'ucp_am_bw -s 100000',
  'stream_bw',
  'ucp_fadd',
  'ucp_cswap',
];

describeWith(['ucx-perftest'], 'ucx_perftest over RoCE', () => {
  it.each(TESTS)('%s over rc_verbs, which needs ud_verbs to connect', async (test) => {
    expect(await perftest('rc_verbs,ud_verbs', test)).toMatch(/^Final: +100 /m);
    // Datagrams have no Writes.
    if (test.startsWith('ucp_put')) {
      expect(rig.host.devices[0]?.nic.counters.outWrites).toBeGreaterThan(100);
    }
  });

  it.each(TESTS)('%s over ud_verbs', async (test) => {
    expect(await perftest('ud_verbs', test)).toMatch(/^Final: +100 /m);
  });

  it.each(['rc_verbs,ud_verbs', 'ud_verbs'])(
    'tag_bw over %s, though packets are lost',
    async (transports) => {
      const loss = rig.host.faults.add({ kind: 'drop', probability: 0.01, seed: 1 }, undefined);
      expect(await perftest(transports, 'tag_bw -s 100000')).toMatch(/^Final: +100 /m);
      expect(loss.status.fired).toBeGreaterThan(0);
    },
  );
});
