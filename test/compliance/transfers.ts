import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  Access,
  MWType,
  SendFlag,
  WCFlag,
  WCOpcode,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { BindMWWR, SendWR } from '#contract/verbs/work-request';
import { incRkey } from '#verbs-api/client/memory-window';
import { pattern } from '../support/pattern.ts';
import {
  completions,
  connectedPair,
  DEVICE,
  failure,
  lacks,
  memoryKinds,
  needs,
  type ProviderFixture,
  pairOfTest,
  read,
  remote,
  type Side,
  type StartedFixture,
  SUCCESS,
  sameBytes,
  send,
  sendsAndReceives,
  write,
} from '../support/provider-fixture.ts';

const { locQpOpErr, mwBindErr, remAccessErr, success } = WCStatus;
const MIB = 1_048_576;
/** Lengths around the limits of alignment, inline payload and segments. */
const LENGTHS = [0, 1, 3, 4, 63, 64, 65, 1023, 1024, 1460, 65_535, 65_536, MIB + 13];

/** Work requests between two connected queue pairs: what arrives, and how each side completes. */
export function transferSuite(fixture: ProviderFixture): void {
  let started: StartedFixture;
  beforeAll(async () => {
    started = await fixture.start();
  });
  afterAll(() => started.stop());

  it('a closed completion queue stays empty, and takes nothing from a later one', async () => {
    await using context = await started.client.open(DEVICE.name);
    const closed = await context.createCQ({ cqe: 64 });
    await closed.close();
    const { server, client } = await pairOfTest(started);
    for (let wrId = 1; wrId <= 3; wrId++) {
      server.connection.qp.postRecv({ wrId, sgList: [server.mr.sge(0, 64)] });
      client.connection.qp.postSend(send([client.mr.sge(0, 8)], wrId));
      expect(await completions(server.connection.cq)).toMatchObject([{ wrId: BigInt(wrId) }]);
      expect(closed.poll()).toEqual([]);
      expect(await completions(client.connection.cq)).toMatchObject([{ wrId: BigInt(wrId) }]);
    }
  });

  describe.each(memoryKinds(fixture))('%s memory', (memory) => {
    it('sends messages of every length', async () => {
      const { server, client } = await pairOfTest(started, { memory, memoryBytes: 2 * MIB });
      for (const [index, length] of LENGTHS.entries()) {
        const bytes = pattern(length, index);
        client.mr.buffer.set(bytes, index);
        server.mr.buffer.fill(0);
        server.connection.qp.postRecv({ wrId: index, sgList: [server.mr.sge(8)] });
        client.connection.qp.postSend(send([client.mr.sge(index, length)], 100 + index));
        expect(await completions(server.connection.cq)).toEqual([
          {
            ...SUCCESS,
            wrId: BigInt(index),
            opcode: WCOpcode.recv,
            byteLen: length,
            qpNum: server.connection.qp.qpNum,
            wcFlags: 0,
            immData: 0n,
            invalidatedRkey: 0,
            srcQp: 0,
          },
        ]);
        expect(await completions(client.connection.cq)).toMatchObject([
          { ...SUCCESS, wrId: BigInt(100 + index), opcode: WCOpcode.send },
        ]);
        const received = server.mr.buffer.subarray(8, 8 + length);
        expect(sameBytes(received, bytes), `${length} bytes`).toBe(true);
        expect(server.mr.buffer[8 + length]).toBe(0);
      }
    });

    it('writes and reads back messages of every length', async () => {
      const { server, client } = await pairOfTest(started, { memory, memoryBytes: 4 * MIB });
      const { qp, cq } = client.connection;
      for (const [index, length] of LENGTHS.entries()) {
        const bytes = pattern(length, index + 50);
        client.mr.buffer.set(bytes);
        server.mr.buffer.fill(0);
        qp.postSend(write([client.mr.sge(0, length)], server.mr, 5));
        qp.postSend(read([client.mr.sge(2 * MIB, length)], server.mr, 5));
        expect(await completions(cq, 2)).toMatchObject([
          { ...SUCCESS, opcode: WCOpcode.rdmaWrite },
          { ...SUCCESS, opcode: WCOpcode.rdmaRead, byteLen: length },
        ]);
        const written = server.mr.buffer.subarray(5, 5 + length);
        expect(sameBytes(written, bytes), `${length} bytes written`).toBe(true);
        const back = client.mr.buffer.subarray(2 * MIB, 2 * MIB + length);
        expect(sameBytes(back, bytes), `${length} bytes read`).toBe(true);
        expect(server.mr.buffer[5 + length]).toBe(0);
      }
    });

    it('gathers from and scatters into several elements', async () => {
      const { server, client } = await pairOfTest(started, { memory });
      client.mr.buffer.set(pattern(1000));
      server.connection.qp.postRecv({
        sgList: [server.mr.sge(0, 10), server.mr.sge(100, 0), server.mr.sge(200, 500)],
      });
      const pieces = [client.mr.sge(0, 7), client.mr.sge(500, 100), client.mr.sge(20, 1)];
      client.connection.qp.postSend(send(pieces));
      expect(await completions(server.connection.cq)).toMatchObject([{ byteLen: 108 }]);
      const sent = Buffer.concat(
        pieces.map(({ addr, length }) => {
          const start = Number(BigInt(addr) - client.mr.address);
          return client.mr.buffer.subarray(start, start + length);
        }),
      );
      const received = Buffer.concat([
        server.mr.buffer.subarray(0, 10),
        server.mr.buffer.subarray(200, 298),
      ]);
      expect(received).toEqual(sent);
    });
  });

  it('carries messages both ways at once, in order', async () => {
    const depth = 64;
    const endpoint = { maxSendWr: depth, maxRecvWr: depth };
    await using pair = await connectedPair(started, { endpoint });
    const sides = [pair.server, pair.client];
    for (const { connection, mr } of sides) {
      connection.qp.postRecv(
        Array.from({ length: depth }, (_, slot) => ({
          wrId: slot,
          sgList: [mr.sge(32_768 + slot * 256, 256)],
        })),
      );
    }
    for (const [side, { connection, mr }] of sides.entries()) {
      mr.buffer.set(pattern(depth * 256, side));
      connection.qp.postSend(
        Array.from({ length: depth }, (_, slot) => send([mr.sge(slot * 256, slot + 1)], slot)),
      );
    }
    for (const [side, { connection, mr }] of sides.entries()) {
      const { sends, receives } = await sendsAndReceives(connection, depth, depth);
      const order = Array.from({ length: depth }, (_, slot) => BigInt(slot));
      expect(sends.map((wc) => wc.wrId)).toEqual(order);
      expect(receives.map((wc) => wc.wrId)).toEqual(order);
      expect(receives.map((wc) => wc.byteLen)).toEqual(order.map((slot) => Number(slot) + 1));
      const sent = pattern(depth * 256, 1 - side);
      for (let slot = 0; slot < depth; slot += 1) {
        const start = 32_768 + slot * 256;
        const received = mr.buffer.subarray(start, start + slot + 1);
        expect(received).toEqual(sent.subarray(slot * 256, slot * 256 + slot + 1));
      }
    }
  });

  it('sends inlineData inline even without the flag', async () => {
    const { server, client } = await pairOfTest(started);
    server.connection.qp.postRecv({ wrId: 1, sgList: [server.mr.sge(0, 100)] });
    const inlineData = pattern(40);
    client.connection.qp.postSend({ opcode: WROpcode.send, inlineData });
    inlineData.fill(0);
    expect(await completions(server.connection.cq)).toMatchObject([{ ...SUCCESS, byteLen: 40 }]);
    expect(server.mr.buffer.subarray(0, 40)).toEqual(pattern(40));
  });

  it('copies inline payload when posting, without a registration', async () => {
    const { server, client } = await pairOfTest(started);
    server.connection.qp.postRecv([{ sgList: [server.mr.sge()] }, { sgList: [] }]);
    const inlineData = pattern(64);
    const flags = SendFlag.inline | SendFlag.signaled;
    client.connection.qp.postSend({ opcode: WROpcode.send, flags, inlineData });
    inlineData.fill(0);
    client.connection.qp.postSend({ opcode: WROpcode.send, flags });
    expect(await completions(server.connection.cq, 2)).toMatchObject([
      { byteLen: 64 },
      { byteLen: 0 },
    ]);
    expect(server.mr.buffer.subarray(0, 64)).toEqual(pattern(64));
  });

  it('completes only signalled requests, in order, unless the queue pair signals all', async () => {
    for (const sqSigAll of [false, true]) {
      await using pair = await connectedPair(started, { endpoint: { sqSigAll } });
      const { server, client } = pair;
      const requests = Array.from({ length: 6 }, (_, index) => ({
        ...write([client.mr.sge(0, 8)], server.mr),
        wrId: index,
        flags: index % 3 === 2 ? SendFlag.signaled : 0,
      }));
      client.connection.qp.postSend(requests);
      const expected = sqSigAll ? [0n, 1n, 2n, 3n, 4n, 5n] : [2n, 5n];
      const taken = await completions(client.connection.cq, expected.length);
      expect(taken.map((wc) => wc.wrId)).toEqual(expected);
      expect(client.connection.cq.poll()).toEqual([]);
    }
  });

  it('delays a fenced Send until the Read before it completes', async () => {
    const { server, client } = await pairOfTest(started);
    const length = 32_768;
    server.mr.buffer.set(pattern(length));
    server.connection.qp.postRecv({ sgList: [server.mr.sge(length, length)] });
    client.connection.qp.postSend([
      read([client.mr.sge(0, length)], server.mr),
      { ...send([client.mr.sge(0, length)]), flags: SendFlag.fence | SendFlag.signaled },
    ]);
    expect(await completions(client.connection.cq, 2)).toMatchObject([
      { ...SUCCESS, opcode: WCOpcode.rdmaRead },
      { ...SUCCESS, opcode: WCOpcode.send },
    ]);
    expect(await completions(server.connection.cq)).toMatchObject([{ byteLen: length }]);
    expect(sameBytes(server.mr.buffer.subarray(length), pattern(length))).toBe(true);
  });

  it(
    'delivers Immediate Data, alone and after an RDMA Write',
    needs(fixture, 'immediateData', async () => {
      const { server, client } = await pairOfTest(started);
      // A receive takes the 8 bytes too, and needs room for them.
      server.connection.qp.postRecv([
        { wrId: 1, sgList: [server.mr.sge(1000, 8)] },
        { wrId: 2, sgList: [server.mr.sge(1008, 8)] },
      ]);
      client.mr.buffer.set(pattern(100));
      const immData = 0xfedc_ba98_7654_3210n;
      client.connection.qp.postSend([
        { opcode: WROpcode.immediate, flags: SendFlag.signaled, immData },
        {
          ...write([client.mr.sge(0, 100)], server.mr, 7),
          opcode: WROpcode.rdmaWriteWithImm,
          immData: 5,
        },
      ]);
      const flags = { opcode: WCOpcode.recvImmediate, wcFlags: WCFlag.withImm };
      expect(await completions(server.connection.cq, 2)).toMatchObject([
        { ...SUCCESS, ...flags, wrId: 1n, immData },
        { ...SUCCESS, ...flags, wrId: 2n, immData: 5n },
      ]);
      expect(server.mr.buffer.subarray(7, 107)).toEqual(pattern(100));
      const placed = Buffer.from(server.mr.buffer.subarray(1000, 1016)).toString('hex');
      expect(placed).toBe('fedcba98765432100000000000000005');
      expect(await completions(client.connection.cq, 2)).toMatchObject([
        { ...SUCCESS, opcode: WCOpcode.send },
        { ...SUCCESS, opcode: WCOpcode.rdmaWrite },
      ]);
    }),
  );

  describe('atomics', () => {
    const atomicPair = () => connectedPair(started);
    const little = (side: Side, offset: number) =>
      new DataView(side.mr.buffer.buffer, side.mr.buffer.byteOffset + offset, 8);

    it(
      'fetches and adds, modulo 2^64',
      needs(fixture, 'atomics', async () => {
        await using pair = await atomicPair();
        const { server, client } = pair;
        little(server, 8).setBigUint64(0, 2n ** 64n - 2n, true);
        const fetchAdd: SendWR = {
          opcode: WROpcode.atomicFetchAndAdd,
          flags: SendFlag.signaled,
          sgList: [client.mr.sge(0, 8)],
          ...remote(server.mr, 8),
          compareAdd: 5,
        };
        client.connection.qp.postSend(fetchAdd);
        expect(await completions(client.connection.cq)).toMatchObject([
          { ...SUCCESS, opcode: WCOpcode.fetchAdd, byteLen: 8 },
        ]);
        expect(little(client, 0).getBigUint64(0, true)).toBe(2n ** 64n - 2n);
        expect(little(server, 8).getBigUint64(0, true)).toBe(3n);
        client.connection.qp.postSend({ ...fetchAdd, compareAdd: -3n });
        await completions(client.connection.cq);
        expect(little(client, 0).getBigUint64(0, true)).toBe(3n);
        expect(little(server, 8).getBigUint64(0, true)).toBe(0n);
      }),
    );

    it(
      'compares and swaps',
      needs(fixture, 'atomics', async () => {
        await using pair = await atomicPair();
        const { server, client } = pair;
        little(server, 0).setBigUint64(0, 7n, true);
        const swap = (compareAdd: bigint, value: bigint): SendWR => ({
          opcode: WROpcode.atomicCmpAndSwap,
          flags: SendFlag.signaled,
          sgList: [client.mr.sge(16, 8)],
          ...remote(server.mr),
          compareAdd,
          swap: value,
        });
        client.connection.qp.postSend(swap(6n, 1n));
        expect(await completions(client.connection.cq)).toMatchObject([
          { ...SUCCESS, opcode: WCOpcode.compSwap },
        ]);
        expect(little(client, 16).getBigUint64(0, true)).toBe(7n);
        expect(little(server, 0).getBigUint64(0, true)).toBe(7n);
        client.connection.qp.postSend(swap(7n, 0x0102_0304_0506_0708n));
        await completions(client.connection.cq);
        expect(little(client, 16).getBigUint64(0, true)).toBe(7n);
        expect(little(server, 0).getBigUint64(0, true)).toBe(0x0102_0304_0506_0708n);
      }),
    );
  });

  describe('windows and invalidation', () => {
    const bind = (side: Side, rkey: number, length: number, access: Access): BindMWWR => ({
      opcode: WROpcode.bindMW,
      flags: SendFlag.signaled,
      bind: { rkey, lkey: side.mr.lkey, addr: side.mr.address, length, access },
    });

    it.each([
      ['type 1', MWType.type1],
      ['type 2', MWType.type2],
    ])(
      'opens part of a region through a window of %s',
      needs(fixture, 'windows', async (_name, type) => {
        const { server, client } = await pairOfTest(started);
        await using mw = await server.pd.allocMW(type);
        const rkey = incRkey(mw.rkey);
        server.connection.qp.postSend(bind(server, rkey, 100, Access.remoteWrite));
        expect(await completions(server.connection.cq)).toMatchObject([
          { ...SUCCESS, opcode: WCOpcode.bindMW },
        ]);
        await expect(server.mr.close()).rejects.toMatchObject({ code: 'EBUSY' });
        client.mr.buffer.set(pattern(100));
        client.connection.qp.postSend({ ...write([client.mr.sge(0, 100)], server.mr), rkey });
        expect(await completions(client.connection.cq)).toMatchObject([SUCCESS]);
        client.connection.qp.postSend(read([client.mr.sge(100, 100)], server.mr));
        await completions(client.connection.cq);
        expect(client.mr.buffer.subarray(100, 200)).toEqual(pattern(100));
      }),
    );

    it(
      'ends the access of a window by a bind of no bytes (type 1), an invalidation (type 2), or its destruction',
      needs(fixture, 'windows', async () => {
        const { server } = await pairOfTest(started);
        const { qp, cq } = server.connection;
        await using first = await server.pd.allocMW(MWType.type1);
        await using second = await server.pd.allocMW(MWType.type2);
        const third = await server.pd.allocMW(MWType.type2);
        const rkeys = [first, second, third].map((mw) => incRkey(mw.rkey));
        for (const rkey of rkeys) qp.postSend(bind(server, rkey, 8, Access.remoteRead));
        expect(await completions(cq, 3)).toMatchObject([SUCCESS, SUCCESS, SUCCESS]);
        qp.postSend([
          bind(server, incRkey(rkeys[0] ?? 0), 0, 0),
          { opcode: WROpcode.localInv, flags: SendFlag.signaled, invalidateRkey: rkeys[1] ?? 0 },
        ]);
        expect(await completions(cq, 2)).toMatchObject([
          { ...SUCCESS, opcode: WCOpcode.bindMW },
          { ...SUCCESS, opcode: WCOpcode.localInv },
        ]);
        await expect(server.mr.close()).rejects.toMatchObject({ code: 'EBUSY' });
        await third.close();
        await server.mr.close();
      }),
    );

    it(
      'invalidates the peer’s STag with a Send, whose completion reports it',
      needs(fixture, 'windows', async () => {
        const { server, client } = await pairOfTest(started);
        await using mw = await server.pd.allocMW(MWType.type2);
        const rkey = incRkey(mw.rkey);
        server.connection.qp.postSend(bind(server, rkey, 8, Access.remoteRead));
        await completions(server.connection.cq);
        server.connection.qp.postRecv({ sgList: [server.mr.sge()] });
        client.connection.qp.postSend({
          ...send([client.mr.sge(0, 10)]),
          opcode: WROpcode.sendWithInv,
          invalidateRkey: rkey,
        });
        expect(await completions(server.connection.cq)).toMatchObject([
          { ...SUCCESS, byteLen: 10, wcFlags: WCFlag.withInv, invalidatedRkey: rkey },
        ]);
        // The window is free again, and can be rebound.
        server.connection.qp.postSend(bind(server, incRkey(rkey), 8, Access.remoteRead));
        expect(await completions(server.connection.cq)).toMatchObject([SUCCESS]);
      }),
    );

    it(
      'limits a type 2 window to the stream it was bound on, but not a type 1 window',
      needs(fixture, 'windows', async () => {
        await using first = await connectedPair(started);
        await using second = await connectedPair(started, {
          serverEndpoint: { pd: first.server.pd },
        });
        const through = async (type: MWType): Promise<WCStatus | undefined> => {
          const { server } = first;
          const mw = await server.pd.allocMW(type);
          const rkey = incRkey(mw.rkey);
          server.connection.qp.postSend(bind(server, rkey, 8, Access.remoteRead));
          await completions(server.connection.cq);
          const { connection, mr } = second.client;
          connection.qp.postSend({ ...read([mr.sge(0, 8)], server.mr), rkey });
          const [wc] = await completions(connection.cq);
          await mw.close();
          return wc?.status;
        };
        expect(await through(MWType.type1)).toBe(success);
        expect(await through(MWType.type2)).toBe(remAccessErr);
      }),
    );

    it(
      'refuses binds that grant more rights than the region has',
      needs(fixture, 'windows', async () => {
        const access = Access.localWrite | Access.remoteRead;
        const { server } = await pairOfTest(started, { access });
        await using mw = await server.pd.allocMW(MWType.type1);
        server.connection.qp.postSend(bind(server, incRkey(mw.rkey), 8, Access.remoteRead));
        expect(await completions(server.connection.cq)).toMatchObject([{ status: mwBindErr }]);
      }),
    );

    it(
      'binds windows far above 2^53 [DDP-4.2-07]',
      needs(fixture, 'windows', async () => {
        const iova = 0xffff_ffff_fffe_1001n;
        const access = Access.localWrite | Access.mwBind;
        const { server, client } = await pairOfTest(started, { access, region: { iova } });
        await using mw = await server.pd.allocMW(MWType.type2);
        const window = bind(server, incRkey(mw.rkey), 16, Access.remoteWrite);
        server.connection.qp.postSend(window);
        expect(await completions(server.connection.cq)).toMatchObject([SUCCESS]);
        client.mr.buffer.set(pattern(16));
        server.connection.qp.postRecv({ sgList: [] });
        client.connection.qp.postSend([
          {
            ...write([client.mr.sge(0, 8)], server.mr),
            remoteAddr: iova + 8n,
            rkey: window.bind.rkey,
          },
          send([]),
        ]);
        await completions(server.connection.cq);
        expect(server.mr.buffer.subarray(8, 17)).toEqual(Uint8Array.of(...pattern(8), 0));
      }),
    );
  });

  it(
    'addresses zero-based regions from 0, and others from a chosen address',
    needs(fixture, 'chosenAddresses', async () => {
      const access = Access.localWrite | Access.remoteWrite;
      for (const [extra, options, first] of [
        [Access.zeroBased, {}, 0],
        [0, { iova: 0x1_0000_0000n }, 0x1_0000_0000],
        [0, { iova: 0xffff_ffff_fffe_0001n }, 0xffff_ffff_fffe_0001n],
      ] as const) {
        const { server, client } = await pairOfTest(started, {
          access: access | extra,
          region: options,
        });
        client.mr.buffer.set(pattern(16));
        client.connection.qp.postSend({
          ...write([client.mr.sge(0, 16)], server.mr),
          remoteAddr: BigInt(first) + 3n,
        });
        // The Send after the Write shows when it has arrived.
        server.connection.qp.postRecv({ sgList: [] });
        client.connection.qp.postSend(send([]));
        await completions(server.connection.cq);
        expect(server.mr.buffer.subarray(3, 19)).toEqual(pattern(16));
      }
    }),
  );

  it(
    'reaches regions far above 2^53 [DDP-4.2-07]',
    needs(fixture, 'chosenAddresses', async () => {
      const iova = 0xffff_ffff_fffe_1001n;
      const { server, client } = await pairOfTest(started, {
        access: Access.localWrite | Access.remoteWrite | Access.remoteRead,
        region: { iova },
        memoryBytes: 32_768,
      });
      const { qp, cq } = client.connection;
      server.mr.buffer.set(pattern(30_000));
      // Both the source and the sink of the Read have such addresses.
      const source = { remoteAddr: iova + 1n, rkey: server.mr.rkey };
      qp.postSend({ ...read([client.mr.sge(7, 29_999)], server.mr), ...source });
      expect(await completions(cq)).toMatchObject([SUCCESS]);
      expect(client.mr.buffer.subarray(7, 30_006)).toEqual(pattern(30_000).subarray(1));
      const outside = { remoteAddr: iova + 32_768n, rkey: server.mr.rkey };
      qp.postSend({ ...read([client.mr.sge(0, 1)], server.mr), ...outside });
      expect(await completions(cq)).toMatchObject([{ status: failure(fixture, remAccessErr) }]);
    }),
  );

  it.skipIf(lacks(fixture, 'smallerDepths'))(
    'never exceeds the negotiated read depth, however many Reads are posted',
    async () => {
      const serverEndpoint = { responderResources: 2 };
      const { server, client } = await pairOfTest(started, { serverEndpoint });
      expect(client.connection.established.initiatorDepth).toBe(2);
      expect((await client.connection.qp.query()).maxRdAtomic).toBe(2);
      server.mr.buffer.set(pattern(4096));
      const reads = Array.from({ length: 32 }, (_, index) =>
        read([client.mr.sge(index * 128, 128)], server.mr, index * 128),
      );
      client.connection.qp.postSend(reads);
      const taken = await completions(client.connection.cq, reads.length);
      expect(taken.every((wc) => wc.status === success)).toBe(true);
      expect(client.mr.buffer.subarray(0, 4096)).toEqual(pattern(4096));
    },
  );

  it.skipIf(lacks(fixture, 'smallerDepths'))(
    'completes a Read in error if none were negotiated',
    async () => {
      const clientEndpoint = { initiatorDepth: 0 };
      const { server, client } = await pairOfTest(started, { clientEndpoint });
      expect(client.connection.established.initiatorDepth).toBe(0);
      client.connection.qp.postSend(read([client.mr.sge(0, 8)], server.mr));
      expect(await completions(client.connection.cq)).toMatchObject([{ status: locQpOpErr }]);
    },
  );

  it('shares receives of an SRQ among queue pairs, and raises its limit event once', async () => {
    await using context = await started.server.open();
    await using pd = await context.allocPD();
    await using srq = await pd.createSRQ({ maxWr: 8, srqLimit: 3 });
    await using mr = await pd.allocMR(1024, Access.localWrite);
    const events = context.asyncEvents()[Symbol.asyncIterator]();
    srq.postRecv(
      Array.from({ length: 6 }, (_, slot) => ({ wrId: slot, sgList: [mr.sge(slot * 100, 100)] })),
    );
    await using first = await connectedPair(started, { serverEndpoint: { pd, srq } });
    await using second = await connectedPair(started, { serverEndpoint: { pd, srq } });
    const limit = events.next();
    for (const [index, pair] of [first, second, first, second].entries()) {
      pair.client.mr.buffer.set(pattern(50, index));
      pair.client.connection.qp.postSend(send([pair.client.mr.sge(0, 50)]));
      const [wc] = await completions(pair.server.connection.cq);
      expect(wc).toMatchObject({ ...SUCCESS, wrId: BigInt(index), byteLen: 50 });
      expect(wc?.qpNum).toBe(pair.server.connection.qp.qpNum);
      expect(mr.buffer.subarray(index * 100, index * 100 + 50)).toEqual(pattern(50, index));
    }
    expect((await limit).value).toMatchObject({ type: 15, element: srq.handle });
    expect((await srq.query()).srqLimit).toBe(0);
  });
}
