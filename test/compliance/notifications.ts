import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { AsyncEventType, SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { CompChannel, CQ } from '#contract/verbs/provider';
import { quiet } from '../support/patience.ts';
import {
  ALL_ACCESS,
  completions,
  connectedPair,
  lacks,
  needs,
  type ProviderFixture,
  pairOfTest,
  patience,
  type StartedFixture,
  SUCCESS,
  send,
  verbsError,
  write,
} from '../support/provider-fixture.ts';

/** Long enough for any event to arrive. */
const QUIET_MS = 50;

/** Completion channels, arming, waiting, overflow: how consumers are notified of completions. */
export function notificationSuite(fixture: ProviderFixture): void {
  let started: StartedFixture;
  beforeAll(async () => {
    started = await fixture.start();
  });
  afterAll(() => started.stop());

  /** A pair with a server that completes to a queue with its own channel. */
  async function pairWithChannel(cqe = 64) {
    const context = await started.server.open();
    const pd = await context.allocPD();
    const channel = await context.createCompChannel();
    const cq = await context.createCQ({ cqe, channel });
    const mr = await pd.allocMR(4096, ALL_ACCESS);
    const pair = await connectedPair(started, { serverEndpoint: { pd, cq } });
    const { qp } = pair.server.connection;
    qp.postRecv(Array.from({ length: 32 }, () => ({ sgList: [mr.sge(0, 64)] })));
    return {
      pair,
      context,
      channel,
      cq,
      sender: pair.client.connection,
      mr: pair.client.mr,
      target: mr,
      async [Symbol.asyncDispose]() {
        await pair[Symbol.asyncDispose]();
        await context.close();
      },
    };
  }

  /** True if the channel has no event and receives none for a while. */
  async function staysQuiet(channel: CompChannel): Promise<boolean> {
    const signal = AbortSignal.timeout(QUIET_MS);
    return await channel.nextEvent({ signal }).then(
      () => false,
      () => true,
    );
  }

  async function filled(cq: CQ, count: number): Promise<void> {
    // Polling consumes completions, so the sender's completions show when the data have arrived.
    for (let seen = 0; seen < count; ) seen += (await completions(cq, 1)).length;
  }

  it('fires once for each arming, and not without', async () => {
    await using parts = await pairWithChannel();
    const { channel, cq, sender, mr } = parts;
    sender.qp.postSend(send([mr.sge(0, 1)]));
    await filled(sender.cq, 1);
    expect(await staysQuiet(channel)).toBe(true);
    cq.requestNotify();
    // Earlier completions do not fire the queue.
    expect(await staysQuiet(channel)).toBe(true);
    sender.qp.postSend([send([mr.sge(0, 1)]), send([mr.sge(0, 1)])]);
    expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
    expect(await staysQuiet(channel)).toBe(true);
    expect(await completions(cq, 3)).toHaveLength(3);
    cq.requestNotify();
    sender.qp.postSend(send([mr.sge(0, 1)]));
    expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
  });

  it.skipIf(lacks(fixture, 'solicitedEvents'))(
    'passes over unsolicited Sends when armed for solicited ones',
    async () => {
      await using parts = await pairWithChannel();
      const { channel, cq, sender, mr } = parts;
      cq.requestNotify(true);
      sender.qp.postSend(send([mr.sge(0, 1)]));
      if (lacks(fixture, 'solicitedOnly')) await channel.nextEvent({ signal: patience() });
      else expect(await staysQuiet(channel)).toBe(true);
      cq.requestNotify(true);
      const flags = SendFlag.signaled | SendFlag.solicited;
      sender.qp.postSend({ ...send([mr.sge(0, 1)]), flags });
      expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
      expect(await completions(cq, 2)).toMatchObject([SUCCESS, SUCCESS]);
    },
  );

  it(
    'treats Immediate Data as solicited only if the sender solicits [RDMAPX-6.3-06]',
    needs(fixture, 'immediateData', async () => {
      await using parts = await pairWithChannel();
      const { channel, cq, sender, mr } = parts;
      cq.requestNotify(true);
      const immediate = { opcode: WROpcode.immediate, immData: 1 };
      sender.qp.postSend({ ...immediate, flags: SendFlag.signaled });
      expect(await staysQuiet(channel)).toBe(true);
      sender.qp.postSend({ ...immediate, flags: SendFlag.solicited });
      expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
      expect(cq.poll()).toHaveLength(2);
      cq.requestNotify(true);
      sender.qp.postSend({
        ...write([mr.sge(0, 8)], parts.target),
        opcode: WROpcode.rdmaWriteWithImm,
        flags: SendFlag.solicited,
        immData: 2,
      });
      expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
    }),
  );

  it.skipIf(lacks(fixture, 'solicitedEvents'))(
    'treats failed completions as solicited',
    async () => {
      await using parts = await pairWithChannel();
      const { channel, cq, sender } = parts;
      cq.requestNotify(true);
      await sender.id.disconnect();
      expect(await channel.nextEvent({ signal: patience() })).toBe(cq);
      const [wc] = cq.poll(1);
      expect(wc?.status).toBe(WCStatus.wrFlushErr);
    },
  );

  it('has a descriptor if the device is in another process', async () => {
    await using parts = await pairWithChannel();
    const { fd } = parts.channel;
    if (started.server.kind === 'embedded') expect(fd).toBeUndefined();
    else expect(fd).toBeGreaterThan(2);
  });

  it('waits on one queue from several places, and is cancelled by its signal', async () => {
    const { server, client } = await pairOfTest(started);
    const { cq, qp } = server.connection;
    qp.postRecv(Array.from({ length: 4 }, () => ({ sgList: [] })));
    const cancel = new AbortController();
    const cancelled = cq.wait({ signal: cancel.signal });
    const waits = [
      cq.wait({ max: 1, signal: patience() }),
      cq.wait({ max: 1, signal: patience() }),
    ];
    cancel.abort(new Error('enough'));
    await expect(cancelled).rejects.toThrow('enough');
    client.connection.qp.postSend([send([]), send([])]);
    for (const wait of waits) expect(await wait).toHaveLength(1);
    await expect(cq.wait({ max: 0 })).rejects.toEqual(verbsError('EINVAL'));
  });

  it('loses no wake-up between polling and arming', async () => {
    const depth = 64;
    const endpoint = { maxRecvWr: depth, maxSendWr: depth };
    const { server, client } = await pairOfTest(started, { endpoint });
    const rounds = 500;
    const serve = (async () => {
      server.connection.qp.postRecv({ sgList: [server.mr.sge(0, 8)] });
      for (let round = 0; round < rounds; round += 1) {
        const [wc] = await completions(server.connection.cq);
        if (wc?.opcode !== 128) {
          round -= 1;
          continue;
        }
        server.connection.qp.postRecv({ sgList: [server.mr.sge(0, 8)] });
        server.connection.qp.postSend({ ...send([server.mr.sge(0, 8)]), flags: 0 });
      }
    })();
    for (let round = 0; round < rounds; round += 1) {
      client.connection.qp.postRecv({ sgList: [client.mr.sge(0, 8)] });
      client.connection.qp.postSend({ ...send([client.mr.sge(0, 8)]), flags: 0 });
      let received = 0;
      while (received === 0) {
        const taken = await completions(client.connection.cq);
        received = taken.filter((wc) => wc.opcode === 128).length;
      }
    }
    await serve;
  });

  it('iterates over completions until the queue closes', async () => {
    const context = await started.server.open();
    const cq = await context.createCQ({ cqe: 4 });
    const loop = (async () => {
      for await (const wc of cq) expect.unreachable(`a completion ${wc.wrId}`);
    })();
    await quiet(10);
    await cq.close();
    await loop;
    await expect(cq.wait()).rejects.toEqual(verbsError('EINVAL'));
    await context.close();
  });

  describe('overflow', () => {
    it.skipIf(lacks(fixture, 'overflow'))(
      'keeps the completions that fit, raises cqErr, and continues once there is room',
      async () => {
        const cqe = 4;
        await using parts = await pairWithChannel(cqe);
        const { context, cq, sender, mr } = parts;
        const event = context.asyncEvents()[Symbol.asyncIterator]().next();
        const count = 6;
        sender.qp.postSend(Array.from({ length: count }, () => send([mr.sge(0, 1)])));
        await filled(sender.cq, count);
        expect((await event).value).toMatchObject({
          type: AsyncEventType.cqErr,
          element: cq.handle,
        });
        expect(cq.poll(count)).toHaveLength(cqe);
        sender.qp.postSend(send([mr.sge(0, 1)]));
        expect(await completions(cq)).toMatchObject([SUCCESS]);
      },
    );
  });
}
