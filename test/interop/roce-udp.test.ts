/**
 * RoCE between two daemons, over UDP: rdma-core's ping-pongs and perftest, unmodified, one end on
 * each. The two have their own addresses on this machine, so no packet between them goes through memory.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { freePort } from '../support/free-port.ts';
import { ownAddress } from '../support/own-address.ts';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { listens, ShimProgram } from '../support/shim-programs.ts';

let near: RoceRig;
let far: RoceRig;

beforeAll(async () => {
  near = await RoceRig.start({
    name: 'roce0',
    addresses: [ownAddress(2), '::1'],
    transport: 'roce',
  });
  far = await RoceRig.start({ name: 'roce0', addresses: [ownAddress(3)], transport: 'roce' });
});

afterAll(async () => {
  await near.stop();
  await far.stop();
});

/** Runs both ends, the server on the far daemon; the client's output. */
async function run(command: string): Promise<string> {
  const port = await freePort();
  const words = [...command.split(' '), '-p', String(port)];
  const server = new ShimProgram(words, far.environment);
  await listens(port, server);
  const client = new ShimProgram([...words, '127.0.0.1'], near.environment);
  const [served, asked] = await Promise.all([server.end(), client.end()]);
  expect(asked.status, `${asked.output}${served.output}`).toBe(0);
  expect(served.status, served.output).toBe(0);
  return asked.output;
}

/** Counters of both daemons. */
function counters(): readonly Readonly<Record<string, number>>[] {
  return [near, far].map(({ host }) => host.devices[0]?.hwCounters ?? {});
}

describeWith(['rdma-programs'], 'ping-pong between two daemons', () => {
  it.each([
    'ibv_rc_pingpong -g 1 -c',
    'ibv_rc_pingpong -g 1 -c -e -m 4096 -s 100000',
    'ibv_uc_pingpong -g 1 -c',
    'ibv_ud_pingpong -g 1 -c',
    'ibv_srq_pingpong -g 1 -c',
  ])('%s', async (command) => {
    const before = counters().map(({ rcvd_pkts: packets = 0 }) => packets);
    expect(await run(`${command} -n 100`)).toMatch(/^100 iters in/m);
    const after = counters().map(({ rcvd_pkts: packets = 0 }) => packets);
    after.forEach((packets, index) => {
      expect(packets - (before[index] ?? 0)).toBeGreaterThanOrEqual(100);
    });
  });
});

describeWith(['perftest'], 'perftest between two daemons', () => {
  it.each([
    'ib_write_bw -F -x 1 -s 65536 -n 500',
    'ib_read_bw -F -x 1 -s 65536 -n 500',
    'ib_send_bw -F -x 1 -a -n 50',
    'ib_send_bw -F -x 1 -c UD -s 2048 -n 500',
    'ib_write_bw -F -x 1 -c UC -s 65536 -n 200',
    'ib_atomic_bw -F -x 1 -n 500',
    'ib_write_lat -F -x 1 -n 500',
    'ib_send_lat -F -x 1 -c UD -n 500',
    'ib_write_bw -F -x 1 -s 16384 -b -q 4 -n 200',
  ])('%s', async (command) => {
    await run(command);
  });

  it('drops nothing for a wrong ICRC', () => {
    for (const { host } of [near, far]) {
      expect(host.devices[0]?.rocePort?.counters).toMatchObject({ icrcErrors: 0, malformed: 0 });
    }
  });
});
