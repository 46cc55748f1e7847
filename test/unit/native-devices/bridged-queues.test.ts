import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  Access,
  AsyncEventType,
  CMEventType,
  QPState,
  SendFlag,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { ConnectionId, Context, CQ, MR, PD, QP } from '#contract/verbs/provider';
import type { PlainSendWR, SendWR } from '#contract/verbs/work-request';
import { type FakeQP, NativeRig } from '#test/support/native-rig';
import { failure } from '#test/support/outcomes';

const SUCCESS = { status: WCStatus.success };
const FLUSHED = { status: WCStatus.wrFlushErr };

let rig: NativeRig;
let context: Context;
let pd: PD;
let cq: CQ;
let mr: MR;

beforeEach(async () => {
  rig = new NativeRig();
  context = await rig.provider.open('nat0');
  pd = await context.allocPD();
  cq = await context.createCQ({ cqe: 64 });
  mr = await pd.allocMR(64, Access.localWrite);
});
afterEach(() => rig.close());

/** A queue pair and its native one. */
async function queuePair(more: { maxSendWr?: number; maxInlineData?: number } = {}) {
  const qp = await pd.createQP({
    sendCQ: cq,
    recvCQ: cq,
    maxSendWr: 4,
    maxRecvWr: 4,
    maxSendSge: 2,
    maxRecvSge: 2,
    ...more,
  });
  const lower = rig.device.qps.at(-1);
  if (lower === undefined) throw new Error('no native queue pair');
  return { qp, lower };
}

/** The same, connected. */
async function connected(more: Parameters<typeof queuePair>[0] = {}) {
  const pair = await queuePair(more);
  return { ...pair, id: await connect(pair.qp) };
}

async function connect(qp: QP): Promise<ConnectionId> {
  const id = await rig.provider.createId();
  // Bound first, since the machine may route 127.0.0.0/8 by another source.
  await id.bindAddr({ address: '127.0.0.2', port: 0 });
  const resolving = id.resolveAddr({ address: '127.0.0.2', port: 9 });
  const lower = rig.channel.ids.at(-1);
  if (lower === undefined) throw new Error('no native id');
  await rig.cmEvent(lower, CMEventType.addrResolved);
  await resolving;
  const connecting = id.connect({ qp });
  await rig.turn();
  await rig.cmEvent(lower, CMEventType.routeResolved);
  await rig.cmEvent(lower, CMEventType.established, { initiatorDepth: 3, responderResources: 2 });
  await connecting;
  return id;
}

function send(wrId: number, flags: SendFlag = SendFlag.signaled): PlainSendWR {
  return { wrId, opcode: WROpcode.send, flags, sgList: [mr.sge(wrId, 1)] };
}

function wrIds(queue: FakeQP['sends']): unknown[] {
  return queue.map(({ sgList }) => sgList?.[0]?.addr);
}

describe('memory of a native device', () => {
  it('uses the device’s addresses, and is registered where both map it', async () => {
    expect(mr).toMatchObject({ lkey: 0x11, rkey: 0x22, length: 64 });
    const part = await pd.regMR(mr.buffer.subarray(16, 32), Access.localWrite);
    expect(part.address).toBe(mr.address + 16n);
    expect(rig.device.registered).toEqual([
      { lengthBytes: 64, access: Access.localWrite, iova: undefined },
      { lengthBytes: 16, access: Access.localWrite, iova: undefined },
    ]);
  });

  it.each([
    ['own memory', () => pd.regMR(new Uint8Array(8), 0), /nat0 .*allocMR/],
    ['a chosen key', () => pd.allocMR(8, 0, { key: 1 }), /nat0 chooses the keys/],
    [
      'a chosen address',
      () => pd.allocMR(8, 0, { iova: 4096 }),
      /nat0 does not support regions at a chosen/,
    ],
    ['a window', () => pd.allocMW(1), /nat0 has no memory windows/],
  ])('fails with EOPNOTSUPP and the name for %s', async (_name, ask, message) => {
    await expect(ask()).rejects.toMatchObject({
      code: 'EOPNOTSUPP',
      message: expect.stringMatching(message),
    });
  });
});

describe('sends to a native device', () => {
  it('wait for the connection, and are posted in order and signalled', async () => {
    const { qp, lower } = await queuePair();
    qp.postSend([send(1), send(2, 0)]);
    expect(lower.sends).toEqual([]);
    await connect(qp);
    expect(wrIds(lower.sends)).toEqual([Number(mr.address) + 1, Number(mr.address) + 2]);
    expect(lower.sends.map(({ flags }) => flags)).toEqual([2, 2]);
    expect((await qp.query()).state).toBe(QPState.RTS);
  });

  it('return completions for signalled requests, with any wr_id', async () => {
    const { qp, lower } = await connected();
    qp.postSend([
      { ...send(1), wrId: 2n ** 64n - 1n },
      { ...send(2, 0), wrId: 5 },
    ]);
    lower.completeSend();
    lower.completeSend();
    await rig.turn();
    expect(cq.poll()).toMatchObject([{ ...SUCCESS, wrId: 2n ** 64n - 1n, qpNum: qp.qpNum }]);
    expect(cq.poll()).toEqual([]);
  });

  it('translate operands, flags and inline payload', async () => {
    const { qp, lower } = await connected({ maxInlineData: 32 });
    const remote = { remoteAddr: 2n ** 64n - 8n, rkey: 0xffffffff };
    qp.postSend([
      {
        opcode: WROpcode.send,
        flags: SendFlag.inline | SendFlag.solicited | SendFlag.fence,
        inlineData: Uint8Array.of(1, 2, 3),
      },
      { opcode: WROpcode.rdmaRead, sgList: [mr.sge(0, 8)], ...remote },
      {
        opcode: WROpcode.atomicCmpAndSwap,
        sgList: [mr.sge(0, 8)],
        compareAdd: 3,
        swap: 2n ** 63n,
        ...remote,
        remoteAddr: 64,
      },
      { opcode: WROpcode.sendWithInv, invalidateRkey: 9 },
    ]);
    const all = SendFlag.signaled | SendFlag.inline | SendFlag.solicited | SendFlag.fence;
    expect(lower.sends).toMatchObject([
      { opcode: WROpcode.send, flags: all, inlineData: Uint8Array.of(1, 2, 3), sgList: [] },
      { opcode: WROpcode.rdmaRead, ...remote },
      { opcode: WROpcode.atomicCmpAndSwap, compareAdd: 3, swap: 2n ** 63n, remoteAddr: 64 },
      { opcode: WROpcode.sendWithInv, invalidateRkey: 9 },
    ]);
  });

  it.each([
    ['Immediate Data', { opcode: WROpcode.immediate, immData: 1 }],
    ['a bind', { opcode: WROpcode.bindMW }],
  ])('are refused with EOPNOTSUPP and the name for %s', async (_name, wr) => {
    const { qp } = await connected();
    expect(() => qp.postSend(wr as SendWR)).toThrow(failure('EOPNOTSUPP', 'nat0'));
  });

  it('stay in the ring while the device is full, and are posted when it has room', async () => {
    const { qp, lower } = await connected();
    lower.sendRoom = 2;
    qp.postSend([1, 2, 3, 4].map((wrId) => send(wrId)));
    expect(lower.sends).toHaveLength(2);
    lower.completeSend();
    await rig.turn();
    expect(lower.sends).toHaveLength(2);
    for (let left = 3; left > 0; left -= 1) {
      lower.completeSend();
      await rig.turn();
    }
    expect(cq.poll().map(({ wrId }) => wrId)).toEqual([1n, 2n, 3n, 4n]);
  });

  it('fail with ENOMEM when ring and device are full', async () => {
    const { qp, lower } = await connected();
    lower.sendRoom = 0;
    const many = Array.from({ length: 64 }, () => send(1));
    // The bridge has taken as many as the device holds; the ring is full again.
    expect(() => {
      for (let round = 0; round < 8; round += 1) qp.postSend(many);
    }).toThrow(failure('ENOMEM'));
  });

  it('fail in order when the device refuses one, and the rest is flushed', async () => {
    const { qp, lower } = await connected();
    const events = context.asyncEvents()[Symbol.asyncIterator]();
    lower.refused = WROpcode.rdmaRead;
    const read = { opcode: WROpcode.rdmaRead, wrId: 2, sgList: [], remoteAddr: 0, rkey: 0 };
    qp.postSend([send(1), read, send(3)]);
    expect(lower.sends).toHaveLength(1);
    lower.completeSend();
    await rig.turn();
    await rig.turn();
    expect(cq.poll()).toMatchObject([
      { ...SUCCESS, wrId: 1n },
      { status: WCStatus.locQpOpErr, wrId: 2n },
      { ...FLUSHED, wrId: 3n },
    ]);
    expect((await events.next()).value).toMatchObject({
      type: AsyncEventType.qpFatal,
      qpNum: qp.qpNum,
    });
    expect((await qp.query()).state).toBe(QPState.ERR);
    expect(lower.states.at(-1)).toBe(QPState.ERR);
  });
});

describe('receives of a native device', () => {
  it('are passed on when posted, before any connection', async () => {
    const { qp, lower } = await queuePair();
    qp.postRecv([
      { wrId: 1, sgList: [mr.sge(0, 8)] },
      { wrId: 2, sgList: [] },
    ]);
    expect(lower.receives).toMatchObject([{ sgList: [{ length: 8 }] }, { sgList: [] }]);
    lower.completeReceive(8);
    await rig.turn();
    expect(cq.poll()).toMatchObject([{ ...SUCCESS, wrId: 1n, byteLen: 8 }]);
  });

  it('are passed on when there is room, without another doorbell', async () => {
    const { qp, lower } = await queuePair();
    const post = (wrId: number) => qp.postRecv({ wrId, sgList: [] });
    for (let wrId = 0; wrId < 8; wrId += 1) post(wrId);
    expect(lower.receives).toHaveLength(4);
    expect(() => post(8)).toThrow(failure('ENOMEM'));
    for (let wrId = 0; wrId < 8; wrId += 1) {
      lower.completeReceive(wrId);
      await rig.turn();
    }
    expect(cq.poll(16).map(({ wrId }) => wrId)).toEqual([0n, 1n, 2n, 3n, 4n, 5n, 6n, 7n]);
  });

  it('reach a shared queue, and complete for the queue pair that took them', async () => {
    const srq = await pd.createSRQ({ maxWr: 4 });
    const init = { sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 0, srq };
    const one = await pd.createQP(init);
    const two = await pd.createQP({ ...init, maxRecvWr: 1e9, maxRecvSge: 1e9 });
    expect(rig.device.qps[1]?.init).toMatchObject({ maxRecvWr: 1, maxRecvSge: 1 });
    for (let wrId = 0; wrId < 6; wrId += 1) srq.postRecv({ wrId, sgList: [] });
    expect(rig.device.srqs[0]?.receives).toHaveLength(4);
    rig.device.qps[1]?.completeReceive(1);
    rig.device.qps[0]?.completeReceive(2);
    await rig.turn();
    expect(cq.poll()).toMatchObject([
      { wrId: 0n, qpNum: two.qpNum, byteLen: 1 },
      { wrId: 1n, qpNum: one.qpNum, byteLen: 2 },
    ]);
    expect(rig.device.srqs[0]?.receives).toHaveLength(4);
    // The ring is empty by now; work that the device had no room for still follows.
    srq.postRecv({ wrId: 6, sgList: [] });
    for (let wrId = 2n; wrId < 7n; wrId += 1n) {
      rig.device.qps[0]?.completeReceive(3);
      await rig.turn();
      expect(cq.poll()).toMatchObject([{ wrId, qpNum: one.qpNum }]);
    }
    await srq.modify({ srqLimit: 3 });
    expect(await srq.query()).toMatchObject({ maxWr: 4, srqLimit: 3 });
    const events = context.asyncEvents()[Symbol.asyncIterator]();
    rig.device.events.push({ type: AsyncEventType.srqLimitReached, element: rig.device.srqs[0] });
    await rig.turn();
    expect((await events.next()).value).toMatchObject({
      type: AsyncEventType.srqLimitReached,
      element: srq.handle,
    });
  });

  it('of all queues are passed on before a send is', async () => {
    const one = await connected();
    const two = await queuePair();
    two.lower.flushes = false;
    two.qp.postRecv({ wrId: 1, sgList: [] });
    two.lower.receives.length = 0;
    // The first is at the device, so the second rings no doorbell when it is full.
    const doorbell = () => one.qp.postSend(send(1));
    two.qp.postRecv({ wrId: 2, sgList: [] });
    doorbell();
    expect(two.lower.receives).toHaveLength(1);
  });
});

describe('the end of a native queue pair', () => {
  it('flushes the work in the device and in the rings, in order', async () => {
    const { qp, lower } = await connected();
    lower.sendRoom = 1;
    qp.postSend([send(1), send(2, 0), send(3)]);
    qp.postRecv({ wrId: 4, sgList: [] });
    await qp.modify({ state: QPState.ERR });
    await rig.turn();
    expect(cq.poll()).toMatchObject([
      { ...FLUSHED, wrId: 1n },
      { ...FLUSHED, wrId: 4n },
      { ...FLUSHED, wrId: 2n },
      { ...FLUSHED, wrId: 3n },
    ]);
    qp.postRecv({ wrId: 5, sgList: [] });
    qp.postSend(send(6));
    expect(cq.poll()).toMatchObject([
      { ...FLUSHED, wrId: 5n },
      { ...FLUSHED, wrId: 6n },
    ]);
    expect(lower.sends).toEqual([]);
  });

  it('counts completions, flushes and other failures as emulated devices do', async () => {
    const { qp, lower } = await connected();
    qp.postSend([send(1), send(2, 0), send(3), send(4)]);
    lower.completeSend();
    lower.completeSend();
    lower.completeSend(WCStatus.remAccessErr);
    lower.completeSend(WCStatus.wrFlushErr);
    await rig.turn();
    qp.postSend(send(5));
    await qp.modify({ state: QPState.ERR });
    await rig.turn();
    expect(cq.poll()).toMatchObject([
      { ...SUCCESS, wrId: 1n },
      { status: WCStatus.remAccessErr, wrId: 3n },
      { ...FLUSHED, wrId: 4n },
      { ...FLUSHED, wrId: 5n },
    ]);
    const counters = rig.native.devices[0]?.nic.counters;
    expect(counters).toMatchObject({ completions: 4, failures: 1, flushes: 2 });
  });

  it('flushes late work that the device drops', async () => {
    const { qp, lower } = await connected();
    lower.flushes = false;
    qp.postRecv([1, 2].map((wrId) => ({ wrId, sgList: [] })));
    qp.postSend([send(3, 0), send(4)]);
    await qp.modify({ state: QPState.ERR });
    expect(cq.poll().map(({ wrId, status }) => [wrId, status])).toEqual([
      [3n, WCStatus.wrFlushErr],
      [4n, WCStatus.wrFlushErr],
      [1n, WCStatus.wrFlushErr],
      [2n, WCStatus.wrFlushErr],
    ]);
    // Late completions are dropped.
    lower.completeSend();
    await rig.turn();
    expect(cq.poll()).toEqual([]);
  });

  it('comes with the end of the connection', async () => {
    const { qp, lower, id } = await connected();
    qp.postRecv({ wrId: 4, sgList: [] });
    await id.disconnect();
    const native = rig.channel.ids.at(-1);
    if (native === undefined) throw new Error('no native id');
    await rig.turn();
    expect(native.asked).toContain('disconnect');
    expect(cq.poll()).toMatchObject([{ ...FLUSHED, wrId: 4n }]);
    expect(lower.states.at(-1)).toBe(QPState.ERR);
    expect((await qp.query()).state).toBe(QPState.ERR);
  });

  it('is undone by RESET: a new one takes over the old number', async () => {
    const { qp, lower } = await connected();
    const { qpNum } = qp;
    qp.postSend(send(1));
    await qp.modify({ state: QPState.RESET });
    expect(lower.disposed).toBe(1);
    const next = rig.device.qps.at(-1);
    expect(next).not.toBe(lower);
    // A late completion of the old one is dropped.
    lower.completeSend();
    await rig.turn();
    expect(cq.poll()).toEqual([]);
    qp.postRecv({ wrId: 2, sgList: [] });
    next?.completeReceive(5);
    await rig.turn();
    expect(cq.poll()).toMatchObject([{ ...SUCCESS, wrId: 2n, qpNum }]);
  });

  it('releases everything', async () => {
    await connected();
    await context.close();
    const { qps, cqs } = rig.device;
    expect([...qps, ...cqs].map(({ disposed }) => disposed)).toEqual([1, 1]);
  });
});

describe('a native device that disappears', () => {
  it('is reported once; its work is flushed, and its connections end', async () => {
    const events = context.asyncEvents()[Symbol.asyncIterator]();
    const { qp, id } = await connected();
    qp.postSend([send(1, 0), send(2)]);
    qp.postRecv({ wrId: 3, sgList: [] });
    rig.device.gone = true;
    await rig.turn();
    expect((await events.next()).value).toMatchObject({ type: AsyncEventType.deviceFatal });
    expect(cq.poll()).toMatchObject([
      { ...FLUSHED, wrId: 1n },
      { ...FLUSHED, wrId: 2n },
      { ...FLUSHED, wrId: 3n },
    ]);
    await expect(context.allocPD()).rejects.toMatchObject({ code: 'EIO' });
    expect(rig.notes.filter((text) => text.includes('no longer works'))).toHaveLength(1);
    await id.close();
    await qp.close();
  });
});
