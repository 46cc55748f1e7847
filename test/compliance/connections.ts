import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { Access, CMEventType, QPState, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { ConnectionId, Context, CQ, PD, QPInit, WireOptions } from '#contract/verbs/provider';
import { connect, listen } from '#verbs-api/connect';
import { quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import {
  ALL_ACCESS,
  acceptOne,
  boundTo,
  completions,
  connectedPair,
  DEVICE,
  lacks,
  needs,
  OWN_ERROR,
  type ProviderFixture,
  pairOfTest,
  patience,
  read,
  SMALL_DEVICE,
  type StartedFixture,
  SUCCESS,
  send,
  verbsError,
  write,
} from '../support/provider-fixture.ts';

const ADDRESS = DEVICE.addresses[0];
/** A loopback address that no device of the fixture has. */
const FOREIGN_ADDRESS = '127.0.0.77';
const DEFAULT_PRIVATE_DATA_MAX = 508;

/** Connection ids: resolve, listen, connect, accept, reject, disconnect, and their events. */
export function connectionSuite(fixture: ProviderFixture): void {
  const maxPrivateData = fixture.maxPrivateData ?? DEFAULT_PRIVATE_DATA_MAX;
  let started: StartedFixture;
  let context: Context;
  let pd: PD;
  let cq: CQ;

  beforeAll(async () => {
    started = await fixture.start();
    context = await started.client.open(DEVICE.name);
    pd = await context.allocPD();
    cq = await context.createCQ({ cqe: 64 });
  });
  afterAll(() => started.stop());

  const qpInit = (): QPInit => ({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });
  const nextType = async (id: ConnectionId) => (await id.nextEvent({ signal: patience() })).type;

  /** A client's id, resolved, with a queue pair. */
  async function resolvedId(port: number): Promise<ConnectionId> {
    const id = await started.client.createId();
    await id.resolveAddr({ address: ADDRESS, port });
    await id.resolveRoute();
    await id.createQP(pd, qpInit());
    return id;
  }

  describe('ids', () => {
    it.skipIf(lacks(fixture, 'tcp'))(
      'of datagrams are EOPNOTSUPP without a RoCE device',
      async () => {
        await expect(started.client.createId({ datagrams: true })).rejects.toEqual(
          verbsError('EOPNOTSUPP'),
        );
      },
    );

    it('binds to a free port and reports it; EADDRINUSE for a port in use', async () => {
      await using id = await started.client.createId();
      await id.bindAddr({ address: ADDRESS, port: 0 });
      const bound = boundTo(id.localAddress);
      expect(bound.address).toBe(ADDRESS);
      expect(bound.port).toBeGreaterThan(0);
      expect(id.device).toBe(DEVICE.name);
      await using other = await started.client.createId();
      await expect(other.bindAddr(bound)).rejects.toEqual(verbsError('EADDRINUSE'));
      await expect(id.bindAddr(bound)).rejects.toEqual(verbsError('EINVAL'));
    });

    it.skipIf(lacks(fixture, 'otherAddresses'))(
      'selects no device for a loopback address that no device lists; EINVAL for an invalid address',
      async () => {
        await using id = await started.client.createId();
        await expect(id.bindAddr({ address: 'somewhere', port: 0 })).rejects.toEqual(
          verbsError('EINVAL'),
        );
        await id.bindAddr({ address: FOREIGN_ADDRESS, port: 0 });
        expect(id.device).toBeUndefined();
        expect(id.localAddress?.address).toBe(FOREIGN_ADDRESS);
      },
    );

    it('resolves to the device with the source address and reports events in order', async () => {
      await using id = await started.client.createId();
      await id.resolveAddr({ address: ADDRESS, port: 9 });
      expect(id.device).toBe(DEVICE.name);
      expect(id.peerAddress).toEqual({ address: ADDRESS, port: 9 });
      expect(id.localAddress?.address).toBe(ADDRESS);
      await id.resolveRoute(100);
      expect(await nextType(id)).toBe(CMEventType.addrResolved);
      expect(await nextType(id)).toBe(CMEventType.routeResolved);
      if (lacks(fixture, 'otherAddresses')) return;
      await using small = await started.client.createId();
      const source = { address: SMALL_DEVICE.addresses[0], port: 0 };
      await small.resolveAddr({ address: ADDRESS, port: 9 }, { source });
      expect(small.device).toBe(SMALL_DEVICE.name);
    });

    it('rejects steps out of order with EINVAL', async () => {
      await using id = await started.client.createId();
      await expect(id.resolveRoute()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.connect()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.accept()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.reject()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.disconnect()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.createQP(pd, qpInit())).rejects.toEqual(verbsError('EINVAL'));
      await id.listen();
      await expect(id.listen()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.resolveAddr({ address: ADDRESS, port: 9 })).rejects.toEqual(
        verbsError('EINVAL'),
      );
      await id.close();
      await id.close();
      await expect(id.listen()).rejects.toEqual(verbsError('EINVAL'));
      await expect(id.nextEvent()).rejects.toEqual(verbsError('EINVAL'));
    });

    it('creates a queue pair that is destroyed with the id, only on the same device', async () => {
      const id = await started.client.createId();
      await id.resolveAddr({ address: ADDRESS, port: 9 });
      await using small = await started.client.open(SMALL_DEVICE.name);
      const smallPD = await small.allocPD();
      await expect(id.createQP(smallPD, qpInit())).rejects.toEqual(verbsError('EINVAL'));
      const qp = await id.createQP(pd, qpInit());
      expect(id.qp).toBe(qp);
      expect((await qp.query()).state).toBe(QPState.INIT);
      await expect(id.createQP(pd, qpInit())).rejects.toEqual(verbsError('EINVAL'));
      await id.close();
      await expect(qp.query()).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('private data and depths', () => {
    it.each([0, 1, maxPrivateData])('carries %i bytes of private data each way', async (length) => {
      await using listener = await listen(started.server, { host: ADDRESS });
      const there = pattern(length, 1);
      const back = pattern(length, 2);
      const connecting = connect(started.client, {
        host: ADDRESS,
        port: listener.address.port,
        privateData: there,
      });
      for await (const request of listener) {
        expect(request.privateData.subarray(0, length)).toEqual(there);
        expect(request.peerAddress?.address).toBe(ADDRESS);
        await using accepted = await request.accept({ privateData: back });
        await using connected = await connecting;
        expect(connected.established.privateData.subarray(0, length)).toEqual(back);
        expect(accepted.id.device).toBe(DEVICE.name);
        break;
      }
    });

    it('fails with EINVAL for more, and sends nothing', async () => {
      await using id = await resolvedId(9);
      const privateData = new Uint8Array(maxPrivateData + 1);
      await expect(id.connect({ privateData })).rejects.toEqual(verbsError('EINVAL'));
    });

    it.skipIf(lacks(fixture, 'smallerDepths'))(
      'agrees on the smaller depth for each direction',
      async () => {
        const clientEndpoint = { initiatorDepth: 7, responderResources: 3 };
        const serverEndpoint = { initiatorDepth: 9, responderResources: 5 };
        await using pair = await connectedPair(started, { clientEndpoint, serverEndpoint });
        const depth = (agreed: number) =>
          lacks(fixture, 'exactDepths') ? 2 ** Math.ceil(Math.log2(agreed)) : agreed;
        expect(await pair.client.connection.qp.query()).toMatchObject({
          state: QPState.RTS,
          maxRdAtomic: depth(5),
          maxDestRdAtomic: depth(3),
        });
        expect(await pair.server.connection.qp.query()).toMatchObject({
          state: QPState.RTS,
          maxRdAtomic: depth(3),
        });
      },
    );

    it('EINVAL for depths beyond the device [SEC-7.2-01]', async () => {
      await using id = await resolvedId(9);
      const { maxQpRdAtom, maxQpInitRdAtom } = await context.queryDevice();
      for (const excess of [
        { initiatorDepth: maxQpInitRdAtom + 1 },
        { responderResources: maxQpRdAtom + 1 },
        { initiatorDepth: -1 },
      ]) {
        await expect(id.connect(excess)).rejects.toEqual(verbsError('EINVAL'));
      }
    });
  });

  describe('refusals', () => {
    it('reports a rejection to the client with the peer’s private data', async () => {
      await using listener = await listen(started.server, { host: ADDRESS });
      await using id = await resolvedId(listener.address.port);
      const outcome = id.connect();
      for await (const request of listener) {
        await request.reject(pattern(20));
        break;
      }
      const error = await outcome.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(ConnectionRejectedError);
      expect(error).toMatchObject({ code: 'ECONNREFUSED' });
      if (!(error instanceof ConnectionRejectedError)) return;
      expect(error.event.type).toBe(CMEventType.rejected);
      expect(error.event.privateData.subarray(0, 20)).toEqual(pattern(20));
      // The queue pair is unchanged and connects with another id.
      expect((await id.qp?.query())?.state).toBe(QPState.INIT);
    });

    it('ECONNREFUSED without a listener', async () => {
      await using unused = await started.server.createId();
      await unused.bindAddr({ address: ADDRESS, port: 0 });
      const { port } = boundTo(unused.localAddress);
      const failure = await connect(started.client, { host: ADDRESS, port }).catch(
        (error: unknown) => error,
      );
      expect(failure).toEqual(verbsError('ECONNREFUSED'));
      expect(String(failure)).toContain(`cannot connect to ${ADDRESS} port ${port}: `);
    });

    const needsTcp = it.skipIf(lacks(fixture, 'tcp'));
    needsTcp('ETIMEDOUT when the peer accepts TCP and stays silent', async () => {
      const silent = createServer((socket) => socket.on('error', () => undefined));
      await new Promise<void>((resolve) => silent.listen(0, ADDRESS, resolve));
      const address = silent.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      const source = { address: SMALL_DEVICE.addresses[0], port: 0 };
      const outcome = connect(started.client, {
        host: ADDRESS,
        port,
        source,
        maxSendWr: 4,
        maxRecvWr: 4,
        initiatorDepth: 1,
        responderResources: 1,
      });
      await expect(outcome).rejects.toEqual(verbsError('ETIMEDOUT'));
      silent.close();
    });

    it.skipIf(lacks(fixture, 'foreignReplies') || lacks(fixture, 'tcp'))(
      'closes on a peer that does not speak MPA',
      async () => {
        const babbling = createServer((socket) => {
          socket.on('error', () => undefined);
          socket.end('HTTP/1.1 400 Bad Request\r\n\r\n');
        });
        await new Promise<void>((resolve) => babbling.listen(0, ADDRESS, resolve));
        const address = babbling.address();
        const port = typeof address === 'object' && address !== null ? address.port : 0;
        const error = await connect(started.client, { host: ADDRESS, port }).catch(
          (reason: unknown) => reason,
        );
        expect(error).toMatchObject({ name: expect.stringMatching(OWN_ERROR) });
        babbling.close();
      },
    );

    it('rejects requests beyond the backlog and keeps the others', async () => {
      const backlog = 2;
      await using listener = await listen(started.server, { host: ADDRESS, backlog });
      const { port } = listener.address;
      const outcomes = await (async () => {
        const attempts = Array.from({ length: 5 }, () =>
          connect(started.client, { host: ADDRESS, port }).then(
            (connection) => connection,
            (error: unknown) => error,
          ),
        );
        // Three are refused while none is answered; then the two waiting ones are accepted.
        const refused = await Promise.all([
          firstSettled(attempts, 1),
          firstSettled(attempts, 2),
          firstSettled(attempts, 3),
        ]);
        expect(refused).toEqual(Array.from({ length: 3 }, () => verbsError('ECONNREFUSED')));
        let taken = 0;
        for await (const request of listener) {
          const accepted = await request.accept();
          taken += 1;
          void accepted.disconnected().then(() => accepted.close());
          if (taken === backlog) break;
        }
        return await Promise.all(attempts);
      })();
      const connections = outcomes.filter((outcome) => !(outcome instanceof Error));
      expect(connections).toHaveLength(backlog);
      for (const connection of connections) {
        await (connection as AsyncDisposable)[Symbol.asyncDispose]();
      }
    });

    it('rejects the waiting requests when the listener closes', async () => {
      const listener = await listen(started.server, { host: ADDRESS });
      const { port } = listener.address;
      const waiting = connect(started.client, { host: ADDRESS, port });
      const request = await listener.id.nextEvent({ signal: patience() });
      await using other = await resolvedId(port);
      const second = other.connect();
      await quiet(50);
      // Awaited from here on, since it may fail before the close has returned.
      const refused = expect(second).rejects.toEqual(verbsError('ECONNREFUSED'));
      await listener.close();
      await refused;
      await expect(connect(started.client, { host: ADDRESS, port })).rejects.toEqual(
        verbsError('ECONNREFUSED'),
      );
      // The request taken from the listener stays open, and is rejected when its id closes.
      await request.id.close();
      await expect(waiting).rejects.toEqual(verbsError('ECONNREFUSED'));
    });

    it('ECONNRESET for accepting a peer that went away', async () => {
      await using listener = await listen(started.server, { host: ADDRESS });
      const id = await resolvedId(listener.address.port);
      const connecting = id.connect();
      const { id: requested } = await listener.id.nextEvent({ signal: patience() });
      await id.close();
      await expect(connecting).rejects.toEqual(verbsError('ECONNABORTED'));
      await quiet(50);
      await using server = await started.server.open(DEVICE.name);
      const serverPD = await server.allocPD();
      const serverCQ = await server.createCQ({ cqe: 4 });
      const init = { sendCQ: serverCQ, recvCQ: serverCQ, maxSendWr: 1, maxRecvWr: 1 };
      await requested.createQP(serverPD, init);
      await expect(requested.accept()).rejects.toEqual(verbsError('ECONNRESET'));
      await requested.close();
    });

    it('EINVAL for accepting without a queue pair, which a request need not have [MPA-7.1-04]', async () => {
      await using listener = await listen(started.server, { host: ADDRESS });
      const id = await resolvedId(listener.address.port);
      const connecting = id.connect({ privateData: Uint8Array.of(1, 2, 3) });
      const { id: requested, privateData } = await listener.id.nextEvent({ signal: patience() });
      expect([...privateData.subarray(0, 3)]).toEqual([1, 2, 3]);
      await expect(requested.accept()).rejects.toEqual(verbsError('EINVAL'));
      await requested.reject();
      await expect(connecting).rejects.toEqual(verbsError('ECONNREFUSED'));
      await requested.close();
      await id.close();
    });

    it('EISCONN for a queue pair that has a connection', async () => {
      await using pair = await connectedPair(started);
      const { qp } = pair.client.connection;
      await using id = await started.client.createId();
      await id.resolveAddr({ address: ADDRESS, port: 9 });
      await expect(id.connect({ qp })).rejects.toEqual(verbsError('EISCONN'));
      await expect(pair.client.connection.id.connect({ qp })).rejects.toEqual(verbsError('EINVAL'));
    });
  });

  describe('the end', () => {
    it.each(['server', 'client'] as const)(
      'notifies both sides when the %s disconnects',
      async (who) => {
        await using pair = await connectedPair(started);
        const sides = [pair.server, pair.client];
        for (const { connection } of sides) {
          connection.qp.postRecv([
            { wrId: 1, sgList: [] },
            { wrId: 2, sgList: [] },
          ]);
        }
        await pair[who].connection.id.disconnect();
        for (const { connection } of sides) {
          await connection.disconnected({ signal: patience() });
          const flushed = { status: WCStatus.wrFlushErr, byteLen: 0 };
          expect(await completions(connection.cq, 2)).toMatchObject([
            { ...flushed, wrId: 1n },
            { ...flushed, wrId: 2n },
          ]);
          expect((await connection.qp.query()).state).toBe(QPState.ERR);
          // Work posted now is flushed too, by the device and in order.
          connection.qp.postRecv({ wrId: 3, sgList: [] });
          expect(await completions(connection.cq)).toMatchObject([{ ...flushed, wrId: 3n }]);
          connection.qp.postSend({ wrId: 4, opcode: WROpcode.send });
          expect(await completions(connection.cq)).toMatchObject([{ ...flushed, wrId: 4n }]);
          await connection.id.disconnect();
        }
      },
    );

    it('delivers everything sent before a graceful close', async () => {
      const { server, client } = await pairOfTest(started, { memoryBytes: 400_000 });
      server.connection.qp.postRecv({ wrId: 9, sgList: [server.mr.sge()] });
      client.mr.buffer.set(pattern(400_000));
      client.connection.qp.postSend(send([client.mr.sge()]));
      await completions(client.connection.cq);
      await client.connection.close();
      expect(await completions(server.connection.cq)).toMatchObject([
        { ...SUCCESS, byteLen: 400_000 },
      ]);
      expect(Buffer.compare(server.mr.buffer, pattern(400_000))).toBe(0);
      await server.connection.disconnected({ signal: patience() });
    });

    it('notifies the peer when a queue pair is destroyed or moved to ERR', async () => {
      await using first = await connectedPair(started);
      await first.client.connection.qp.modify({ state: QPState.ERR });
      await first.server.connection.disconnected({ signal: patience() });
      await first.client.connection.disconnected({ signal: patience() });
      await using second = await connectedPair(started);
      await second.server.connection.qp.close();
      await second.client.connection.disconnected({ signal: patience() });
    });

    it.skipIf(lacks(fixture, 'closingDrain'))('drains and closes in SQD', async () => {
      const { server, client } = await pairOfTest(started);
      server.connection.qp.postRecv({ sgList: [server.mr.sge()] });
      client.connection.qp.postSend(send([client.mr.sge()]));
      await client.connection.qp.modify({ state: QPState.SQD });
      expect(await completions(client.connection.cq)).toMatchObject([SUCCESS]);
      expect(await completions(server.connection.cq)).toMatchObject([SUCCESS]);
      await client.connection.disconnected({ signal: patience() });
    });

    it('resolves every wait for the end, whenever it began and whichever side disconnects', async () => {
      const { server, client } = await pairOfTest(started);
      const cancel = new AbortController();
      const cancelled = client.connection.disconnected({ signal: cancel.signal });
      const waits = [client.connection.disconnected(), client.connection.disconnected()];
      cancel.abort(new Error('enough'));
      await expect(cancelled).rejects.toThrow('enough');
      const own = server.connection.disconnected();
      await server.connection.close();
      await own;
      await Promise.all(waits);
      await client.connection.disconnected({ signal: patience() });
    });

    it('ends event loops when the id closes', async () => {
      await using pair = await connectedPair(started);
      const { id } = pair.client.connection;
      const types: number[] = [];
      const loop = (async () => {
        for await (const event of id.events()) types.push(event.type);
      })();
      await id.close();
      await loop;
      expect(types).toEqual([CMEventType.disconnected]);
    });
  });

  const needsBareInit = it.skipIf(lacks(fixture, 'bareInit'));
  needsBareInit(
    'connects a queue pair made without an id, and sends the earlier posts',
    async () => {
      await using listener = await listen(started.server, { host: ADDRESS });
      await using qp = await pd.createQP(qpInit());
      await qp.modify({ state: QPState.INIT });
      qp.postSend({ opcode: WROpcode.send, wrId: 5 });
      await using id = await started.client.createId();
      await id.resolveAddr({ address: ADDRESS, port: listener.address.port });
      const connecting = id.connect({ qp });
      for await (const request of listener) {
        await using accepted = await request.accept({
          prepare: (parts) => parts.qp.postRecv({ wrId: 6, sgList: [] }),
        });
        await connecting;
        expect(await completions(accepted.cq)).toMatchObject([{ ...SUCCESS, wrId: 6n }]);
        break;
      }
    },
  );

  it('speaks IPv6', async () => {
    const { server, client } = await pairOfTest(started, { address: DEVICE.addresses[1] });
    expect(client.connection.id.peerAddress?.address).toBe(DEVICE.addresses[1]);
    server.connection.qp.postRecv({ sgList: [server.mr.sge()] });
    client.connection.qp.postSend(send([client.mr.sge(0, 1000)]));
    expect(await completions(server.connection.cq)).toMatchObject([{ byteLen: 1000 }]);
  });

  it.each([
    ['MPA revision 1', { mpaRevision: 1 }],
    ['no wish for CRCs', { crc: false }],
    ['markers', { markers: true }],
    ['client-server startup', { peerToPeer: false }],
    ['large FPDUs', { fpduSize: 'large' }],
    ['FPDUs of 128 bytes', { fpduSize: 128 }],
  ] as const)(
    'carries data both ways with %s',
    needs(fixture, 'wireOptions', async (_name: string, wire: WireOptions) => {
      await using listener = await listen(started.server, { host: ADDRESS });
      await using server = await started.server.open(DEVICE.name);
      const serverPD = await server.allocPD();
      const serverMR = await serverPD.allocMR(100_000, ALL_ACCESS);
      await using clientMR = await pd.allocMR(100_000, ALL_ACCESS);
      const [connected, accepted] = await Promise.all([
        connect(started.client, { host: ADDRESS, port: listener.address.port, pd, wire }),
        acceptOne(listener, {
          pd: serverPD,
          prepare: (parts) => parts.qp.postRecv({ sgList: [] }),
        }),
      ]);
      clientMR.buffer.set(pattern(50_000));
      connected.qp.postSend(write([clientMR.sge(0, 50_000)], serverMR, 10));
      connected.qp.postSend(read([clientMR.sge(50_000, 50_000)], serverMR, 10));
      connected.qp.postSend(send([]));
      expect(await completions(connected.cq, 3)).toMatchObject([SUCCESS, SUCCESS, SUCCESS]);
      expect(await completions(accepted.cq)).toMatchObject([{ ...SUCCESS, opcode: WCOpcode.recv }]);
      expect(Buffer.compare(clientMR.buffer.subarray(50_000), pattern(50_000))).toBe(0);
      await Promise.all([connected.close(), accepted.close()]);
    }),
  );

  it('serves many connections at once', async () => {
    const count = 40;
    await using listener = await listen(started.server, { host: ADDRESS });
    await using server = await started.server.open(DEVICE.name);
    const serverPD = await server.allocPD();
    const serverMR = await serverPD.allocMR(count * 64, Access.localWrite);
    await using clientMR = await pd.allocMR(count * 64, Access.localWrite);
    const accepting = (async () => {
      const accepted = [];
      for await (const request of listener) {
        const slot = request.privateData[0] ?? 0;
        accepted.push(
          await request.accept({
            pd: serverPD,
            prepare: (parts) =>
              parts.qp.postRecv({ wrId: slot, sgList: [serverMR.sge(slot * 64, 64)] }),
          }),
        );
        if (accepted.length === count) break;
      }
      return accepted;
    })();
    const connected = await Promise.all(
      Array.from({ length: count }, (_, slot) =>
        connect(started.client, {
          host: ADDRESS,
          port: listener.address.port,
          pd,
          privateData: Uint8Array.of(slot),
        }),
      ),
    );
    const accepted = await accepting;
    clientMR.buffer.set(pattern(count * 64));
    for (const [slot, connection] of connected.entries()) {
      connection.qp.postSend(send([clientMR.sge(slot * 64, 64)]));
    }
    for (const connection of accepted) {
      expect(await completions(connection.cq)).toMatchObject([{ ...SUCCESS, byteLen: 64 }]);
    }
    expect(serverMR.buffer).toEqual(pattern(count * 64));
    expect(new Set(accepted.map(({ qp }) => qp.qpNum)).size).toBe(count);
    await Promise.all([...accepted, ...connected].map((connection) => connection.close()));
  });
}

/** The outcome of the `count`th promise to settle. */
async function firstSettled<T>(promises: readonly Promise<T>[], count: number): Promise<T> {
  return await new Promise((resolve) => {
    let settled = 0;
    for (const promise of promises) {
      void promise.then((value) => {
        settled += 1;
        if (settled === count) resolve(value);
      });
    }
  });
}
