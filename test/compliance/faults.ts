import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AsyncEvent } from '#contract/verbs/completion';
import {
  Access,
  AsyncEventType,
  QPState,
  SendFlag,
  WCStatus,
  WROpcode,
} from '#contract/verbs/enums';
import type { RecvWR, SendWR } from '#contract/verbs/work-request';
import {
  ALL_ACCESS,
  completions,
  connectedPair,
  failure,
  lacks,
  needs,
  type Pair,
  type ProviderFixture,
  patience,
  read,
  remote,
  type Side,
  type StartedFixture,
  SUCCESS,
  send,
  write,
} from '../support/provider-fixture.ts';

const { qpAccessErr, qpFatal, qpReqErr } = AsyncEventType;
const FLUSHED = { status: WCStatus.wrFlushErr };

/** Misuse by the consumer or by its peer, and the errors that each side gets. */
export function faultSuite(fixture: ProviderFixture): void {
  let started: StartedFixture;
  beforeAll(async () => {
    started = await fixture.start();
  });
  afterAll(() => started.stop());

  /** The next event of a side's context; to be called before it happens. */
  function nextAsync(side: Side): Promise<AsyncEvent | undefined> {
    const events = side.connection.context.asyncEvents()[Symbol.asyncIterator]();
    return events.next().then(({ value }) => value ?? undefined);
  }

  /** Waits for an event and compares it, if the device reports failures. */
  async function expectEvent(event: Promise<AsyncEvent | undefined> | undefined, wanted: object) {
    if (lacks(fixture, 'failureEvents')) return;
    expect(await event).toMatchObject(wanted);
  }

  /** Both sides learn that the connection has ended, and their queue pairs are in error. */
  async function bothEnd(pair: Pair): Promise<void> {
    for (const { connection } of [pair.server, pair.client]) {
      await connection.disconnected({ signal: patience() });
      expect((await connection.qp.query()).state).toBe(QPState.ERR);
    }
  }

  describe('of remote memory', () => {
    /** Requests that the server's memory does not allow; `access` is that of its region. */
    const cases: [
      string,
      { access?: number; make: (pair: Pair) => Partial<ReturnType<typeof remote>> },
    ][] = [
      ['an unknown key', { make: ({ server }) => ({ rkey: (server.mr.rkey ^ 0xff) >>> 0 }) }],
      ['bytes past the end', { make: ({ server }) => remote(server.mr, 65_529) }],
      ['bytes before the start', { make: ({ server }) => remote(server.mr, -1) }],
      ['an address that wraps', { make: () => ({ remoteAddr: 2n ** 64n - 4n }) }],
      ['a right that was not given', { access: Access.localWrite, make: () => ({}) }],
    ];

    it.each(cases)('refuses an RDMA Write for %s', async (_name, { access, make }) => {
      await using pair = await connectedPair(started, access === undefined ? {} : { access });
      const { server, client } = pair;
      const before = server.mr.buffer.slice();
      const events = [nextAsync(server), nextAsync(client)];
      server.connection.qp.postRecv({ wrId: 1, sgList: [] });
      client.connection.qp.postRecv({ wrId: 2, sgList: [] });
      const wr = { ...write([client.mr.sge(0, 8)], server.mr), ...make(pair) };
      client.mr.buffer.fill(0xff);
      client.connection.qp.postSend(wr);
      // A Write completes at its sender once it is sent; the receives show the end.
      expect(await completions(server.connection.cq)).toMatchObject([{ ...FLUSHED, wrId: 1n }]);
      const atClient = await completions(client.connection.cq, 2);
      expect(atClient).toMatchObject([SUCCESS, { ...FLUSHED, wrId: 2n }]);
      await expectEvent(events[0], { type: qpAccessErr, qpNum: server.connection.qp.qpNum });
      await expectEvent(events[1], { type: qpFatal, qpNum: client.connection.qp.qpNum });
      await bothEnd(pair);
      expect(Buffer.compare(server.mr.buffer, before)).toBe(0);
    });

    const readCase = async (_name: string, { access, make }: (typeof cases)[number][1]) => {
      await using pair = await connectedPair(started, access === undefined ? {} : { access });
      const { server, client } = pair;
      const events = [nextAsync(server), nextAsync(client)];
      const wr = { ...read([client.mr.sge(0, 8)], server.mr), ...make(pair) };
      client.connection.qp.postSend([
        { ...wr, wrId: 1 },
        { ...wr, wrId: 2 },
      ]);
      expect(await completions(client.connection.cq, 2)).toMatchObject([
        { status: failure(fixture, WCStatus.remAccessErr), wrId: 1n, byteLen: 0 },
        { ...FLUSHED, wrId: 2n },
      ]);
      await expectEvent(events[0], { type: qpReqErr });
      await expectEvent(events[1], { type: qpFatal });
      await bothEnd(pair);
      expect(client.mr.buffer.subarray(0, 8)).toEqual(new Uint8Array(8));
    };
    const aboutRights = ({ access }: (typeof cases)[number][1]) => access !== undefined;
    it.each(cases.filter(([, each]) => !aboutRights(each)))(
      'refuses an RDMA Read for %s',
      readCase,
    );
    describe.skipIf(lacks(fixture, 'readRights'))('by rights', () => {
      it.each(cases.filter(([, each]) => aboutRights(each)))(
        'refuses an RDMA Read for %s',
        readCase,
      );
    });

    it('refuses a region of another protection domain, and one that was closed', async () => {
      for (const close of [false, true]) {
        await using pair = await connectedPair(started);
        const { server, client } = pair;
        const pd = close ? server.pd : await server.context.allocPD();
        const mr = await pd.allocMR(64, ALL_ACCESS);
        if (close) await mr.close();
        client.connection.qp.postSend(read([client.mr.sge(0, 8)], mr));
        expect(await completions(client.connection.cq)).toMatchObject([
          { status: failure(fixture, WCStatus.remAccessErr) },
        ]);
        await bothEnd(pair);
      }
    });

    it(
      'refuses an atomic that is not aligned, or not allowed',
      needs(fixture, 'atomics', async () => {
        const access = ALL_ACCESS & ~Access.remoteAtomic;
        for (const [options, offset, status] of [
          [{}, 4, WCStatus.remInvReqErr],
          [{ access }, 8, WCStatus.remAccessErr],
        ] as const) {
          await using pair = await connectedPair(started, options);
          const { server, client } = pair;
          client.connection.qp.postSend({
            opcode: WROpcode.atomicFetchAndAdd,
            flags: SendFlag.signaled,
            sgList: [client.mr.sge(0, 8)],
            ...remote(server.mr, offset),
            compareAdd: 1,
          });
          expect(await completions(client.connection.cq)).toMatchObject([{ status }]);
          await bothEnd(pair);
          expect(server.mr.buffer.subarray(0, 16)).toEqual(new Uint8Array(16));
        }
      }),
    );

    it(
      'refuses access through an invalidated window, and outside of a window',
      needs(fixture, 'windows', async () => {
        await using pair = await connectedPair(started);
        const { server, client } = pair;
        await using mw = await server.pd.allocMW(2);
        const rkey = ((mw.rkey & ~0xff) | 0x42) >>> 0;
        server.connection.qp.postSend([
          {
            opcode: WROpcode.bindMW,
            bind: {
              rkey,
              lkey: server.mr.lkey,
              addr: server.mr.address,
              length: 16,
              access: Access.remoteRead,
            },
          },
          { opcode: WROpcode.localInv, flags: SendFlag.signaled, invalidateRkey: rkey },
        ]);
        await completions(server.connection.cq, 2);
        client.connection.qp.postSend({ ...read([client.mr.sge(0, 8)], server.mr), rkey });
        expect(await completions(client.connection.cq)).toMatchObject([
          { status: failure(fixture, WCStatus.remAccessErr) },
        ]);
        await bothEnd(pair);
      }),
    );
  });

  describe('of receives', () => {
    it('ends the stream for a Send without a receive', async () => {
      await using pair = await connectedPair(started);
      const event = nextAsync(pair.server);
      pair.client.connection.qp.postSend(send([pair.client.mr.sge(0, 8)]));
      await expectEvent(event, { type: qpFatal });
      await bothEnd(pair);
    });

    it('completes a receive that is too short in error, and flushes the next', async () => {
      await using pair = await connectedPair(started);
      const { server, client } = pair;
      server.connection.qp.postRecv([
        { wrId: 1, sgList: [server.mr.sge(0, 7)] },
        { wrId: 2, sgList: [server.mr.sge()] },
      ]);
      client.connection.qp.postSend(send([client.mr.sge(0, 8)]));
      expect(await completions(server.connection.cq, 2)).toMatchObject([
        { wrId: 1n, status: failure(fixture, WCStatus.locLenErr) },
        { ...FLUSHED, wrId: 2n },
      ]);
      await bothEnd(pair);
    });

    it.skipIf(lacks(fixture, 'preciseFailures'))(
      'completes a receive in error if its STag may not be invalidated',
      async () => {
        await using pair = await connectedPair(started);
        const { server, client } = pair;
        server.connection.qp.postRecv({ wrId: 1, sgList: [server.mr.sge()] });
        client.connection.qp.postSend({
          ...send([client.mr.sge(0, 8)]),
          opcode: WROpcode.sendWithInv,
          invalidateRkey: 0x0badbad0,
        });
        expect(await completions(server.connection.cq)).toMatchObject([
          { wrId: 1n, status: failure(fixture, WCStatus.remInvReqErr) },
        ]);
        await bothEnd(pair);
      },
    );
  });

  describe('of local memory', () => {
    const cases: [string, (side: Side) => Promise<SendWR>][] = [
      [
        'an unknown key',
        async ({ mr }) => send([{ ...mr.sge(0, 8), lkey: (mr.lkey ^ 0xff) >>> 0 }], 1),
      ],
      ['bytes past the end', async ({ mr }) => send([{ ...mr.sge(0, 8), length: 65_537 }], 1)],
      [
        'a region of another protection domain',
        async ({ context }) => {
          const mr = await (await context.allocPD()).allocMR(8, ALL_ACCESS);
          return send([mr.sge()], 1);
        },
      ],
      [
        'a region that was closed',
        async ({ pd }) => {
          const mr = await pd.allocMR(8, ALL_ACCESS);
          const sge = mr.sge();
          await mr.close();
          return send([sge], 1);
        },
      ],
    ];
    const readOnly: typeof cases = [
      [
        'a Read into memory that may not be written',
        async ({ pd, mr }) => {
          const target = await pd.allocMR(8, Access.remoteRead);
          return { ...read([target.sge()], mr), wrId: 1 };
        },
      ],
    ];

    const body = async (_name: string, make: (side: Side) => Promise<SendWR>) => {
      await using pair = await connectedPair(started);
      const { client } = pair;
      const event = nextAsync(client);
      client.connection.qp.postSend([await make(client), { ...send([]), wrId: 2 }]);
      expect(await completions(client.connection.cq, 2)).toMatchObject([
        { wrId: 1n, status: failure(fixture, WCStatus.locProtErr), byteLen: 0 },
        { ...FLUSHED, wrId: 2n },
      ]);
      await expectEvent(event, { type: qpFatal });
      await bothEnd(pair);
    };
    it.each(cases)('completes a request in error for %s', body);
    describe.skipIf(lacks(fixture, 'preciseFailures'))('of Reads', () => {
      it.each(readOnly)('completes a request in error for %s', body);
    });

    it('completes a receive in error if its memory may not be written', async () => {
      await using pair = await connectedPair(started);
      const { server, client } = pair;
      const target = await server.pd.allocMR(8, Access.remoteRead);
      const wr: RecvWR = { wrId: 1, sgList: [target.sge()] };
      server.connection.qp.postRecv(wr);
      client.connection.qp.postSend(send([client.mr.sge(0, 8)]));
      expect(await completions(server.connection.cq)).toMatchObject([
        { wrId: 1n, status: failure(fixture, WCStatus.locProtErr) },
      ]);
      await bothEnd(pair);
      expect(target.buffer).toEqual(new Uint8Array(8));
    });

    it(
      'completes the invalidation of an unknown STag in error',
      needs(fixture, 'localInvalidate', async () => {
        await using pair = await connectedPair(started);
        pair.client.connection.qp.postSend({
          opcode: WROpcode.localInv,
          wrId: 1,
          flags: SendFlag.signaled,
          invalidateRkey: 0x0badbad0,
        });
        const [wc] = await completions(pair.client.connection.cq);
        expect(wc?.wrId).toBe(1n);
        expect(wc?.status).not.toBe(WCStatus.success);
        await bothEnd(pair);
      }),
    );
  });

  it('flushes sends of either kind, signalled or not, in order', async () => {
    await using pair = await connectedPair(started);
    const { qp, cq } = pair.client.connection;
    await qp.modify({ state: QPState.ERR });
    qp.postSend([
      { ...send([]), wrId: 1 },
      { ...send([]), wrId: 2, flags: 0 },
      { ...write([], pair.server.mr), wrId: 3 },
    ]);
    qp.postRecv({ wrId: 4, sgList: [] });
    const flushed = await completions(cq, 4);
    expect(flushed).toMatchObject([FLUSHED, FLUSHED, FLUSHED, FLUSHED]);
    expect(flushed.map((wc) => wc.wrId)).toEqual([1n, 2n, 3n, 4n]);
    // After RESET, the queue pair is like a new one.
    const resets = needs(fixture, 'reset', async () => {
      await qp.modify({ state: QPState.RESET });
      expect((await qp.query()).state).toBe(QPState.RESET);
    });
    await resets();
  });
}
