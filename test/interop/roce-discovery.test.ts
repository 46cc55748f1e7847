/** Unmodified tools of rdma-core and iproute2 on a RoCE device: they see what Linux's rxe shows. */
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';

let rig: RoceRig;

async function run(...words: readonly string[]): Promise<string> {
  const { status, output } = await new ShimProgram(words, rig.environment).end();
  expect(status, output).toBe(0);
  return output;
}

beforeAll(async () => {
  const addresses = ['127.0.72.1'];
  rig = await RoceRig.start(
    { name: 'roce0', addresses, transport: 'roce' },
    { name: 'iwarp0', addresses },
  );
});

afterAll(() => rig.stop());

describeWith(['rdma-programs'], 'a RoCE device', () => {
  it('is listed by ibv_devices in the order of the devices, with a GUID of its own', async () => {
    const guids = [...(await run('ibv_devices')).matchAll(/^ +(\w+) +\t(02[0-9a-f]{14})$/gm)];
    expect(guids.map(([, name]) => name)).toEqual(['roce0', 'iwarp0']);
    expect(guids[0]?.[2]).not.toBe(guids[1]?.[2]);
  });

  it('is described by ibv_devinfo like rxe, except for a short GID table', async () => {
    const output = await run('ibv_devinfo', '-v', '-d', 'roce0');
    expect(output).toMatch(/transport:\s+InfiniBand \(0\)/);
    expect(output).toMatch(/device_cap_flags:\s+0x01223c76/);
    expect(output).toMatch(/atomic_cap:\s+ATOMIC_HCA \(1\)/);
    expect(output).toMatch(/state:\s+PORT_ACTIVE \(4\)/);
    expect(output).toMatch(/link_layer:\s+Ethernet/);
    expect(output).toMatch(/gid_tbl_len:\s+8\n/);
    expect(output.match(/GID\[.*RoCE v2$/gm)).toHaveLength(2);
    expect(output).toMatch(/GID\[ +0\]:\s+fe80::/);
    expect(output).toMatch(/GID\[ +1\]:\s+::ffff:127\.0\.72\.1, RoCE v2/);
  });

  it('is a link with its interface to the rdma tool', async () => {
    const output = await run('rdma', 'link');
    expect(output).toMatch(/^link roce0\/1 state ACTIVE physical_state LINK_UP netdev lo $/m);
    expect(output).toMatch(/^link iwarp0\/1 state ACTIVE physical_state LINK_UP $/m);
  });

  it('has the counters of its port and of drops in rdma statistic, with rxe’s names', async () => {
    const text = await run('rdma', '-j', 'statistic', 'show', 'link', 'roce0/1');
    const [port] = JSON.parse(text) as Record<string, unknown>[];
    const { hwCounters, linkCounters } = rig.host.devices[0] ?? {};
    const names = Object.keys({ ...hwCounters, ...linkCounters });
    expect(Object.keys(port ?? {})).toEqual(['ifname', 'port', ...names]);
    expect(names).toEqual(expect.arrayContaining(['duplicate_request', 'rx_bad_qkey']));
    const { sent_pkts: before } = port as { sent_pkts: number };
    const pingpong = 'ibv_rc_pingpong -g 1 -n 100 -d roce0';
    const connected = `until ${pingpong} localhost; do sleep 0.1; done`;
    await run('sh', '-c', `${pingpong} > /dev/null & ${connected}; wait`);
    const output = await run('rdma', 'statistic');
    expect(output).toMatch(/^link iwarp0\/1 $/m);
    const after = Number(/^link roce0\/1 .* sent_pkts (\d+)/m.exec(output)?.[1]);
    expect(after).toBeGreaterThanOrEqual(before + 200);
  });

  it('has the objects of programs in rdma resource, with their owners', async () => {
    const command = ['ibv_srq_pingpong', '-g', '1', '-d', 'roce0', '-q', '4'];
    const server = new ShimProgram(command, rig.environment);
    onTestFinished(async () => {
      await server.kill();
    });
    const counts = /^0: roce0: pd 1 cq 1 qp 4 cm_id 0 mr 1 ctx 1 srq 1 $/m;
    await expect.poll(() => run('rdma', 'resource')).toMatch(counts);
    const owner = `pid ${server.pid} comm ibv_srq_pingpon `;
    const pairs = await run('rdma', 'resource', 'show', 'qp', 'link', 'roce0/1');
    const line = `^link roce0/1 lqpn (\\d+) rqpn 0 type RC state INIT .*pdn (\\d+) ${owner}$`;
    const found = [...pairs.matchAll(new RegExp(line, 'gm'))];
    expect(found, pairs).toHaveLength(4);
    const [, , pd] = found[0] ?? [];
    expect(
      found.every((match) => match[2] === pd),
      pairs,
    ).toBe(true);
    const qpn = found[2]?.[1];
    const one = await run('rdma', 'resource', 'show', 'qp', 'lqpn', String(qpn));
    expect(one.match(/lqpn \d+/g)).toEqual([`lqpn ${qpn}`]);
    const srq = await run('rdma', 'resource', 'show', 'srq');
    const queue = `^dev roce0 srqn \\d+ type BASIC lqpn .* pdn ${pd} ${owner}$`;
    expect(srq).toMatch(new RegExp(queue, 'm'));
    const regions = await run('rdma', 'resource', 'show', 'mr');
    const region = `^dev roce0 mrn \\d+ .*mrlen \\d+ pdn ${pd} ${owner}$`;
    expect(regions).toMatch(new RegExp(region, 'm'));
  });

  it('has as many objects in rdma resource as there are, those of TypeScript programs, too', async () => {
    const count = 2000;
    const provider = await connectDaemon({ socketPath: rig.socketPath });
    const context = await provider.open('roce0');
    for (let made = 0; made < count; made += 1) await context.allocPD();
    const output = await run('rdma', 'resource', 'show', 'pd');
    const owner = new RegExp(`^dev roce0 pdn \\d+ .* pid ${process.pid} `, 'gm');
    expect(output.match(owner)).toHaveLength(count);
    await provider.close();
    expect(await run('rdma', 'resource')).toMatch(/^0: roce0: pd 0 /m);
  });

  it('has no counters of single queue pairs, and refuses to enable them', async () => {
    expect(await run('rdma', 'statistic', 'qp', 'show')).toBe('');
    expect(await run('rdma', 'statistic', 'qp', 'mode')).toMatch(/roce0\/1 mode qp auto off/);
    const words = ['rdma', 'statistic', 'qp', 'set', 'link', 'roce0/1', 'auto', 'type', 'on'];
    const { status, output } = await new ShimProgram(words, rig.environment).end();
    expect(status, output).not.toBe(0);
    expect(output).toContain('Operation not supported');
  });
});
