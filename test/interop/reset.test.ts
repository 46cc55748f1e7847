/** The effect of a reset, and of a kill, on unmodified programs, and the daemon's report of it. */
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { ClientStatus } from '#contract/protocol/ipc-admin';
import { QPState, QPType } from '#contract/verbs/enums';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ADDRESS, endOf, ProgramBench } from './program-bench.ts';

/** Exit status of `timeout` for a program that it ended. */
const TIMED_OUT = 124;

let bench: ProgramBench;
let control: DaemonControl;

beforeAll(async () => {
  bench = new ProgramBench();
  await bench.start(['--no-native']);
  control = new DaemonControl({ socketPath: bench.socketPath });
});

afterAll(() => bench.stop());

/** Starts a pair of rpings that ping until they are ended; returns once pings arrive. */
async function endlessPings() {
  const port = `${await freePort()}`;
  const server = await bench.server(Number(port), ['rping', '-s', '-a', ADDRESS, '-p', port]);
  const client = bench.program(['rping', '-c', '-a', ADDRESS, '-p', port]);
  await expect.poll(pings).toBeGreaterThan(100);
  return { server, client };
}

/** Sends that the device counted. */
async function pings(): Promise<number> {
  const device = (await control.devices()).find((each) => each.device.name === 'iwarp0');
  return device?.counters['out_sends'] ?? 0;
}

/** Packets that the RoCE device counted. */
async function packets(): Promise<number> {
  const device = (await control.devices()).find((each) => each.device.name === 'roce0');
  return device?.hwCounters?.['rcvd_pkts'] ?? 0;
}

function programsOf(clients: readonly ClientStatus[]): string[] {
  return clients.map(({ program }) => program);
}

describeWith(['rdma-programs'], 'reset', () => {
  it('ends programs of rdma-core in the middle of their work, and names them', async () => {
    const { server, client } = await endlessPings();
    const qps = await control.queuePairs();
    expect(qps.map(({ program, state }) => `${program} ${state}`)).toEqual([
      'rping RTS',
      'rping RTS',
    ]);
    expect(await control.memoryRegions()).toHaveLength(7);
    const report = await control.reset();
    expect(programsOf(report.leaks)).toEqual(['rping', 'rping']);
    expect(report).toMatchObject({ clients: 2, connections: 2 });
    for (const { usage } of report.leaks) expect(usage.objects).toMatchObject({ qp: 1, cq: 1 });
    for (const end of await Promise.all([endOf(server), endOf(client)])) {
      expect(end.status, end.output).not.toBe(0);
      expect(end.status, end.output).not.toBe(TIMED_OUT);
    }
    expect(await control.clients()).toEqual([]);
    expect(await control.connections()).toEqual([]);
    expect(await pings()).toBe(0);
    // As good as new.
    const port = await freePort();
    const words = ['-a', ADDRESS, '-p', `${port}`, '-C', '3'];
    const pair = await bench.pair(port, ['rping', '-s', ...words], ['rping', '-c', ...words]);
    expect(pair).toMatchObject({ client: { status: 0 }, server: { status: 0 } });
  });

  it('ends programs and TypeScript clients of the RoCE device, and names them', async () => {
    await control.reset();
    const port = await freePort();
    const words = ['ibv_rc_pingpong', '-g', '1', '-e', '-p', `${port}`, '-n', '1000000000'];
    const server = await bench.server(port, words);
    const client = bench.program([...words, ADDRESS]);
    const provider = await connectDaemon({ socketPath: bench.socketPath });
    const context = await provider.open('roce0');
    const pd = await context.allocPD();
    const cq = await context.createCQ({ cqe: 4 });
    const queues = { sendCQ: cq, recvCQ: cq, maxSendWr: 2, maxRecvWr: 2 };
    const qp = await pd.createQP({ type: QPType.ud, ...queues });
    await qp.modify({ state: QPState.INIT, pkeyIndex: 0, portNum: 1, qkey: 1 });
    await expect.poll(packets).toBeGreaterThan(100);
    const report = await control.reset();
    const programs = programsOf(report.leaks).filter((name) => name === 'ibv_rc_pingpong');
    expect(programs).toHaveLength(2);
    expect(report.leaks.map(({ pid }) => pid)).toContain(process.pid);
    expect(report.clients).toBe(3);
    for (const { usage } of report.leaks) expect(usage.objects).toMatchObject({ qp: 1, cq: 1 });
    for (const end of await Promise.all([endOf(server), endOf(client)])) {
      expect(end.status, end.output).not.toBe(0);
      expect(end.status, end.output).not.toBe(TIMED_OUT);
    }
    await expect(pd.createQP({ type: QPType.rc, ...queues })).rejects.toThrow();
    await provider.close();
    expect(await control.clients()).toEqual([]);
    expect(await control.queuePairs()).toEqual([]);
    expect(await packets()).toBe(0);
    // As good as new.
    const again = ['ibv_ud_pingpong', '-g', '1', '-e', '-p', `${port}`];
    const pair = await bench.pair(port, again, [...again, ADDRESS]);
    expect(pair).toMatchObject({ client: { status: 0 }, server: { status: 0 } });
  });

  it('finds no leftovers of a killed program, whose peer ends', async () => {
    await control.reset();
    const { server, client } = await endlessPings();
    const known = await control.clients();
    const pid = known.find((each) => hasArgument(each.pid, '-c'))?.pid ?? 0;
    process.kill(pid, 'SIGKILL');
    await endOf(client);
    expect((await control.clients()).map((each) => each.pid)).not.toContain(pid);
    expect((await endOf(server)).status).not.toBe(TIMED_OUT);
    expect(await control.reset()).toMatchObject({ leaks: [], clients: 0, connections: 0 });
  });
});

function hasArgument(pid: number, argument: string): boolean {
  if (!readdirSync('/proc').includes(`${pid}`)) return false;
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(argument);
}
