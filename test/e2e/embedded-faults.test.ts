/** Faults of embedded devices, without a daemon. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { FaultSpec } from '#contract/protocol/faults';
import { Access, AsyncEventType, SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { QP } from '#contract/verbs/provider';
import { createEmbedded, type EmbeddedProvider } from '#daemon/embedded/embedded-provider';
import { connect, type Listener, listen } from '#verbs-api/connect';
import { asyncEventLog, withFault } from '#verbs-api/testing/index';

const LEFT = '127.0.0.2';
const RIGHT = '127.0.0.3';
const BYTES = 512;

let rnic: EmbeddedProvider;
let listener: Listener;

beforeEach(async () => {
  rnic = await createEmbedded({
    devices: [
      { name: 'left', addresses: [LEFT] },
      { name: 'right', addresses: [RIGHT] },
    ],
  });
  listener = await listen(rnic, { host: RIGHT });
});

afterEach(() => rnic.close());

/** A connection from left to right with memory at both ends, and receives posted at the right. */
async function connected() {
  const accepting = (async () => {
    for await (const request of listener) {
      const context = await rnic.open('right');
      const pd = await context.allocPD();
      const mr = await pd.allocMR(BYTES, Access.localWrite | Access.remoteWrite);
      const prepare = ({ qp }: { readonly qp: QP }): void => {
        for (let i = 0; i < 4; i++) qp.postRecv({ sgList: [mr.sge()] });
      };
      return { ...(await request.accept({ pd, prepare })), mr };
    }
    throw new Error('the listener has ended');
  })();
  accepting.catch(() => undefined);
  const left = await connect(rnic, { host: RIGHT, port: listener.address.port });
  const right = await accepting;
  const mr = await left.pd.allocMR(BYTES, Access.localWrite);
  return { left: { ...left, mr }, right };
}

type Pair = Awaited<ReturnType<typeof connected>>;

/** Sends from the left; returns the status of the completion there. */
async function sent({ left }: Pair): Promise<WCStatus | undefined> {
  left.qp.postSend({ opcode: WROpcode.send, flags: SendFlag.signaled, sgList: [left.mr.sge()] });
  const [completion] = await left.cq.wait();
  return completion?.status;
}

describe('faults of an embedded provider', () => {
  it('trigger on matching occasions, and count them', async () => {
    const pair = await connected();
    const spec: FaultSpec = { kind: 'terminate', device: 'left', opcode: 'send', nth: 3 };
    await withFault(
      spec,
      async (fault) => {
        expect(await rnic.faults()).toEqual([{ id: fault.id, spec, matched: 0, fired: 0 }]);
        expect(await sent(pair)).toBe(WCStatus.success);
        expect(await sent(pair)).toBe(WCStatus.success);
        expect((await fault.status()).fired).toBe(0);
        await sent(pair);
        await expect.poll(async () => (await fault.status()).fired).toBe(1);
        expect(await sent(pair)).toBe(WCStatus.wrFlushErr);
      },
      rnic,
    );
    expect(await rnic.faults()).toEqual([]);
  });

  it('fail verbs', async () => {
    const context = await rnic.open('left');
    const pd = await context.allocPD();
    const spec: FaultSpec = { kind: 'errno', errno: 'ENOMEM', verb: 'regMR', pid: process.pid };
    await withFault(
      spec,
      async () => {
        const refused = pd.regMR(new Uint8Array(64), Access.localWrite);
        await expect(refused).rejects.toMatchObject({ code: 'ENOMEM' });
      },
      rnic,
    );
    await (await pd.regMR(new Uint8Array(64), Access.localWrite)).close();
  });

  it('take a port down and up again, with events', async () => {
    const context = await rnic.open('left');
    const log = asyncEventLog(context);
    await withFault(
      { kind: 'port-down', device: 'left' },
      async () => {
        await log.next(AsyncEventType.portErr);
        expect((await context.queryPort()).state).toBe('down');
      },
      rnic,
    );
    await log.next(AsyncEventType.portActive);
    expect((await context.queryPort()).state).toBe('active');
  });

  it('get a seed that repeats their choices', async () => {
    const { id, spec } = await rnic.addFault({ kind: 'delay', ms: 1, probability: 0.5 });
    expect(spec.seed).toEqual(expect.any(Number));
    const again = await rnic.addFault(spec);
    expect(again.spec).toEqual(spec);
    expect(await rnic.removeFault(id)).toMatchObject({ id });
    await expect(rnic.removeFault(id)).rejects.toMatchObject({ code: 'ENOENT' });
    expect(await rnic.removeFaults()).toMatchObject([{ id: again.id }]);
    expect(await rnic.faults()).toEqual([]);
  });

  it.each<[string, object, RegExp]>([
    ['an unknown kind', { kind: 'gremlin' }, /^addFault: spec\.kind must be /],
    ['an unknown field', { kind: 'delay', ms: 1, much: 2 }, /^much: unknown field/],
    ['a missing field', { kind: 'delay' }, /^ms: required by delay/],
    ['an unknown device', { kind: 'port-down', device: 'up' }, /^device: no device up; choose /],
    ['an invalid peer', { kind: 'delay', ms: 1, peer: 'x:y' }, /^peer: 'x:y' is not ADDRESS/],
  ])('are refused with %s, which the error names', async (_, spec, message) => {
    const refused = rnic.addFault(spec as FaultSpec);
    await expect(refused).rejects.toMatchObject({
      code: 'EINVAL',
      message: expect.stringMatching(message),
    });
    expect(await rnic.faults()).toEqual([]);
  });

  it('end when the provider is closed, without delaying it', async () => {
    const pair = await connected();
    await rnic.addFault({ kind: 'stall' });
    pair.left.qp.postSend({ opcode: WROpcode.send, sgList: [pair.left.mr.sge()] });
    await rnic.close();
    await expect(rnic.addFault({ kind: 'port-up' })).rejects.toMatchObject({ code: 'EINVAL' });
  });
});
