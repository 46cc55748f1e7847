/**
 * The work that `iwarpd trace` shows for unmodified programs, compared with what the programs
 * report. The programs write to their queues in shared memory directly; the daemon sees the
 * requests that it takes from there.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TraceRecord } from '#contract/protocol/trace-sample';
import { freePort } from '../support/free-port.ts';
import { describeWith } from '../support/prerequisites.ts';
import { ADDRESS, type EndedPair, ProgramBench } from './program-bench.ts';

let bench: ProgramBench;

beforeAll(async () => {
  bench = new ProgramBench();
  await bench.start();
});

afterAll(() => bench.stop());

/** The records of work while `run` runs; returns once all have been reported. */
async function workOf(run: () => Promise<EndedPair>): Promise<TraceRecord[]> {
  const words = ['trace', '--json', '--only', 'wqe,cqe', '--socket', bench.socketPath];
  const tracing = bench.folder.start(words);
  await tracing.until(/tracing/, 'stderr');
  const { client, server } = await run();
  expect(client.status, client.output).toBe(0);
  expect(server.status, server.output).toBe(0);
  tracing.signal('SIGINT');
  const { stdout, stderr } = await tracing.end();
  expect(stderr).not.toContain('left out');
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

function counted(records: readonly TraceRecord[], wanted: Partial<TraceRecord>): number {
  const fields = Object.entries(wanted);
  return records.filter((record) =>
    fields.every(([name, value]) => Reflect.get(record, name) === value),
  ).length;
}

/** Every completion belongs to a request that came before it. */
function expectPaired(records: readonly TraceRecord[]): void {
  const open = new Map<string, number>();
  for (const { kind, qpn, opcode, wrId } of records) {
    const name = `${qpn} ${opcode} ${wrId}`;
    const left = open.get(name) ?? 0;
    if (kind === 'cqe') expect(left, name).toBeGreaterThan(0);
    open.set(name, kind === 'wqe' ? left + 1 : left - 1);
  }
}

const SUCCESS = 'IBV_WC_SUCCESS';

describeWith(['perftest'], 'the work of perftest', () => {
  it('ib_write_bw: every Write, and as many completions as it asks for', async () => {
    const port = await freePort();
    const words = `ib_write_bw -R -F -p ${port} -s 4096 -n 1000 -Q 50`.split(' ');
    const records = await workOf(() => bench.pair(port, words, [...words, ADDRESS]));
    const write = { opcode: 'RDMA_WRITE', bytes: 4096 };
    expect(counted(records, { kind: 'wqe', ...write })).toBe(1000);
    expect(counted(records, { kind: 'cqe', ...write, status: SUCCESS })).toBe(1000 / 50);
    expectPaired(records);
  });

  it('ib_read_bw: every Read', async () => {
    const port = await freePort();
    const words = `ib_read_bw -R -F -p ${port} -s 2048 -n 300 -Q 1`.split(' ');
    const records = await workOf(() => bench.pair(port, words, [...words, ADDRESS]));
    const read = { opcode: 'RDMA_READ', bytes: 2048 };
    expect(counted(records, { kind: 'wqe', ...read })).toBe(300);
    expect(counted(records, { kind: 'cqe', ...read, status: SUCCESS })).toBe(300);
  });

  it('ib_send_bw on a shared receive queue: every Send and the receive that it took', async () => {
    const port = await freePort();
    const words = `ib_send_bw -R -F -p ${port} -s 4096 -n 200 -Q 1 --use-srq`.split(' ');
    const records = await workOf(() => bench.pair(port, words, [...words, ADDRESS]));
    expect(counted(records, { kind: 'wqe', opcode: 'SEND', bytes: 4096 })).toBe(200);
    expect(counted(records, { kind: 'cqe', opcode: 'SEND', bytes: 4096 })).toBe(200);
    const received = { kind: 'cqe', opcode: 'RECV', bytes: 4096, status: SUCCESS } as const;
    expect(counted(records, received)).toBe(200);
    const shared = records.filter(({ kind, text }) => kind === 'wqe' && text.endsWith(', shared'));
    expect(shared.length).toBeGreaterThanOrEqual(200);
    expectPaired(records);
  });
});

describeWith(['rdma-programs'], 'the work of rping', () => {
  it('is two Sends each way, a Read and a Write for each ping', async () => {
    const port = await freePort();
    const words = ['-a', ADDRESS, '-p', String(port), '-C', '7', '-v'];
    const records = await workOf(async () => {
      return await bench.pair(port, ['rping', '-s', ...words], ['rping', '-c', ...words]);
    });
    for (const [opcode, count] of [
      ['RDMA_READ', 7],
      ['RDMA_WRITE', 7],
      ['SEND', 4 * 7],
    ] as const) {
      expect(counted(records, { kind: 'wqe', opcode })).toBe(count);
      expect(counted(records, { kind: 'cqe', opcode, status: SUCCESS })).toBe(count);
    }
    expect(counted(records, { kind: 'cqe', opcode: 'RECV', status: SUCCESS })).toBe(4 * 7);
    expectPaired(records);
  });
});

describeWith(['rdma-programs'], 'the refusals of a ping-pong', () => {
  it('name its call and why it failed', async () => {
    const words = ['trace', '--json', '--only', 'refusal', '--socket', bench.socketPath];
    const tracing = bench.folder.start(words);
    await tracing.until(/tracing/, 'stderr');
    const { status } = await bench.run(['ibv_rc_pingpong', '-r', '2000000']);
    expect(status).not.toBe(0);
    await tracing.until(/\n/);
    tracing.signal('SIGINT');
    const { stdout } = await tracing.end();
    expect(JSON.parse(stdout)).toMatchObject({
      kind: 'refusal',
      program: 'ibv_rc_pingpong',
      api: 'verbs',
      verb: 'ibv_create_cq',
      code: 'EINVAL',
      sentence: expect.stringMatching(/^cqe must be 1 to .*, not 2000001$/),
    });
  });
});
