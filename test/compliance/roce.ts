import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AsyncEvent } from '#contract/verbs/completion';
import {
  Access,
  AsyncEventType,
  MTU,
  MWType,
  QPState,
  QPType,
  SendFlag,
  WCFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import { GRH_BYTES, parseGrh } from '#contract/verbs/gid';
import type { QP } from '#contract/verbs/provider';
import type { SendWR } from '#contract/verbs/work-request';
import { connect, incRkey, listen } from '#verbs-api/index';
import { quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import {
  completions,
  DEVICE,
  patience,
  read,
  remote,
  type StartedFixture,
  SUCCESS,
  sameBytes,
  send,
  verbsError,
  write,
} from '../support/provider-fixture.ts';
import {
  connectTo,
  exchanged,
  ROCE_DEVICE,
  type RoceFixture,
  type RoceSide,
  readyForDatagrams,
  rocePair,
  rocePairOfTest,
  roceSide,
  SGID_INDEX,
  SGID_INDEX_IPV6,
} from '../support/roce-fixture.ts';
import { serviceCases } from './roce-services.ts';

const LINK_LOCAL_INDEX = 0;
const GROUP = '0000:0000:0000:0000:0000:ffff:e000:0105';
const MULTICAST_QPN = 0xff_ffff;
const signaled = SendFlag.signaled;

/** For programs that connect queue pairs themselves, on every provider with a RoCE device. */
export function roceSuite(name: string, fixture: RoceFixture): void {
  let started: StartedFixture;
  beforeAll(async () => {
    started = await fixture.start();
  });
  afterAll(() => started.stop());
  const get = (): StartedFixture => started;
  describe(`${name}: RoCE attributes`, () => attributeCases(get));
  describe(`${name}: RoCE, reliable`, () => reliableCases(get));
  describe(`${name}: RoCE, failures`, () => failureCases(get));
  describe(`${name}: RoCE, unreliable`, () => unreliableCases(get));
  describe(`${name}: RoCE datagrams`, () => datagramCases(get));
  describe(`${name}: services of datagrams`, () => serviceCases(get));
}

function attributeCases(fixture: () => StartedFixture): void {
  it('lists its transport and its GID table [IBV-GID-01, IBV-GID-05, IBV-GID-06]', async () => {
    const { server } = fixture();
    const devices = await server.devices();
    expect(devices.map(({ name, transport }) => [name, transport])).toEqual([
      [DEVICE.name, 'iwarp'],
      [ROCE_DEVICE.name, 'roce'],
    ]);
    await using context = await server.open(ROCE_DEVICE.name);
    const table = await context.queryGidTable();
    expect(table.map(({ gidIndex }) => gidIndex)).toEqual([0, 1, 2]);
    const [linkLocal, ipv4, ipv6] = table;
    expect(linkLocal?.gid).toMatch(/^fe80:0000:0000:0000:/);
    expect(ipv4).toEqual({
      gid: '0000:0000:0000:0000:0000:ffff:7f00:0001',
      gidIndex: SGID_INDEX,
      portNum: 1,
      gidType: 'rocev2',
    });
    expect(ipv6?.gid).toBe('0000:0000:0000:0000:0000:0000:0000:0001');
  });

  it('goes from RESET to RTS, and a query shows the whole queue pair [IBV-ATTR-15, IBV-QP-08, IBV-QP-15]', async () => {
    await using server = await roceSide(fixture().server);
    await using client = await roceSide(fixture().client);
    expect(await server.qp.query()).toMatchObject({
      qpNum: server.qp.qpNum,
      type: QPType.rc,
      state: QPState.RESET,
      accessFlags: 0,
    });
    const peer = await exchanged(client);
    await connectTo(server.qp, peer);
    const { ahAttr, ...shown } = await server.qp.query();
    expect(shown).toMatchObject({
      qpNum: server.qp.qpNum,
      type: QPType.rc,
      state: QPState.RTS,
      sqDraining: false,
      accessFlags: 15,
      pkeyIndex: 0,
      portNum: 1,
      pathMtu: MTU.mtu1024,
      destQpNum: client.qp.qpNum,
      rqPsn: 0xff_fffe,
      sqPsn: 0xff_fffe,
      timeout: 12,
      retryCnt: 7,
      rnrRetry: 7,
      minRnrTimer: 1,
      maxRdAtomic: 4,
      maxDestRdAtomic: 4,
      capabilities: server.qp.capabilities,
    });
    expect(ahAttr).toEqual({
      grh: { dgid: peer.gid, sgidIndex: 1, flowLabel: 0, hopLimit: 64, trafficClass: 0 },
      sl: 0,
      portNum: 1,
    });
    await server.qp.modify({ state: QPState.RTS, accessFlags: Access.remoteRead });
    expect((await server.qp.query()).accessFlags).toBe(Access.remoteRead);
    await server.qp.modify({ state: QPState.RESET });
    expect(await server.qp.query()).toMatchObject({ state: QPState.RESET, destQpNum: 0 });
  });

  it('names the missing or invalid attribute of a step, and changes nothing [IBV-ATTR-11, IBV-ATTR-17, IBV-GID-04, IBV-QP-07]', async () => {
    await using side = await roceSide(fixture().client);
    const { qp } = side;
    const { gid } = await exchanged(side);
    const init = { state: QPState.INIT, pkeyIndex: 0, portNum: 1, accessFlags: 0 };
    const grh = { dgid: gid, sgidIndex: SGID_INDEX };
    const rtr = {
      state: QPState.RTR,
      ahAttr: { grh },
      pathMtu: MTU.mtu1024,
      destQpNum: 1,
      rqPsn: 0,
      maxDestRdAtomic: 1,
      minRnrTimer: 12,
    };
    const refusals: string[] = [];
    const refused = async (change: Parameters<QP['modify']>[0]) => {
      const error: unknown = await qp.modify(change).then(
        () => 'accepted',
        (failure: unknown) => failure,
      );
      expect(error).toEqual(verbsError('EINVAL'));
      refusals.push((error as Error).message);
    };
    const { accessFlags: _access, ...initWithout } = init;
    await refused(initWithout);
    await refused({ ...init, destQpNum: 1 });
    await refused({ ...init, state: QPState.RTS });
    await refused({ ...init, portNum: 2 });
    await refused({ ...init, accessFlags: (2 ** 40) as Access });
    expect((await qp.query()).state).toBe(QPState.RESET);
    await qp.modify(init);
    const { destQpNum: _destination, ahAttr: _vector, ...rtrWithout } = rtr;
    await refused(rtrWithout);
    await refused({ ...rtr, rqPsn: 2 ** 24 });
    await refused({ ...rtr, ahAttr: { grh: { ...grh, dgid: 'no GID' } } });
    await refused({ ...rtr, ahAttr: { grh: { ...grh, sgidIndex: SGID_INDEX_IPV6 } } });
    await refused({ ...rtr, curState: QPState.RTR });
    expect((await qp.query()).state).toBe(QPState.INIT);
    await qp.modify(rtr);
    await refused({ state: QPState.RTS, sqPsn: 0 });
    expect(refusals).toEqual([
      'RESET to INIT needs accessFlags',
      'RESET to INIT takes no destQpNum',
      'no transition leads from RESET to RTS: the order is RESET, INIT, RTR, RTS',
      'portNum must be 1, not 2',
      `accessFlags must be 0 to 63, not ${2 ** 40}`,
      'INIT to RTR needs ahAttr, destQpNum',
      'rqPsn must be 0 to 16777215, not 16777216',
      'modify: attributes.ahAttr.grh.dgid must be a GID, eight groups of hex digits with colons in between, ' +
        "as addressGid makes of an IP address, not the string 'no GID'",
      `sgidIndex ${SGID_INDEX_IPV6} is an IPv6 GID and dgid is not: choose another sgidIndex`,
      'INIT to RTR takes no curState',
      'RTR to RTS needs timeout, retryCnt, rnrRetry, maxRdAtomic',
    ]);
  });

  it('refuses an empty entry of the GID table, and a GID that no port has [IBV-AH-03, IBV-GID-07]', async () => {
    await using side = await roceSide(fixture().client, QPType.ud);
    const { gid } = await exchanged(side);
    const handle = (dgid: string, sgidIndex: number) =>
      side.pd.createAH({ grh: { dgid, sgidIndex } });
    await expect(handle(gid, 7)).rejects.toEqual(verbsError('ENODATA'));
    // A link-local GID that no host has.
    const absent = 'fe80:0000:0000:0000:dead:beef:dead:beef';
    await expect(handle(absent, LINK_LOCAL_INDEX)).rejects.toEqual(verbsError('ETIMEDOUT'));
    await expect(handle(gid, -1)).rejects.toEqual(verbsError('EINVAL'));
  });

  it('leaves connection ids to the iWARP devices', async () => {
    const { server } = fixture();
    await using listener = await listen(server, { host: '127.0.0.1' });
    await using side = await roceSide(server);
    const { port } = listener.address;
    await expect(connect(server, { host: '127.0.0.1', port, pd: side.pd })).rejects.toThrow(
      'the protection domain belongs to another device than the id',
    );
    await using id = await server.createId();
    await id.resolveAddr({ address: '127.0.0.1', port });
    expect(id.device).toBe(DEVICE.name);
    await expect(id.connect({ qp: side.qp })).rejects.toEqual(verbsError('EINVAL'));
  });

  it('does not exist on an iWARP device', async () => {
    await using context = await fixture().server.open(DEVICE.name);
    const pd = await context.allocPD();
    const cq = await context.createCQ({ cqe: 16 });
    const init = { sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 };
    const qp = await pd.createQP(init);
    const lacking = verbsError('EOPNOTSUPP');
    const grh = { dgid: GROUP, sgidIndex: 0 };
    await expect(context.queryGidTable()).rejects.toEqual(lacking);
    await expect(pd.createAH({ grh })).rejects.toEqual(lacking);
    await expect(pd.createQP({ ...init, type: QPType.ud })).rejects.toEqual(lacking);
    await expect(qp.modify({ state: QPState.INIT, portNum: 1 })).rejects.toEqual(lacking);
    await expect(qp.modify({})).rejects.toEqual(lacking);
    await expect(qp.attachMcast(GROUP)).rejects.toEqual(lacking);
    expect(() => qp.postSend({ opcode: WROpcode.sendWithImm, immData: 1 })).toThrow(
      'an iWARP device does not support this operation',
    );
    expect(await qp.query()).toMatchObject({ state: QPState.RESET, qpNum: qp.qpNum });
    expect((await qp.query()).ahAttr).toBeUndefined();
  });
}

function reliableCases(fixture: () => StartedFixture): void {
  it('sends, writes and reads, also over several packets [IBV-WC-04]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    const bytes = pattern(10_000);
    client.mr.buffer.set(bytes);
    server.qp.postRecv({ wrId: 7, sgList: [server.mr.sge(0, 10_000)] });
    client.qp.postSend(send([client.mr.sge(0, 10_000)], 8));
    expect(await completions(server.cq)).toMatchObject([
      { ...SUCCESS, wrId: 7n, opcode: WCOpcode.recv, byteLen: 10_000, wcFlags: 0, srcQp: 0 },
    ]);
    expect(await completions(client.cq)).toMatchObject([
      { ...SUCCESS, wrId: 8n, opcode: WCOpcode.send, qpNum: client.qp.qpNum },
    ]);
    expect(sameBytes(server.mr.buffer.subarray(0, 10_000), bytes)).toBe(true);

    client.qp.postSend(write([client.mr.sge(0, 10_000)], server.mr, 20_000));
    expect(await completions(client.cq)).toMatchObject([{ ...SUCCESS, byteLen: 10_000 }]);
    expect(sameBytes(server.mr.buffer.subarray(20_000, 30_000), bytes)).toBe(true);

    client.qp.postSend(read([client.mr.sge(40_000, 10_000)], server.mr, 20_000));
    expect(await completions(client.cq)).toMatchObject([
      { ...SUCCESS, opcode: WCOpcode.rdmaRead, byteLen: 10_000 },
    ]);
    expect(sameBytes(client.mr.buffer.subarray(40_000, 50_000), bytes)).toBe(true);
  });

  it('delivers inline and scattered payload [IBV-POST-02]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    const bytes = pattern(64);
    client.mr.buffer.set(bytes.subarray(0, 32), 100);
    client.mr.buffer.set(bytes.subarray(32), 300);
    server.qp.postRecv([{ sgList: [server.mr.sge(0, 64)] }, { sgList: [server.mr.sge(64, 64)] }]);
    client.qp.postSend([
      { opcode: WROpcode.send, inlineData: bytes },
      send([client.mr.sge(100, 32), client.mr.sge(300, 32)]),
    ]);
    await completions(server.cq, 2);
    expect(sameBytes(server.mr.buffer.subarray(0, 64), bytes)).toBe(true);
    expect(sameBytes(server.mr.buffer.subarray(64, 128), bytes)).toBe(true);
  });

  it('executes atomics [ROCE-ATOM-01, ROCE-ATOM-04]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    const word = new DataView(server.mr.buffer.buffer, server.mr.buffer.byteOffset);
    const result = new DataView(client.mr.buffer.buffer, client.mr.buffer.byteOffset);
    word.setBigUint64(0, 40n, true);
    const target = { ...remote(server.mr), sgList: [client.mr.sge(0, 8)], flags: signaled };
    client.qp.postSend({ opcode: WROpcode.atomicFetchAndAdd, ...target, compareAdd: 2 });
    expect(await completions(client.cq)).toMatchObject([{ ...SUCCESS, opcode: WCOpcode.fetchAdd }]);
    expect(result.getBigUint64(0, true)).toBe(40n);
    client.qp.postSend({
      opcode: WROpcode.atomicCmpAndSwap,
      ...target,
      compareAdd: 42,
      swap: 2n ** 64n - 1n,
    });
    expect(await completions(client.cq)).toMatchObject([{ ...SUCCESS, opcode: WCOpcode.compSwap }]);
    expect(result.getBigUint64(0, true)).toBe(42n);
    expect(word.getBigUint64(0, true)).toBe(2n ** 64n - 1n);
  });

  it('carries immediate data of 32 bits with Sends and Writes [IBV-WC-07, IBV-POST-01]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    client.mr.buffer.set(pattern(100));
    const sgList = [client.mr.sge(0, 100)];
    server.qp.postRecv([{ sgList: [server.mr.sge(0, 100)] }, { sgList: [] }]);
    client.qp.postSend([
      { opcode: WROpcode.sendWithImm, sgList, immData: 0x8000_0001 },
      {
        opcode: WROpcode.rdmaWriteWithImm,
        flags: signaled,
        sgList,
        ...remote(server.mr, 200),
        immData: 0xffff_ffffn,
      },
    ]);
    const [sent, written] = await completions(server.cq, 2);
    expect(sent).toMatchObject({
      ...SUCCESS,
      opcode: WCOpcode.recv,
      byteLen: 100,
      wcFlags: WCFlag.withImm,
      immData: 0x8000_0001n,
    });
    expect(written).toMatchObject({
      ...SUCCESS,
      opcode: WCOpcode.recvImmediate,
      wcFlags: WCFlag.withImm,
      immData: 0xffff_ffffn,
    });
    expect(await completions(client.cq)).toMatchObject([SUCCESS]);
    expect(sameBytes(server.mr.buffer.subarray(200, 300), pattern(100))).toBe(true);
    const tooLong: SendWR = { opcode: WROpcode.sendWithImm, immData: 2 ** 32 };
    expect(() => client.qp.postSend(tooLong)).toThrow(
      `request 0 (sendWithImm): immData is ${2 ** 32}, not an unsigned 32-bit number`,
    );
    expect(() => client.qp.postSend({ opcode: WROpcode.immediate, immData: 1 })).toThrow(
      'request 0 (immediate): a RoCE device does not support this operation',
    );
  });

  it('opens memory with windows of both types, and a Send closes one [IBV-MW-09, IBV-WC-08]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    client.mr.buffer.set(pattern(64));
    const range = { lkey: server.mr.lkey, addr: server.mr.address, length: 64 };
    const bind = { ...range, access: Access.remoteWrite };
    for (const type of [MWType.type1, MWType.type2]) {
      await using window = await server.pd.allocMW(type);
      const rkey = incRkey(window.rkey);
      server.qp.postSend({ opcode: WROpcode.bindMW, flags: signaled, bind: { ...bind, rkey } });
      expect(await completions(server.cq)).toMatchObject([{ ...SUCCESS, opcode: WCOpcode.bindMW }]);
      const target = { remoteAddr: server.mr.address, rkey };
      const sgList = [client.mr.sge(0, 64)];
      client.qp.postSend({ opcode: WROpcode.rdmaWrite, flags: signaled, sgList, ...target });
      expect(await completions(client.cq)).toMatchObject([SUCCESS]);
      if (type === MWType.type1) continue;
      server.qp.postRecv({ sgList: [] });
      client.qp.postSend({ opcode: WROpcode.sendWithInv, invalidateRkey: rkey });
      expect(await completions(server.cq)).toMatchObject([
        { ...SUCCESS, wcFlags: WCFlag.withInv, invalidatedRkey: rkey },
      ]);
      client.qp.postSend({ opcode: WROpcode.rdmaWrite, flags: signaled, sgList, ...target });
      expect(await completions(client.cq)).toMatchObject([{ status: WCStatus.remAccessErr }]);
    }
  });

  it('notifies of solicited messages only, on request [IBV-CQ-04]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    const channel = await server.context.createCompChannel();
    const cq = await server.context.createCQ({ cqe: 16, channel });
    const other = await server.pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });
    await using peer = await roceSide(fixture().client);
    await connectTo(other, await exchanged(peer));
    const { gid } = await exchanged(client);
    await connectTo(peer.qp, { qpNum: other.qpNum, gid });
    other.postRecv([{ sgList: [] }, { sgList: [] }]);
    cq.requestNotify(true);
    peer.qp.postSend({ opcode: WROpcode.send, flags: signaled });
    await completions(peer.cq);
    peer.qp.postSend({ opcode: WROpcode.send, flags: signaled | SendFlag.solicited });
    expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
    expect(cq.poll()).toHaveLength(2);
  });

  it('finishes the started requests in SQD, and continues in RTS [IBV-QP-18, IBV-QP-23]', async () => {
    const { server, client } = await rocePairOfTest(fixture());
    server.qp.postRecv([{ sgList: [] }, { sgList: [] }]);
    client.qp.postSend({ opcode: WROpcode.send, flags: signaled });
    expect(await completions(client.cq)).toMatchObject([SUCCESS]);
    await client.qp.modify({ state: QPState.SQD });
    for await (const event of client.context.asyncEvents()) {
      expect(event).toMatchObject({ type: AsyncEventType.sqDrained, qpNum: client.qp.qpNum });
      break;
    }
    client.qp.postSend({ opcode: WROpcode.send, flags: signaled });
    expect((await client.qp.query()).state).toBe(QPState.SQD);
    expect(client.cq.poll()).toEqual([]);
    await client.qp.modify({ state: QPState.RTS });
    expect(await completions(client.cq)).toMatchObject([SUCCESS]);
  });

  it('receives from a shared receive queue [IBV-SRQ-02]', async () => {
    await using holder = await roceSide(fixture().server);
    const srq = await holder.pd.createSRQ({ maxWr: 8 });
    const { cq, pd } = holder;
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, srq, maxSendWr: 4, maxRecvWr: 0 });
    await using client = await roceSide(fixture().client);
    await connectTo(qp, await exchanged(client));
    const { gid } = await exchanged(holder);
    await connectTo(client.qp, { qpNum: qp.qpNum, gid });
    srq.postRecv({ wrId: 5, sgList: [holder.mr.sge(0, 64)] });
    client.qp.postSend({ opcode: WROpcode.send, inlineData: pattern(64) });
    expect(await completions(cq)).toMatchObject([{ ...SUCCESS, wrId: 5n, qpNum: qp.qpNum }]);
  });
}

/** The next asynchronous event but that of the first message. */
async function nextFailure({ context }: RoceSide): Promise<AsyncEvent | undefined> {
  for await (const event of context.asyncEvents()) {
    if (event.type !== AsyncEventType.commEst) return event;
  }
  return undefined;
}

function failureCases(fixture: () => StartedFixture): void {
  const outcome = async (side: RoceSide, wr: SendWR): Promise<unknown> => {
    side.qp.postSend([wr, { opcode: WROpcode.send, flags: signaled, wrId: 99 }]);
    const [failed, flushed] = await completions(side.cq, 2);
    expect(flushed).toMatchObject({ status: WCStatus.wrFlushErr, wrId: 99n });
    expect((await side.qp.query()).state).toBe(QPState.ERR);
    return failed?.status;
  };

  it('reports unknown keys and addresses out of bounds as access errors [IBV-AE-02, IBV-ERR-02, ROCE-NAK-17]', async () => {
    for (const change of [{ rkey: 0x1234_5678 }, { remoteAddr: 0n }]) {
      await using pair = await rocePair(fixture());
      const wr = { ...write([pair.client.mr.sge(0, 8)], pair.server.mr), ...change };
      expect(await outcome(pair.client, wr)).toBe(WCStatus.remAccessErr);
      expect(await nextFailure(pair.server)).toMatchObject({
        type: AsyncEventType.qpAccessErr,
        qpNum: pair.server.qp.qpNum,
      });
      expect((await pair.server.qp.query()).state).toBe(QPState.ERR);
    }
  });

  it('rejects a request for a right that the queue pair withholds [ROCE-NAK-10]', async () => {
    const server = { access: Access.remoteRead };
    await using pair = await rocePair(fixture(), QPType.rc, { server });
    const wr = write([pair.client.mr.sge(0, 8)], pair.server.mr);
    expect(await outcome(pair.client, wr)).toBe(WCStatus.remInvReqErr);
  });

  it('a message longer than the receive fails on both sides [IBV-WC-09, ROCE-NAK-18]', async () => {
    await using pair = await rocePair(fixture());
    pair.server.qp.postRecv({ sgList: [pair.server.mr.sge(0, 8)] });
    const wr = send([pair.client.mr.sge(0, 9)]);
    expect(await outcome(pair.client, wr)).toBe(WCStatus.remOpErr);
    const [receive] = await completions(pair.server.cq);
    expect([WCStatus.locLenErr, WCStatus.locQpOpErr]).toContain(receive?.status);
  });

  it('retries a peer without a receive, up to a limit [ROCE-RNR-09]', async () => {
    await using pair = await rocePair(fixture(), QPType.rc, { client: { rnrRetry: 1 } });
    expect(await outcome(pair.client, send([]))).toBe(WCStatus.rnrRetryExcErr);
  });

  it('a peer that posts its receive late gets the message [ROCE-RNR-03]', async () => {
    await using pair = await rocePair(fixture());
    pair.client.qp.postSend(send([pair.client.mr.sge(0, 8)]));
    await quiet(20);
    expect(pair.client.cq.poll()).toEqual([]);
    pair.server.qp.postRecv({ sgList: [pair.server.mr.sge(0, 8)] });
    expect(await completions(pair.server.cq)).toMatchObject([SUCCESS]);
    expect(await completions(pair.client.cq)).toMatchObject([SUCCESS]);
  });

  it('retries a queue pair that does not exist, up to a limit [ROCE-RTY-03]', async () => {
    const client = { destQpNum: 0x1234, retryCnt: 1, timeout: 8 };
    await using pair = await rocePair(fixture(), QPType.rc, { client });
    expect(await outcome(pair.client, send([]))).toBe(WCStatus.retryExcErr);
  });

  it('flushes posted and later work in ERR [IBV-ERR-03, IBV-ERR-05]', async () => {
    await using pair = await rocePair(fixture());
    const { qp, cq } = pair.server;
    qp.postRecv({ wrId: 1, sgList: [] });
    await qp.modify({ state: QPState.ERR });
    qp.postRecv({ wrId: 2, sgList: [] });
    qp.postSend({ wrId: 3, opcode: WROpcode.send });
    const flushed = await completions(cq, 3);
    expect(flushed.map(({ status }) => status)).toEqual(Array(3).fill(WCStatus.wrFlushErr));
    expect(flushed.map(({ wrId }) => Number(wrId)).sort()).toEqual([1, 2, 3]);
  });
}

function unreliableCases(fixture: () => StartedFixture): void {
  it('sends and writes', async () => {
    const { server, client } = await rocePairOfTest(fixture(), QPType.uc);
    client.mr.buffer.set(pattern(3000));
    server.qp.postRecv([{ sgList: [server.mr.sge(0, 3000)] }, { sgList: [] }]);
    const sgList = [client.mr.sge(0, 3000)];
    client.qp.postSend([
      send(sgList),
      {
        opcode: WROpcode.rdmaWriteWithImm,
        flags: signaled,
        sgList,
        ...remote(server.mr, 8000),
        immData: 5,
      },
    ]);
    expect(await completions(client.cq, 2)).toMatchObject([SUCCESS, SUCCESS]);
    expect(await completions(server.cq, 2)).toMatchObject([
      { ...SUCCESS, opcode: WCOpcode.recv, byteLen: 3000 },
      { ...SUCCESS, opcode: WCOpcode.recvImmediate, immData: 5n },
    ]);
    expect(sameBytes(server.mr.buffer.subarray(0, 3000), pattern(3000))).toBe(true);
    expect(sameBytes(server.mr.buffer.subarray(8000, 11_000), pattern(3000))).toBe(true);
  });

  it('loses messages without a receive, without an error [ROCE-UC-06]', async () => {
    await using pair = await rocePair(fixture(), QPType.uc);
    pair.client.qp.postSend(send([]));
    expect(await completions(pair.client.cq)).toMatchObject([SUCCESS]);
    expect(pair.server.cq.poll()).toEqual([]);
    expect((await pair.server.qp.query()).state).toBe(QPState.RTS);
  });

  it('has no Reads [ROCE-UC-09]', async () => {
    await using pair = await rocePair(fixture(), QPType.uc);
    pair.client.qp.postSend(read([pair.client.mr.sge(0, 8)], pair.server.mr));
    expect(await completions(pair.client.cq)).toMatchObject([{ status: WCStatus.locQpOpErr }]);
  });
}

function datagramCases(fixture: () => StartedFixture): void {
  it('follow a GRH, with which the receiver can reply [ROCE-UD-01, ROCE-UD-02, ROCE-UD-14, IBV-GID-02, IBV-AH-02]', async () => {
    const { server, client } = await rocePairOfTest(fixture(), QPType.ud);
    for (const sgidIndex of [SGID_INDEX, SGID_INDEX_IPV6]) {
      const table = await client.context.queryGidTable();
      const dgid = table.find((entry) => entry.gidIndex === sgidIndex)?.gid ?? '';
      const ah = await client.pd.createAH({ grh: { dgid, sgidIndex, trafficClass: 8 } });
      server.qp.postRecv({ sgList: [server.mr.sge(0, GRH_BYTES + 100)] });
      const ud = { ah, remoteQpNum: server.qp.qpNum, remoteQkey: 1 };
      client.qp.postSend({
        opcode: WROpcode.sendWithImm,
        flags: signaled,
        inlineData: pattern(50),
        immData: 77,
        ud,
      });
      expect(await completions(client.cq)).toMatchObject([SUCCESS]);
      const [received] = await completions(server.cq);
      expect(received).toMatchObject({
        ...SUCCESS,
        opcode: WCOpcode.recv,
        byteLen: GRH_BYTES + 50,
        wcFlags: WCFlag.grh | WCFlag.withImm,
        immData: 77n,
        srcQp: client.qp.qpNum,
      });
      const { buffer } = server.mr;
      expect(sameBytes(buffer.subarray(GRH_BYTES, GRH_BYTES + 50), pattern(50))).toBe(true);
      const grh = parseGrh(buffer);
      expect(grh).toMatchObject({ sgid: dgid, dgid, trafficClass: 8 });

      const answer = await server.pd.createAH({ grh: { dgid: grh.sgid, sgidIndex } });
      client.qp.postRecv({ sgList: [client.mr.sge(0, GRH_BYTES)] });
      const back = { ah: answer, remoteQpNum: received?.srcQp ?? 0, remoteQkey: 1 };
      server.qp.postSend({ opcode: WROpcode.send, flags: signaled, ud: back });
      await completions(server.cq);
      expect(await completions(client.cq)).toMatchObject([
        { ...SUCCESS, byteLen: GRH_BYTES, srcQp: server.qp.qpNum },
      ]);
    }
  });

  it('with another key are dropped [ROCE-UD-03]', async () => {
    const { server, client } = await rocePairOfTest(fixture(), QPType.ud);
    const { gid } = await exchanged(server);
    const ah = await client.pd.createAH({ grh: { dgid: gid, sgidIndex: SGID_INDEX } });
    server.qp.postRecv({ wrId: 1, sgList: [server.mr.sge(0, 64)] });
    const ud = { ah, remoteQpNum: server.qp.qpNum, remoteQkey: 2 };
    const wr = { opcode: WROpcode.send, flags: signaled, ud };
    client.qp.postSend([wr, { ...wr, ud: { ...ud, remoteQkey: 1 } }]);
    expect(await completions(client.cq, 2)).toMatchObject([SUCCESS, SUCCESS]);
    expect(await completions(server.cq)).toMatchObject([{ ...SUCCESS, wrId: 1n }]);
    expect(server.cq.poll()).toEqual([]);
  });

  it('longer than a packet are dropped, and other operations refused [ROCE-UD-11, ROCE-UD-12]', async () => {
    const { server, client } = await rocePairOfTest(fixture(), QPType.ud);
    const { gid } = await exchanged(server);
    const { maxMtuBytes } = await client.context.queryPort();
    const ah = await client.pd.createAH({ grh: { dgid: gid, sgidIndex: SGID_INDEX } });
    const ud = { ah, remoteQpNum: server.qp.qpNum, remoteQkey: 1 };
    server.qp.postRecv({ sgList: [server.mr.sge(0, 8192)] });
    for (const length of [maxMtuBytes + 1, maxMtuBytes]) {
      client.qp.postSend({ ...send([client.mr.sge(0, length)]), ud });
    }
    expect(await completions(client.cq, 2)).toMatchObject([SUCCESS, SUCCESS]);
    expect(await completions(server.cq)).toMatchObject([{ byteLen: GRH_BYTES + maxMtuBytes }]);
    client.qp.postSend(write([client.mr.sge(0, 8)], server.mr));
    expect(await completions(client.cq)).toMatchObject([{ status: WCStatus.locQpOpErr }]);
  });

  it('need a destination, of the same protection domain and not closed [ROCE-UD-13, IBV-AH-01, IBV-AH-05]', async () => {
    await using pair = await rocePair(fixture(), QPType.ud);
    const { server, client } = pair;
    const { gid } = await exchanged(server);
    const attributes = { grh: { dgid: gid, sgidIndex: SGID_INDEX } };
    const foreign = await (await client.context.allocPD()).createAH(attributes);
    const own = await client.pd.createAH(attributes);
    await expect(client.pd.close()).rejects.toEqual(verbsError('EBUSY'));
    const to = { remoteQpNum: server.qp.qpNum, remoteQkey: 1 };
    const { qp } = client;
    expect(() => qp.postSend({ opcode: WROpcode.send })).toThrow(
      'request 0 (send): ud is required on a queue pair of type UD',
    );
    expect(() => qp.postSend({ opcode: WROpcode.send, ud: { ah: foreign, ...to } })).toThrow(
      'request 0 (send): ud.ah belongs to another protection domain',
    );
    await own.close();
    qp.postSend({ opcode: WROpcode.send, flags: signaled, ud: { ah: own, ...to } });
    expect(await completions(client.cq)).toMatchObject([{ status: WCStatus.locQpOpErr }]);
  });

  it('reach every member of a multicast group [ROCE-MC-01, ROCE-MC-02, ROCE-MC-03, ROCE-MC-06]', async () => {
    await using pair = await rocePair(fixture(), QPType.ud);
    await using third = await roceSide(fixture().server, QPType.ud);
    await readyForDatagrams(third.qp, 1);
    const { server, client } = pair;
    const members = [server, third];
    for (const { qp, mr } of members) {
      qp.postRecv([{ sgList: [mr.sge(0, 64)] }, { sgList: [mr.sge(0, 64)] }]);
      await qp.attachMcast(GROUP);
      await qp.attachMcast(GROUP);
    }
    await expect(server.qp.attachMcast((await exchanged(server)).gid)).rejects.toEqual(
      verbsError('EINVAL'),
    );
    const ah = await client.pd.createAH({ grh: { dgid: GROUP, sgidIndex: SGID_INDEX } });
    const ud = { ah, remoteQpNum: MULTICAST_QPN, remoteQkey: 1 };
    const wr = { opcode: WROpcode.send, flags: signaled, ud };
    client.qp.postSend(wr);
    for (const { cq, mr } of members) {
      expect(await completions(cq)).toMatchObject([{ ...SUCCESS, srcQp: client.qp.qpNum }]);
      expect(parseGrh(mr.buffer).dgid).toBe(GROUP);
    }
    await third.qp.detachMcast(GROUP);
    await expect(third.qp.detachMcast(GROUP)).rejects.toEqual(verbsError('EINVAL'));
    client.qp.postSend(wr);
    expect(await completions(server.cq)).toMatchObject([SUCCESS]);
    expect(third.cq.poll()).toEqual([]);
  });
}
