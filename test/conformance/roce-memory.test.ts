/** Memory, shared receives and completions on a RoCE device, by the verbs of a program. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  Access,
  AsyncEventType,
  MWType,
  QPState,
  QPType,
  SendFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { incRkey } from '#verbs-api/index';
import { quiet, until } from '../support/patience.ts';
import {
  completions,
  remote,
  type StartedFixture,
  SUCCESS,
  send,
  verbsError,
  write,
} from '../support/provider-fixture.ts';
import {
  connectTo,
  exchanged,
  ROCE_DEVICE,
  type RoceSide,
  rocePair,
  roceSide,
} from '../support/roce-fixture.ts';

const signaled = SendFlag.signaled;
const { wrFlushErr, remAccessErr, mwBindErr } = WCStatus;

let fixture: StartedFixture;

beforeAll(async () => {
  const provider = await createEmbedded({ devices: [ROCE_DEVICE] });
  fixture = { server: provider, client: provider, stop: () => provider.close() };
});
afterAll(() => fixture.stop());

/** Statuses of the next completions. */
async function statuses({ cq }: RoceSide, count: number): Promise<WCStatus[]> {
  return (await completions(cq, count)).map(({ status }) => status);
}

/** The next asynchronous event of this type. */
async function event({ context }: RoceSide, type: AsyncEventType) {
  for await (const found of context.asyncEvents()) if (found.type === type) return found;
  throw new Error('the events have ended');
}

describe('a memory window', () => {
  /** Binds a window onto 64 bytes of the side's memory, from `offset` on; returns the status. */
  async function bind(
    side: RoceSide,
    rkey: number,
    change: { readonly offset?: number; readonly length?: number; readonly lkey?: number } = {},
  ): Promise<WCStatus | undefined> {
    const { offset = 0, length = 64, lkey = side.mr.lkey } = change;
    const range = { lkey, addr: side.mr.address + BigInt(offset), length };
    const access = Access.remoteWrite;
    side.qp.postSend({
      opcode: WROpcode.bindMW,
      flags: signaled,
      bind: { ...range, access, rkey },
    });
    const [status] = await statuses(side, 1);
    return status;
  }

  /** The status of a Write of eight bytes through a key. */
  async function through(
    pair: { client: RoceSide; server: RoceSide },
    rkey: number,
    offset = 0,
  ): Promise<WCStatus | undefined> {
    const { client, server } = pair;
    const target = { remoteAddr: server.mr.address + BigInt(offset), rkey };
    const sgList = [client.mr.sge(0, 8)];
    client.qp.postSend({ opcode: WROpcode.rdmaWrite, flags: signaled, sgList, ...target });
    const [status] = await statuses(client, 1);
    return status;
  }

  it.each([MWType.type1, MWType.type2])(
    'of type %i opens its bytes, from its bind on, under its new key, and no others [IBV-MW-01, IBV-MW-02, IBV-MW-03]',
    async (type) => {
      for (const [offset, expected] of [
        [0, WCStatus.success],
        [56, WCStatus.success],
        [57, remAccessErr],
        [undefined, remAccessErr],
      ] as const) {
        await using pair = await rocePair(fixture);
        await using window = await pair.server.pd.allocMW(type);
        const before = window.rkey;
        const rkey = incRkey(before);
        expect(await bind(pair.server, rkey)).toBe(WCStatus.success);
        // The last case uses the key from before the bind.
        const key = offset === undefined ? before : rkey;
        expect(await through(pair, key, offset)).toBe(expected);
      }
    },
  );

  it('grants no right that its bind does not name [IBV-MW-04]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    await using window = await server.pd.allocMW(MWType.type1);
    const rkey = incRkey(window.rkey);
    expect(await bind(server, rkey)).toBe(WCStatus.success);
    const target = { remoteAddr: server.mr.address, rkey };
    const sgList = [client.mr.sge(0, 8)];
    client.qp.postSend({ opcode: WROpcode.rdmaRead, flags: signaled, sgList, ...target });
    expect(await statuses(client, 1)).toEqual([remAccessErr]);
  });

  it('of type 1 may be bound again, which ends its old key, and unbound by a length of 0 [IBV-MW-05, IBV-MW-06]', async () => {
    await using pair = await rocePair(fixture);
    const { server } = pair;
    await using window = await server.pd.allocMW(MWType.type1);
    const first = incRkey(window.rkey);
    const second = incRkey(first);
    expect(await bind(server, first)).toBe(WCStatus.success);
    expect(await bind(server, second, { offset: 64 })).toBe(WCStatus.success);
    expect(await through(pair, second, 64)).toBe(WCStatus.success);
    expect(await bind(server, incRkey(second), { length: 0 })).toBe(WCStatus.success);
    expect(await through(pair, second, 64)).toBe(remAccessErr);
  });

  it('of type 2 is bound once, until its owner or its peer invalidates it [IBV-MW-07, IBV-MW-08, IBV-MW-09]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    await using window = await server.pd.allocMW(MWType.type2);
    const first = incRkey(window.rkey);
    expect(await bind(server, first)).toBe(WCStatus.success);
    server.qp.postSend({ opcode: WROpcode.localInv, flags: signaled, invalidateRkey: first });
    expect(await statuses(server, 1)).toEqual([WCStatus.success]);
    const second = incRkey(first);
    expect(await bind(server, second)).toBe(WCStatus.success);
    server.qp.postRecv({ sgList: [] });
    client.qp.postSend({ opcode: WROpcode.sendWithInv, flags: signaled, invalidateRkey: second });
    expect(await completions(server.cq)).toMatchObject([{ ...SUCCESS, invalidatedRkey: second }]);
    expect(await statuses(client, 1)).toEqual([WCStatus.success]);
    const third = incRkey(second);
    expect(await bind(server, third)).toBe(WCStatus.success);
    expect(await bind(server, incRkey(third))).toBe(mwBindErr);
    expect((await server.qp.query()).state).toBe(QPState.ERR);
  });

  it('of type 2 serves only the queue pair that bound it [IBV-MW-10]', async () => {
    await using pair = await rocePair(fixture);
    const { server } = pair;
    const beside = await roceSide(fixture.client);
    const { cq, pd } = server;
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });
    await connectTo(qp, await exchanged(beside));
    const { gid } = await exchanged(server);
    await connectTo(beside.qp, { qpNum: qp.qpNum, gid });
    for (const [type, expected] of [
      [MWType.type1, WCStatus.success],
      [MWType.type2, remAccessErr],
    ] as const) {
      const window = await pd.allocMW(type);
      const rkey = incRkey(window.rkey);
      expect(await bind(server, rkey)).toBe(WCStatus.success);
      expect(await through({ client: beside, server }, rkey)).toBe(expected);
    }
    await beside.context.close();
  });

  it.each([
    ['an unknown region', { lkey: 0x1234 }],
    ['a range beyond its region', { offset: 65_500 }],
  ])('is not bound to %s: a bind error [IBV-MW-11, IBV-WC-11]', async (_what, change) => {
    await using pair = await rocePair(fixture);
    await using window = await pair.server.pd.allocMW(MWType.type1);
    expect(await bind(pair.server, incRkey(window.rkey), change)).toBe(mwBindErr);
  });

  it('keeps its region, until it is freed [IBV-MW-12]', async () => {
    await using pair = await rocePair(fixture);
    const { server } = pair;
    const window = await server.pd.allocMW(MWType.type1);
    expect(await bind(server, incRkey(window.rkey))).toBe(WCStatus.success);
    await expect(server.mr.close()).rejects.toEqual(verbsError('EBUSY'));
    await window.close();
    await server.mr.close();
  });
});

describe('a region', () => {
  it.each([
    ['of another protection domain', 'foreign'],
    ['without the right', 'withheld'],
  ])('%s is closed to peers [IBV-MR-01, IBV-MR-02]', async (_what, which) => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    const pd = which === 'foreign' ? await server.context.allocPD() : server.pd;
    const access = which === 'foreign' ? Access.localWrite | Access.remoteWrite : Access.localWrite;
    const mr = await pd.allocMR(64, access);
    client.qp.postSend(write([client.mr.sge(0, 8)], mr));
    expect(await statuses(client, 1)).toEqual([remAccessErr]);
    expect(mr.buffer[0]).toBe(0);
  });

  it('that is deregistered is closed to peers, and its key is not in use again at once [IBV-MR-03]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    const access = Access.localWrite | Access.remoteWrite;
    const mr = await server.pd.allocMR(64, access);
    const target = remote(mr);
    await mr.close();
    const next = await server.pd.allocMR(64, access);
    expect(next.rkey).not.toBe(target.rkey);
    const wr = { opcode: WROpcode.rdmaWrite, flags: signaled, sgList: [client.mr.sge(0, 8)] };
    client.qp.postSend({ ...wr, ...target });
    expect(await statuses(client, 1)).toEqual([remAccessErr]);
  });

  it('of another domain cannot be sent from: a local error, and the rest is flushed [IBV-MR-04, IBV-WC-01]', async () => {
    await using pair = await rocePair(fixture);
    const { client } = pair;
    const foreign = await (await client.context.allocPD()).allocMR(64, Access.localWrite);
    client.qp.postSend([
      { ...send([foreign.sge(0, 8)]), wrId: 1 },
      { ...send([]), wrId: 2 },
    ]);
    const [failed, flushed] = await statuses(client, 2);
    expect([WCStatus.locProtErr, WCStatus.locQpOpErr]).toContain(failed);
    expect(flushed).toBe(wrFlushErr);
  });
});

describe('a shared receive queue', () => {
  /** A queue pair of a type on an SRQ of `holder`, connected to a side. */
  async function member(holder: RoceSide, srq: Awaited<ReturnType<RoceSide['pd']['createSRQ']>>) {
    const { cq, pd } = holder;
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, srq, maxSendWr: 4, maxRecvWr: 0 });
    const peer = await roceSide(fixture.client);
    await connectTo(qp, await exchanged(peer));
    const { gid } = await exchanged(holder);
    await connectTo(peer.qp, { qpNum: qp.qpNum, gid });
    return { qp, peer };
  }

  it('gives its receives to its queue pairs in order, and each completes at its own [IBV-SRQ-01, IBV-SRQ-02]', async () => {
    await using holder = await roceSide(fixture.server);
    const srq = await holder.pd.createSRQ({ maxWr: 8 });
    const ends = [await member(holder, srq), await member(holder, srq)];
    srq.postRecv([1, 2, 3, 4].map((wrId) => ({ wrId, sgList: [holder.mr.sge(0, 64)] })));
    for (const [index, end] of [0, 1, 1, 0].entries()) {
      ends[end]?.peer.qp.postSend(send([]));
      expect(await completions(holder.cq)).toMatchObject([
        { ...SUCCESS, wrId: BigInt(index + 1), qpNum: ends[end]?.qp.qpNum },
      ]);
    }
    for (const { peer } of ends) await peer.context.close();
  });

  it('raises its limit event once when fewer receives are left, and is armed again by its owner [IBV-SRQ-03, IBV-SRQ-04, IBV-SRQ-05]', async () => {
    await using holder = await roceSide(fixture.server);
    const srq = await holder.pd.createSRQ({ maxWr: 8 });
    const { peer } = await member(holder, srq);
    srq.postRecv(Array.from({ length: 8 }, () => ({ sgList: [holder.mr.sge(0, 64)] })));
    await srq.modify({ srqLimit: 7 });
    const limit = event(holder, AsyncEventType.srqLimitReached);
    peer.qp.postSend(send([]));
    await completions(holder.cq);
    // Seven are left, and that is the limit.
    expect((await srq.query()).srqLimit).toBe(7);
    peer.qp.postSend(send([]));
    await completions(holder.cq);
    await limit;
    expect((await srq.query()).srqLimit).toBe(0);
    await srq.modify({ srqLimit: 6 });
    const again = event(holder, AsyncEventType.srqLimitReached);
    peer.qp.postSend(send([]));
    await again;
    await peer.context.close();
  });

  it('keeps its receives when a queue pair fails, which reports that it will take no more [IBV-SRQ-06, IBV-SRQ-07, IBV-AE-05]', async () => {
    await using holder = await roceSide(fixture.server);
    const srq = await holder.pd.createSRQ({ maxWr: 8 });
    const [one, two] = [await member(holder, srq), await member(holder, srq)];
    srq.postRecv({ wrId: 5, sgList: [holder.mr.sge(0, 64)] });
    const last = event(holder, AsyncEventType.qpLastWqeReached);
    await one.qp.modify({ state: QPState.ERR });
    expect(await last).toMatchObject({ qpNum: one.qp.qpNum });
    expect(holder.cq.poll()).toEqual([]);
    two.peer.qp.postSend(send([]));
    expect(await completions(holder.cq)).toMatchObject([{ ...SUCCESS, wrId: 5n }]);
    for (const { peer } of [one, two]) await peer.context.close();
  });

  it('without receives makes senders wait, as a receive queue does [IBV-SRQ-08]', async () => {
    await using holder = await roceSide(fixture.server);
    const srq = await holder.pd.createSRQ({ maxWr: 8 });
    const { peer } = await member(holder, srq);
    peer.qp.postSend(send([]));
    await quiet(10);
    expect(peer.cq.poll()).toEqual([]);
    srq.postRecv({ sgList: [] });
    expect(await statuses(peer, 1)).toEqual([WCStatus.success]);
    await peer.context.close();
  });

  it('replaces the receive queue of its queue pairs, and stays while one uses it [IBV-SRQ-09, IBV-SRQ-10]', async () => {
    await using holder = await roceSide(fixture.server);
    const srq = await holder.pd.createSRQ({ maxWr: 8 });
    const { qp, peer } = await member(holder, srq);
    expect(() => qp.postRecv({ sgList: [] })).toThrow(verbsError('EINVAL', 0));
    await expect(srq.close()).rejects.toEqual(verbsError('EBUSY'));
    await expect(srq.modify({ srqLimit: 9 })).rejects.toEqual(verbsError('EINVAL'));
    await qp.close();
    await srq.close();
    await peer.context.close();
  });
});

describe('a work request', () => {
  it('with inline data may have them overwritten as soon as it is posted [IBV-WC-12]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    server.qp.postRecv({ sgList: [server.mr.sge(0, 64)] });
    const inlineData = Uint8Array.of(1, 2, 3);
    client.qp.postSend({ opcode: WROpcode.send, flags: signaled | SendFlag.inline, inlineData });
    inlineData.fill(9);
    await completions(server.cq);
    expect([...server.mr.buffer.subarray(0, 3)]).toEqual([1, 2, 3]);
  });
});

describe('completions', () => {
  it('of a queue pair keep their queue from being destroyed [IBV-CQ-06]', async () => {
    await using pair = await rocePair(fixture);
    await expect(pair.server.cq.close()).rejects.toEqual(verbsError('EBUSY'));
  });

  it('of a queue come in the order of its requests; unsignalled requests have none [IBV-WC-02, IBV-WC-03, IBV-WC-04]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    for (let wrId = 0; wrId < 8; wrId += 1) server.qp.postRecv({ wrId, sgList: [] });
    const requests = [true, false, true, false, false, true].map((isSignaled, wrId) => ({
      opcode: WROpcode.send,
      wrId,
      flags: isSignaled ? signaled : 0,
    }));
    client.qp.postSend(requests);
    const found = await completions(client.cq, 3);
    expect(found.map(({ wrId }) => wrId)).toEqual([0n, 2n, 5n]);
    expect(found[0]).toMatchObject({ opcode: WCOpcode.send, qpNum: client.qp.qpNum });
    const received = await completions(server.cq, 6);
    expect(received.map(({ wrId }) => wrId)).toEqual([0n, 1n, 2n, 3n, 4n, 5n]);
    expect(client.cq.poll()).toEqual([]);
  });

  it('in error come for unsignalled requests, too, with number and queue pair [IBV-WC-05, IBV-ERR-07]', async () => {
    const client = { destQpNum: 0x1234, retryCnt: 0, timeout: 8 };
    await using pair = await rocePair(fixture, QPType.rc, { client });
    const { qp } = pair.client;
    qp.postSend([1, 2, 3].map((wrId) => ({ opcode: WROpcode.send, wrId })));
    const found = await completions(pair.client.cq, 3);
    expect(found.map(({ wrId, status, qpNum }) => [wrId, status, qpNum])).toEqual([
      [1n, WCStatus.retryExcErr, qp.qpNum],
      [2n, wrFlushErr, qp.qpNum],
      [3n, wrFlushErr, qp.qpNum],
    ]);
  });

  it('of a receive have the length and the immediate data of the message [IBV-WC-06, IBV-WC-07]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    server.qp.postRecv([{ sgList: [server.mr.sge(0, 64)] }, { sgList: [] }]);
    client.qp.postSend({
      ...send([client.mr.sge(0, 10)]),
      opcode: WROpcode.sendWithImm,
      immData: 5,
    });
    expect(await completions(server.cq)).toMatchObject([
      { ...SUCCESS, opcode: WCOpcode.recv, byteLen: 10, immData: 5n },
    ]);
    client.qp.postSend({
      ...{ opcode: WROpcode.rdmaWriteWithImm, flags: signaled, immData: 6 },
      ...{ sgList: [client.mr.sge(0, 20)], ...remote(server.mr, 128) },
    });
    // The receive that the Write takes has no room, and needs none.
    expect(await completions(server.cq)).toMatchObject([
      { ...SUCCESS, opcode: WCOpcode.recvImmediate, byteLen: 20, immData: 6n },
    ]);
  });

  it('that find their queue full are lost, which is reported, and fail the receiver [IBV-CQ-01, IBV-CQ-02]', async () => {
    await using pair = await rocePair(fixture, QPType.rc, { client: { retryCnt: 1, timeout: 8 } });
    const { server, client } = pair;
    const cq = await server.context.createCQ({ cqe: 1 });
    const { pd } = server;
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 16 });
    const peer = await roceSide(fixture.client);
    await connectTo(qp, await exchanged(peer));
    const { gid } = await exchanged(server);
    await connectTo(peer.qp, { qpNum: qp.qpNum, gid });
    const lost = event(server, AsyncEventType.cqErr);
    for (let wrId = 0; wrId < 16; wrId += 1) qp.postRecv({ wrId, sgList: [] });
    peer.qp.postSend(Array.from({ length: 16 }, () => ({ opcode: WROpcode.send })));
    await lost;
    expect((await qp.query()).state).toBe(QPState.ERR);
    expect(client.cq.poll()).toEqual([]);
    await peer.context.close();
  });

  it('raise one event for each arming: for the next one, or for the next that is solicited or fails [IBV-CQ-03, IBV-CQ-04, IBV-CQ-05, IBV-CQ-08]', async () => {
    await using pair = await rocePair(fixture);
    const { server, client } = pair;
    const channel = await server.context.createCompChannel();
    const cq = await server.context.createCQ({ cqe: 16, channel });
    const { pd } = server;
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 8 });
    const peer = await roceSide(fixture.client);
    await connectTo(qp, await exchanged(peer));
    const { gid } = await exchanged(server);
    await connectTo(peer.qp, { qpNum: qp.qpNum, gid });
    for (let wrId = 0; wrId < 8; wrId += 1) qp.postRecv({ wrId, sgList: [] });
    let fired = 0;
    const watching = (async () => {
      for (;;) {
        await channel.nextEvent();
        fired += 1;
      }
    })().catch(() => undefined);
    const say = async (flags = 0): Promise<void> => {
      peer.qp.postSend({ opcode: WROpcode.send, flags: signaled | flags });
      await completions(peer.cq);
      await completions(cq);
    };
    await say();
    cq.requestNotify(false);
    await say();
    await until('the event', () => fired > 0);
    await say();
    cq.requestNotify(true);
    await say();
    await quiet(10);
    expect(fired).toBe(1);
    await say(SendFlag.solicited);
    await until('the event', () => fired > 1);
    expect(fired).toBe(2);
    cq.requestNotify(true);
    await qp.modify({ state: QPState.ERR });
    await until('the event of a flush', () => fired > 2);
    await peer.context.close();
    await qp.close();
    await cq.close();
    await channel.close();
    await watching;
    expect(client.cq.poll()).toEqual([]);
  });
});
