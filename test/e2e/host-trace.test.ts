/** A host's own work and links, traced in its process, as for an embedded RNIC. */
import { afterEach, expect, it } from 'vitest';
import type { TraceRecord, TraceRequest } from '#contract/protocol/trace-sample';
import { AsyncEventType, SendFlag, WROpcode } from '#contract/verbs/enums';
import { TapHub } from '#daemon/capture/tap-hub';
import { TraceSampler } from '#daemon/capture/trace-sampler';
import { WorkHub } from '#daemon/capture/work-hub';
import { crc32 } from '#daemon/roce/wire/crc32';
import { until } from '../support/patience.ts';
import { connectPair, RnicNode } from '../support/rnic-node.ts';

const nodes: RnicNode[] = [];

afterEach(() => Promise.all(nodes.splice(0).map(({ host }) => host.close())));

/** Two hosts in one process, of which the first is watched. */
function watchedNodes(request: TraceRequest = {}) {
  const links = new TapHub();
  const from = new RnicNode({ observer: { tap: links } });
  const to = new RnicNode();
  nodes.push(from, to);
  const work = new WorkHub(from.host.devices.map(({ name, nic }) => ({ name, watch: nic.watch })));
  const sampler = new TraceSampler({
    request,
    crc32c: from.host.crcEngine.crc32c,
    crc32,
    nowMicros: () => Math.round(performance.now() * 1000),
    onFull: () => undefined,
  });
  sampler.begin(links, work);
  return { from, to, sampler };
}

const texts = (records: readonly TraceRecord[]) =>
  records.map(({ kind, opcode, bytes, status }) =>
    [kind, opcode, bytes, status].filter((each) => each !== undefined).join(' '),
  );

it('shows a long Write, cut into FPDUs, and its completion once', async () => {
  const { from, to, sampler } = watchedNodes();
  const { active, passive } = await connectPair(from, to, '127.0.0.1');
  active.buffer[299_999] = 7;
  const sgList = [{ addr: active.address(), length: 300_000, lkey: active.mr.lkey }];
  const remote = { remoteAddr: passive.address(), rkey: passive.mr.rkey };
  active.postSend({ opcode: WROpcode.rdmaWrite, wrId: 2n ** 64n - 1n, sgList, ...remote });
  await active.completions(1);
  await until('the bytes', () => passive.buffer[299_999] === 7);
  const { records } = sampler.end();
  const work = records.filter(({ kind }) => kind === 'wqe' || kind === 'cqe');
  expect(work).toMatchObject([
    { kind: 'wqe', opcode: 'RDMA_WRITE', bytes: 300_000, wrId: '0xffffffffffffffff' },
    { kind: 'cqe', opcode: 'RDMA_WRITE', bytes: 300_000, status: 'IBV_WC_SUCCESS' },
  ]);
  const written = records.filter(({ opcode, bytes }) => opcode === 'Write' && bytes !== 0);
  const bytes = written.reduce((sum, { bytes = 0 }) => sum + bytes, 0);
  expect(written.length).toBeGreaterThan(1);
  expect(bytes).toBe(300_000);
  for (const { qpn, device } of written) {
    expect([device, qpn]).toEqual(['iwarp0', active.qp.qpn]);
  }
});

it('shows the outcome of a request that the peer refused', async () => {
  const { from, to, sampler } = watchedNodes();
  const { active, passive } = await connectPair(from, to, '127.0.0.1');
  active.receive(0, 64);
  const sgList = [{ addr: active.address(), length: 8, lkey: active.mr.lkey }];
  const remote = { remoteAddr: passive.address(), rkey: (passive.mr.rkey ^ 0xff00) >>> 0 };
  active.postSend({ opcode: WROpcode.rdmaRead, flags: SendFlag.fence, sgList, ...remote });
  await active.completions(2);
  await until('an event', () => from.asyncEvents.length > 0);
  expect(from.asyncEvents[0]?.event).toBe(AsyncEventType.qpFatal);
  const { records } = sampler.end();
  const begin = records.findIndex(({ kind }) => kind === 'wqe');
  expect(texts(records.slice(begin)).filter((text) => !text.startsWith('end'))).toEqual([
    'wqe RDMA_READ 8',
    'fpdu Read Request 28',
    expect.stringMatching(/^fpdu Terminate \d+$/),
    'cqe RDMA_READ 0 IBV_WC_REM_ACCESS_ERR',
    'wqe RECV 64',
    'cqe RECV 0 IBV_WC_WR_FLUSH_ERR',
  ]);
  expect(records[begin]?.text).toMatch(/, fence, signaled$/);
});
