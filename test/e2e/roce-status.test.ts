/** The status of RoCE devices, with two queue pairs connected. */
import { readFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AsyncEventType, QPState, QPType, WROpcode } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import { runTop } from '#daemon/cli/control/top';
import { statusLines } from '#daemon/cli/status';
import { sysfsPath } from '#daemon/kernel/sysfs-tree';
import { DaemonControl } from '#verbs-api/client/daemon-control';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonRig } from '../support/daemon-rig.ts';
import { quiet } from '../support/patience.ts';
import { parseMetrics } from '../support/prometheus-text.ts';
import { send } from '../support/provider-fixture.ts';
import {
  connectTo,
  exchanged,
  ROCE_DEVICE,
  readyForDatagrams,
  roceSide,
} from '../support/roce-fixture.ts';

let rig: DaemonRig;
let provider: Provider;
let control: DaemonControl;

beforeEach(async () => {
  const devices = [{ ...ROCE_DEVICE, addresses: [...ROCE_DEVICE.addresses] }, { name: 'iwarp0' }];
  rig = await DaemonRig.start({ devices, http: { noToken: true } });
  provider = await connectDaemon({ socketPath: rig.socketPath });
  control = new DaemonControl({ socketPath: rig.socketPath });
});

afterEach(async () => {
  await provider.close();
  await rig.stop();
});

/** Two queue pairs that are connected, after one Send from the first to the second. */
async function connected() {
  const [a, b] = [await roceSide(provider), await roceSide(provider)];
  const [ofA, ofB] = [await exchanged(a), await exchanged(b)];
  await connectTo(a.qp, ofB);
  await connectTo(b.qp, ofA);
  b.qp.postRecv({ wrId: 1, sgList: [b.mr.sge(0, 64)] });
  a.qp.postSend(send([a.mr.sge(0, 64)]));
  await expect.poll(() => a.cq.poll(1)).toHaveLength(1);
  return { a: { ...ofA, side: a }, b: { ...ofB, side: b } };
}

describe('a RoCE device', () => {
  it('shows its queue pairs with their types, and their destinations', async () => {
    const { a, b } = await connected();
    const ud = await roceSide(provider, QPType.ud);
    await readyForDatagrams(ud.qp, 1);
    const qps = await control.queuePairs({ device: 'roce0' });
    const shown = new Map(qps.map((qp) => [qp.qpNum, qp]));
    expect(shown.get(a.qpNum)).toMatchObject({
      type: 'RC',
      state: 'RTS',
      destination: { qpNum: b.qpNum, gid: b.gid, device: 'roce0' },
    });
    expect(shown.get(b.qpNum)?.destination).toMatchObject({ qpNum: a.qpNum });
    expect(shown.get(ud.qp.qpNum)).toMatchObject({ type: 'UD', state: 'RTS' });
    expect(shown.get(ud.qp.qpNum)?.destination).toBeUndefined();
    expect(await control.connections()).toEqual([]);
  });

  it('shows them one by one in top, the busiest first', async () => {
    const { a, b } = await connected();
    const lines: string[] = [];
    const output = { line: (text: string) => lines.push(text), note: () => undefined };
    const never = new AbortController().signal;
    const look = async (json: boolean) => {
      const socket = rig.socketPath;
      let watched = false;
      const watching = runTop({ socket, interval: 0.5, count: 1, json }, output, never);
      const ended = watching.finally(() => {
        watched = true;
      });
      // A message at a time, until top has looked twice.
      while (!watched) {
        b.side.qp.postRecv({ wrId: 2, sgList: [b.side.mr.sge(0, 64)] });
        a.side.qp.postSend(send([a.side.mr.sge(0, 64)]));
        await quiet(50);
        for (const { side } of [a, b]) side.cq.poll(4);
      }
      await ended;
      return lines.splice(0).join('\n');
    };
    const { queuePairs } = JSON.parse(await look(true));
    expect(queuePairs).toHaveLength(2);
    expect(queuePairs[0].sendsPerSecond + queuePairs[0].receivesPerSecond).toBeGreaterThan(0);
    const text = await look(false);
    expect(text).toMatch(/^device +QP +type +state +sends\/s +recvs\/s +to +pid +program$/m);
    const row = new RegExp(`^roce0 +${a.qpNum} +RC +RTS +\\d+ +0 +${b.qpNum} at roce0 +\\d+ `, 'm');
    expect(text).toMatch(row);
  });

  it('reports events to TypeScript clients: a refused access, a drained queue, its port [IBV-AE-02, IBV-AE-04, IBV-QP-18]', async () => {
    const { a, b } = await connected();
    const events = b.side.context.asyncEvents()[Symbol.asyncIterator]();
    const next = async () => {
      const { value } = await events.next();
      return [value?.type, value?.qpNum];
    };
    const remoteAddr = b.side.mr.address;
    const rkey = (b.side.mr.rkey ^ 1) >>> 0;
    await b.side.qp.modify({ state: QPState.SQD });
    expect(await next()).toEqual([AsyncEventType.sqDrained, b.qpNum]);
    const sgList = [a.side.mr.sge(0, 64)];
    a.side.qp.postSend({ opcode: WROpcode.rdmaWrite, sgList, remoteAddr, rkey });
    expect(await next()).toEqual([AsyncEventType.qpAccessErr, b.qpNum]);
    const fault = await control.addFault({ kind: 'port-down', device: 'roce0' });
    expect(await next()).toEqual([AsyncEventType.portErr, undefined]);
    await control.removeFault(fault.id);
    expect(await next()).toEqual([AsyncEventType.portActive, undefined]);
  });

  it('counts packets by the names of rxe: in the status, metrics and sysfs, until a reset', async () => {
    await connected();
    const [roce, iwarp] = await control.devices();
    expect(roce?.device).toMatchObject({ name: 'roce0', transport: 'roce' });
    // The Send and its acknowledgment.
    expect(roce?.hwCounters).toMatchObject({ sent_pkts: 2, rcvd_pkts: 2, rdma_sends: 1 });
    expect(iwarp?.device.transport).toBe('iwarp');
    expect(iwarp?.hwCounters).toBeUndefined();

    const lines = statusLines(await rig.daemon.status());
    expect(lines).toContain('device roce0 (emulated, RoCE): 127.0.0.1, ::1');
    expect(lines.join('\n')).toMatch(/^ {2}sent_pkts +2 +Packets sent$/m);

    const page = await fetch(`${rig.daemon.ready.http?.url}/metrics`);
    const samples = parseMetrics(await page.text());
    expect(samples.get('iwarpd_roce_sent_pkts_total{device="roce0"}')).toBe(2);
    expect(samples.has('iwarpd_roce_sent_pkts_total{device="iwarp0"}')).toBe(false);

    const folder = `${sysfsPath(rig.socketPath)}/class/infiniband/roce0/ports/1/hw_counters`;
    const read = (name: string) => readFileSync(`${folder}/${name}`, 'utf8');
    await expect.poll(() => read('rcvd_pkts')).toBe('2\n');
    expect(read('rdma_sends')).toBe('1\n');
    expect(read('lifespan')).toBe('12\n');

    await control.reset();
    expect((await control.devices())[0]?.hwCounters).toMatchObject({ sent_pkts: 0, rdma_sends: 0 });
    await expect.poll(() => read('rcvd_pkts')).toBe('0\n');
  });
});
