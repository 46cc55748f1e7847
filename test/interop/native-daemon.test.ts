import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Access, AsyncEventType, SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import { type ConnectionRequest, connect, listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { NativeDaemonRig } from '../support/native-daemon.ts';

const ACCESS = Access.localWrite | Access.remoteRead | Access.remoteWrite;

describe('a daemon with native devices', () => {
  const rig = new NativeDaemonRig();
  let server: Provider;
  let client: Provider;

  beforeAll(async () => {
    await rig.start([{ name: 'siw0', addresses: ['127.0.0.1'] }], ['--device', 'emu0=127.0.0.3']);
    [server, client] = await Promise.all([
      connectDaemon({ socketPath: rig.socketPath }),
      connectDaemon({ socketPath: rig.socketPath }),
    ]);
  });
  afterAll(async () => {
    await Promise.all([server?.close(), client?.close()]);
    expect(await rig.stop()).toBe(0);
  });

  it('lists them beside the emulated ones', async () => {
    expect(await client.devices()).toMatchObject([
      { name: 'emu0', backend: 'emulated', addresses: ['127.0.0.3'] },
      { name: 'siw0', backend: 'native', addresses: ['127.0.0.1'] },
    ]);
  });

  it.each([
    ['from the emulated device to the native one', '127.0.0.1', '127.0.0.3'],
    ['from the native device to the emulated one', '127.0.0.3', '127.0.0.1'],
    ['from the native device to itself', '127.0.0.1', '127.0.0.1'],
  ])('transfers %s, through one daemon', async (_name, to, from) => {
    await using listener = await listen(server, { host: to });
    const accepting = (async () => {
      for await (const request of listener) {
        return await request.accept({
          prepare: async ({ pd, qp }) => {
            const mr = await pd.allocMR(4096, ACCESS);
            qp.postRecv({ wrId: 7, sgList: [mr.sge()] });
          },
        });
      }
      throw new Error('no request');
    })();
    await using connected = await connect(client, {
      host: to,
      port: listener.address.port,
      source: { address: from, port: 0 },
    });
    await using accepted = await accepting;
    const mr = await connected.pd.allocMR(4096, ACCESS);
    mr.buffer.fill(0x5a);
    connected.qp.postSend({
      wrId: 3,
      opcode: WROpcode.send,
      flags: SendFlag.signaled,
      sgList: [mr.sge(0, 100)],
    });
    expect(await connected.cq.wait()).toMatchObject([{ wrId: 3n, status: WCStatus.success }]);
    expect(await accepted.cq.wait()).toMatchObject([
      { wrId: 7n, status: WCStatus.success, byteLen: 100 },
    ]);
  });
});

describe('connections of a native device', () => {
  const rig = new NativeDaemonRig();
  let server: Provider;
  let client: Provider;

  beforeAll(async () => {
    await rig.start([{ name: 'siw0', addresses: ['127.0.0.1'] }], ['--device', 'emu0=127.0.0.3']);
    const { socketPath } = rig;
    [server, client] = await Promise.all([
      connectDaemon({ socketPath }),
      connectDaemon({ socketPath }),
    ]);
  });
  afterAll(async () => {
    await Promise.all([server?.close(), client?.close()]);
    expect(await rig.stop()).toBe(0);
  });

  it('come and go in large numbers while other threads destroy ids', async () => {
    const outcomes: string[] = [];
    for (let round = 0; round < 60; round += 1) {
      await using listener = await listen(server, { host: '127.0.0.1' });
      const connecting = connect(client, { host: '127.0.0.1', port: listener.address.port });
      for await (const request of listener) {
        if (round % 3 === 0) {
          await request.reject();
          outcomes.push(
            await connecting.then(
              () => 'connected',
              ({ code }) => code,
            ),
          );
        } else {
          await using accepted = await request.accept();
          await using connected = await connecting;
          outcomes.push(accepted.qp.qpNum === connected.qp.qpNum ? 'one QP' : 'connected');
        }
        break;
      }
    }
    const expected = ['ECONNREFUSED', 'connected', 'connected'];
    expect(outcomes).toEqual(Array.from({ length: 60 }, (_, round) => expected[round % 3]));
  });

  it('carry long messages, in order and whole, both ways at once', async () => {
    const bytes = 1 << 20;
    await using listener = await listen(server, { host: '127.0.0.1' });
    const connecting = connect(client, { host: '127.0.0.1', port: listener.address.port });
    let accepting: ReturnType<typeof acceptWith> | undefined;
    for await (const request of listener) {
      accepting = acceptWith(request);
      break;
    }
    if (accepting === undefined) throw new Error('no request');
    await using accepted = await accepting;
    await using connected = await connecting;
    const sides = await Promise.all(
      [accepted, connected].map(async ({ pd, qp, cq }, side) => {
        const from = await pd.allocMR(bytes, ACCESS);
        const to = await pd.allocMR(bytes, ACCESS);
        from.buffer.forEach((_byte, index) => {
          from.buffer[index] = (index * 31 + side) & 0xff;
        });
        return { qp, cq, from, to };
      }),
    );
    const [one, two] = sides;
    if (one === undefined || two === undefined) throw new Error('two sides');
    for (const [here, there] of [
      [one, two],
      [two, one],
    ] as const) {
      const pieces = Array.from({ length: 16 }, (_, index) => index * (bytes / 16));
      here.qp.postSend(
        pieces.map((offset) => ({
          opcode: WROpcode.rdmaWrite,
          flags: SendFlag.signaled,
          sgList: [here.from.sge(offset, bytes / 16)],
          remoteAddr: there.to.address + BigInt(offset),
          rkey: there.to.rkey,
        })),
      );
      here.qp.postSend({
        wrId: 99,
        opcode: WROpcode.rdmaRead,
        flags: SendFlag.signaled,
        sgList: [here.from.sge(0, 8)],
        remoteAddr: there.to.address,
        rkey: there.to.rkey,
      });
    }
    for (const { cq } of sides) {
      let seen = 0;
      while (seen < 17) {
        const completions = await cq.wait();
        expect(completions.every(({ status }) => status === WCStatus.success)).toBe(true);
        seen += completions.length;
      }
    }
    expect(Buffer.compare(one.to.buffer, two.from.buffer)).toBe(0);
    expect(Buffer.compare(two.to.buffer, one.from.buffer)).toBe(0);
  });

  function acceptWith(request: ConnectionRequest) {
    return request.accept();
  }
});

describe('a daemon whose native devices go away', () => {
  it('notifies its clients, continues without the devices, and exits cleanly', async () => {
    const rig = new NativeDaemonRig();
    await rig.start([{ name: 'siw0', addresses: ['127.0.0.1'] }], ['--device', 'emu0=127.0.0.3']);
    const client = await connectDaemon({ socketPath: rig.socketPath });
    const context = await client.open('siw0');
    const events = context.asyncEvents()[Symbol.asyncIterator]();
    const event = events.next();
    const pd = await context.allocPD();
    const mr = await pd.allocMR(64, ACCESS);
    const cq = await context.createCQ({ cqe: 8 });
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });
    await rig.lower.stop();
    expect((await event).value).toMatchObject({ type: AsyncEventType.deviceFatal });
    await expect(context.allocPD()).rejects.toMatchObject({ code: 'EIO' });
    // Objects of a removed device are released, too.
    await qp.close();
    await mr.close();
    await using emulated = await client.open('emu0');
    expect((await emulated.queryPort()).state).toBe('active');
    await context.close();
    await client.close();
    expect(await rig.stop()).toBe(0);
  });
});
