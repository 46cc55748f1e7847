/** Two real hosts over loopback with failing memory: no work with lost data succeeds. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  Access,
  AsyncEventType,
  CMEventType,
  MWType,
  QPState,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { MW } from '#daemon/rnic/memory/memory-window';
import { incRkey } from '#verbs-api/client/memory-window';
import { until } from '../support/patience.ts';
import {
  type Channel,
  type ConnectedPair,
  connectPair,
  NO_WISHES,
  RnicNode,
} from '../support/rnic-node.ts';
import { KeepingBacking, SlowBacking } from '../support/test-memory.ts';

const { locProtErr, success, wrFlushErr } = WCStatus;
const LENGTH_BYTES = 4096;
const REGION_ADDRESS = 0x70_0000;

let near: RnicNode;
let far: RnicNode;
let pair: ConnectedPair;

beforeEach(async () => {
  near = new RnicNode();
  far = new RnicNode();
  pair = await connectPair(near, far);
});

afterEach(() => Promise.all([near, far].map(({ host }) => host.close())));

/** Registers memory for a channel, in addition to its buffer. */
function register(node: RnicNode, channel: Channel, backing: MemoryBacking): MR {
  return node.device().nic.regMR(channel.qp.pd, {
    backing,
    backingOffset: 0,
    lengthBytes: LENGTH_BYTES,
    address: REGION_ADDRESS,
    iova: REGION_ADDRESS,
    access: Access.localWrite | Access.remoteWrite | Access.remoteRead,
    key: undefined,
  });
}

/** Puts a Read of the peer's buffer into a queue, without a doorbell. */
function enqueueRead(into: MR, wrId: number): void {
  const { active, passive } = pair;
  active.enqueueSend({
    wrId,
    opcode: WROpcode.rdmaRead,
    sgList: [{ addr: into.address, length: 100, lkey: into.lkey }],
    remoteAddr: passive.address(),
    rkey: passive.mr.rkey,
  });
}

/** A Write into the peer's region and a Send after it, with one doorbell. */
function writeAndSend(to: MR): void {
  const { active } = pair;
  const sgList = [{ addr: active.address(), length: 100, lkey: active.mr.lkey }];
  active.enqueueSend({ opcode: WROpcode.rdmaWrite, sgList, remoteAddr: to.iova, rkey: to.rkey });
  active.enqueueSend({ opcode: WROpcode.send, sgList });
  near.host.doorbell(active.qp);
}

async function expectEnd(): Promise<void> {
  await until('the end of the near QP', () => pair.active.qp.state === QPState.ERR);
  await until('the end of the far QP', () => pair.passive.qp.state === QPState.ERR);
  expect((await near.event(pair.activeId)).type).toBe(CMEventType.disconnected);
}

describe('memory that disappears while it receives several segments in one transfer', () => {
  it('fails the Read whose data it lost, and flushes later work [RDMAP-5.2.2-04, RDMAP-5.5-05]', async () => {
    const memory = new KeepingBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(near, pair.active, memory);
    memory.gone = true;
    enqueueRead(region, 1);
    enqueueRead(region, 2);
    near.host.doorbell(pair.active.qp);
    expect(await pair.active.completions(2)).toMatchObject([
      { wrId: 1n, status: locProtErr, byteLen: 0 },
      { wrId: 2n, status: wrFlushErr },
    ]);
    await expectEnd();
    expect(near.asyncEvents).toMatchObject([{ event: AsyncEventType.qpFatal }]);
  });

  it('completes a Read when its data are in place, with everything that waited for it [RDMAP-5.2.2-04]', async () => {
    const memory = new KeepingBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(near, pair.active, memory);
    pair.passive.buffer.fill(7, 0, 100);
    for (let wrId = 1; wrId <= 8; wrId += 1) enqueueRead(region, wrId);
    near.host.doorbell(pair.active.qp);
    const completed = await pair.active.completions(8);
    expect(completed.map(({ wrId }) => Number(wrId))).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(completed.every(({ status }) => status === success)).toBe(true);
    expect(memory.kept).toEqual([]);
  });

  it('fails a Send that follows a lost Write [RDMAP-5.5-04]', async () => {
    const memory = new KeepingBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(far, pair.passive, memory);
    memory.gone = true;
    pair.passive.receive(0, 200);
    writeAndSend(region);
    expect(await pair.passive.completions(1)).toMatchObject([{ status: wrFlushErr, byteLen: 0 }]);
    await expectEnd();
    expect(far.asyncEvents).toMatchObject([{ event: AsyncEventType.qpFatal }]);
  });

  it('fails that Send, too, if intact memory follows the lost memory [RDMAP-5.5-04]', async () => {
    const memory = new KeepingBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(far, pair.passive, memory);
    const other = register(far, pair.passive, new KeepingBacking(new Uint8Array(LENGTH_BYTES)));
    memory.gone = true;
    pair.passive.receive(0, 200);
    const { active } = pair;
    const sgList = [{ addr: active.address(), length: 100, lkey: active.mr.lkey }];
    const write = { opcode: WROpcode.rdmaWrite, sgList, remoteAddr: region.iova };
    active.enqueueSend({ ...write, rkey: region.rkey });
    writeAndSend(other);
    expect(await pair.passive.completions(1)).toMatchObject([{ status: wrFlushErr }]);
    await expectEnd();
  });
});

describe('memory whose slow writes are lost', () => {
  it('fails the receive that it lost [DDP-5.3-07]', async () => {
    const memory = new SlowBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(far, pair.passive, memory);
    const { active, passive } = pair;
    passive.postReceive([{ addr: REGION_ADDRESS, length: 200, lkey: region.lkey }]);
    active.send(0, 100);
    await until('the Send', () => memory.pendingWrites > 0);
    expect(passive.poll()).toEqual([]);
    memory.lose();
    far.host.drain();
    expect(await passive.completions(1)).toMatchObject([{ status: locProtErr, byteLen: 0 }]);
    await expectEnd();
  });

  it('fails the Read that it lost, and flushes later work [RDMAP-5.5-05]', async () => {
    const memory = new SlowBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(near, pair.active, memory);
    enqueueRead(region, 1);
    near.host.doorbell(pair.active.qp);
    await until('the Read Response', () => memory.pendingWrites > 0);
    pair.active.send(0, 10);
    expect(pair.active.poll()).toEqual([]);
    memory.lose();
    near.host.drain();
    expect(await pair.active.completions(2)).toMatchObject([
      { wrId: 1n, status: locProtErr },
      { status: wrFlushErr },
    ]);
    await expectEnd();
  });

  it('fails a Send that follows a lost Write [RDMAP-5.5-04]', async () => {
    const memory = new SlowBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(far, pair.passive, memory);
    pair.passive.receive(0, 200);
    writeAndSend(region);
    await until('the Write', () => memory.pendingWrites > 0);
    memory.lose();
    far.host.drain();
    const [completed] = await pair.passive.completions(1);
    expect(completed?.status).not.toBe(success);
    await expectEnd();
  });
});

describe('a mapped buffer that is taken away', () => {
  it('fails the Read whose data it lost [RDMAP-5.5-05]', async () => {
    const { active, passive } = pair;
    const lost = near.channel();
    const region = near.device().nic.regMR(active.qp.pd, {
      backing: lost.mr.backing,
      backingOffset: 0,
      lengthBytes: LENGTH_BYTES,
      address: REGION_ADDRESS,
      iova: REGION_ADDRESS,
      access: Access.localWrite,
      key: undefined,
    });
    structuredClone(lost.buffer, { transfer: [lost.buffer.buffer as ArrayBuffer] });
    enqueueRead(region, 1);
    near.host.doorbell(active.qp);
    expect(await active.completions(1)).toMatchObject([{ wrId: 1n, status: locProtErr }]);
    await expectEnd();
    expect(passive.qp.state).toBe(QPState.ERR);
  });

  it('fails a Read if its sink is deregistered meanwhile [RDMAP-5.2.2-07]', async () => {
    const { active } = pair;
    const memory = new KeepingBacking(new Uint8Array(LENGTH_BYTES));
    const region = register(near, active, memory);
    enqueueRead(region, 1);
    near.host.doorbell(active.qp);
    region.close();
    expect(await active.completions(1)).toMatchObject([{ wrId: 1n, status: locProtErr }]);
    await expectEnd();
  });
});

describe('a type 2 window when its QP leaves the stream', () => {
  /** A window onto the far buffer, bound through the far QP. */
  async function bindWindow(): Promise<MW> {
    const { passive } = pair;
    const nic = far.device().nic;
    const access = Access.localWrite | Access.remoteWrite | Access.mwBind;
    const region = nic.regMR(passive.qp.pd, {
      backing: new ViewBacking(passive.buffer),
      backingOffset: 0,
      lengthBytes: LENGTH_BYTES,
      address: REGION_ADDRESS,
      iova: REGION_ADDRESS,
      access,
      key: undefined,
    });
    const mw = nic.allocMW(passive.qp.pd, MWType.type2);
    const bind = { lkey: region.lkey, addr: REGION_ADDRESS, length: LENGTH_BYTES };
    passive.postSend({
      opcode: WROpcode.bindMW,
      bind: { ...bind, access: Access.remoteWrite, rkey: incRkey(mw.rkey) },
    });
    expect(await passive.completions(1)).toMatchObject([{ status: success }]);
    expect(mw.bound).toBe(true);
    return mw;
  }

  function writeThrough(stag: number, from: Channel): void {
    from.buffer.fill(0xee, 0, 100);
    const sgList = [{ addr: from.address(), length: 100, lkey: from.mr.lkey }];
    const target = { remoteAddr: REGION_ADDRESS, rkey: stag };
    from.postSend({ opcode: WROpcode.rdmaWrite, sgList, ...target });
  }

  /** Connects a new channel of the near host to the far QP, which is idle. */
  async function connectAgain(): Promise<Channel> {
    const { passive } = pair;
    const listener = far.listen();
    const active = near.channel();
    const id = await near.connect(active, listener.at);
    const request = await far.event(listener.id);
    far.host.cm.accept(request.id, passive.qp, NO_WISHES);
    expect((await near.event(id)).type).toBe(CMEventType.established);
    await until('the second connection', () => passive.qp.state === QPState.RTS);
    return active;
  }

  it('gives the next peer no access after a reset [SEC-6.1.1-03, RDMAP-8.1.1-01]', async () => {
    const mw = await bindWindow();
    const { qp, buffer } = pair.passive;
    qp.modify(QPState.RESET, far.host.now());
    far.host.drain();
    const active = await connectAgain();
    const stag = mw.rkey;
    writeThrough(stag, active);
    await until('the Terminate', () => qp.state !== QPState.RTS);
    expect(buffer.subarray(0, 100).every((byte) => byte === 0)).toBe(true);
    expect(far.asyncEvents).toMatchObject([{ event: AsyncEventType.qpAccessErr }]);
    mw.close();
  });

  it.each([
    ['a reset', QPState.RESET],
    ['an error', QPState.ERR],
  ])('is free after %s: it can be freed, as can its region', async (_, state) => {
    const mw = await bindWindow();
    pair.passive.qp.modify(state, far.host.now());
    expect(mw.bound).toBe(false);
    mw.close();
    far.host.drain();
  });

  it('is free when the peer ends the stream', async () => {
    const mw = await bindWindow();
    pair.active.qp.close(near.host.now());
    near.host.drain();
    await until('the end', () => pair.passive.qp.state === QPState.ERR);
    expect(mw.bound).toBe(false);
  });
});

describe('a receive that names more memory than it may use', () => {
  const lkeyOf = () => pair.passive.mr.lkey;

  it('takes the bytes that fit its region, as siw does', async () => {
    const { active, passive } = pair;
    active.buffer.fill(5, 0, 300);
    const end = passive.buffer.length;
    passive.postReceive([
      { addr: passive.address(end - 300), length: 5000, lkey: lkeyOf() },
      { addr: 0, length: 64, lkey: 0 },
    ]);
    active.send(0, 300);
    expect(await passive.completions(1)).toMatchObject([{ status: success, byteLen: 300 }]);
    expect(passive.buffer.subarray(end - 300).every((byte) => byte === 5)).toBe(true);
  });

  it('fails on a message that does not fit and reports why', async () => {
    const { active, passive } = pair;
    passive.postReceive([{ addr: passive.address(), length: 100, lkey: 0 }]);
    active.send(0, 50);
    expect(await passive.completions(1)).toMatchObject([{ status: locProtErr }]);
    await expectEnd();
    expect(far.asyncEvents[0]?.text).toContain('names memory that its queue pair may not use');
  });
});
