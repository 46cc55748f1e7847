import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access, CMEventType, QPState } from '#contract/verbs/enums';
import type { ConnectionId, PD, QP } from '#contract/verbs/provider';
import { FakeId, NativeRig } from '#test/support/native-rig';

const NATIVE = '127.0.0.2';
const EMULATED = '127.0.0.1';

let rig: NativeRig;
let pd: PD;

beforeEach(async () => {
  rig = new NativeRig();
  pd = await (await rig.provider.open('nat0')).allocPD();
});
afterEach(() => rig.close());

/** The latest id of rdma_cm. */
function native(): FakeId {
  const id = rig.channel.ids.at(-1);
  if (id === undefined) throw new Error('rdma_cm has no id');
  return id;
}

async function newQP(): Promise<QP> {
  const cq = await pd.context.createCQ({ cqe: 8 });
  return await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 });
}

async function bound(): Promise<ConnectionId> {
  const id = await rig.provider.createId();
  await id.bindAddr({ address: NATIVE, port: 0 });
  return id;
}

async function resolved(): Promise<ConnectionId> {
  const id = await bound();
  const resolving = id.resolveAddr({ address: NATIVE, port: 9 });
  await rig.cmEvent(native(), CMEventType.addrResolved);
  await resolving;
  return id;
}

/** A listener, and the parameters of a connect request for it. */
async function requested(): Promise<{ listener: ConnectionId; id: ConnectionId; lower: FakeId }> {
  const listener = await bound();
  await listener.listen(1);
  const request = await newRequest(native());
  const event = await listener.nextEvent();
  expect(event.type).toBe(CMEventType.connectRequest);
  return { listener, id: event.id, lower: request };
}

async function newRequest(listenId: FakeId): Promise<FakeId> {
  const lower = new FakeId((ended) => rig.channel.raise(ended, CMEventType.disconnected));
  lower.bindAddr({ address: NATIVE, port: 5000 });
  lower.peerAddress = { address: '127.0.0.5', port: 6000 };
  await rig.cmEvent(lower, CMEventType.connectRequest, {
    listenId,
    privateData: Uint8Array.of(1, 2),
    initiatorDepth: 4,
    responderResources: 5,
  });
  return lower;
}

describe('the host of an id', () => {
  it('is decided by the address that it is bound to', async () => {
    const id = await rig.provider.createId();
    expect(rig.channel.ids).toEqual([]);
    await id.bindAddr({ address: NATIVE, port: 0 });
    expect(id.device).toBe('nat0');
    expect(id.localAddress).toEqual({ address: NATIVE, port: 5000 });
    const other = await rig.provider.createId();
    await other.bindAddr({ address: EMULATED, port: 0 });
    expect(other.device).toBe('emu0');
    expect(rig.channel.ids).toHaveLength(1);
  });

  it('is decided by the source of a destination', async () => {
    const id = await rig.provider.createId();
    const resolving = id.resolveAddr(
      { address: '127.0.0.9', port: 9 },
      { source: { address: NATIVE, port: 0 } },
    );
    expect(native().asked).toEqual(['resolveAddr']);
    native().bindAddr({ address: NATIVE, port: 0 });
    await rig.cmEvent(native(), CMEventType.addrResolved);
    await resolving;
    expect(id.device).toBe('nat0');
    const other = await rig.provider.createId();
    await other.resolveAddr({ address: EMULATED, port: 9 });
    expect(other.device).toBe('emu0');
  });

  it('is both for an id that listens on any address, if rdma_cm allows it', async () => {
    const id = await rig.provider.createId();
    await id.listen();
    expect(native().asked).toEqual(['bindAddr', 'listen']);
    expect(native().localAddress?.port).toBe(id.localAddress?.port);
    await newRequest(native());
    const event = await id.nextEvent();
    expect(event).toMatchObject({ type: CMEventType.connectRequest });
    expect(event.id.device).toBe('nat0');
    await id.close();
    expect(native().asked).toContain('dispose');
  });

  it('stays the emulated one for an id that listens', async () => {
    const id = await rig.provider.createId();
    await id.listen();
    await expect(
      id.resolveAddr({ address: NATIVE, port: 9 }, { source: { address: NATIVE, port: 0 } }),
    ).rejects.toMatchObject({ code: 'EINVAL' });
  });

  it('changes when the first one does not have the address', async () => {
    const id = await rig.provider.createId();
    const resolving = id.resolveAddr(
      { address: NATIVE, port: 9 },
      { source: { address: NATIVE, port: 0 } },
    );
    const failing = expect(resolving).rejects.toMatchObject({ code: 'EHOSTUNREACH' });
    await rig.cmEvent(native(), CMEventType.addrError, { status: -113 });
    await failing;
    await id.bindAddr({ address: EMULATED, port: 0 });
    expect(id.device).toBe('emu0');
    expect(native().asked).toContain('dispose');
  });
});

describe('connecting over a native device', () => {
  it('resolves the route if the program did not, and reports the outcome', async () => {
    const id = await resolved();
    const qp = await newQP();
    const connecting = id.connect({ qp, privateData: Uint8Array.of(7), initiatorDepth: 2 });
    await rig.turn();
    expect(native().asked.slice(-2)).toEqual(['initialise', 'resolveRoute']);
    await rig.cmEvent(native(), CMEventType.routeResolved);
    expect(native().parameters).toMatchObject({
      privateData: Uint8Array.of(7),
      initiatorDepth: 2,
      responderResources: 8,
    });
    await rig.cmEvent(native(), CMEventType.established, { privateData: Uint8Array.of(8) });
    expect(await connecting).toMatchObject({ privateData: Uint8Array.of(8) });
    expect((await qp.query()).state).toBe(QPState.RTS);
  });

  it('keeps the queue pair unchanged when the peer rejects', async () => {
    const id = await resolved();
    await routed(id);
    const qp = await newQP();
    const refused = expect(id.connect({ qp })).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    await rig.cmEvent(native(), CMEventType.rejected, { privateData: Uint8Array.of(3) });
    await refused;
    const again = await resolved();
    await routed(again);
    const second = again.connect({ qp });
    await rig.cmEvent(native(), CMEventType.established);
    await second;
    await id.close();
    expect((await qp.query()).state).toBe(QPState.RTS);
  });

  async function routed(id: ConnectionId): Promise<void> {
    const resolving = id.resolveRoute();
    await rig.cmEvent(native(), CMEventType.routeResolved);
    await resolving;
  }

  it.each([
    ['too much private data', { privateData: new Uint8Array(17) }, 'EINVAL'],
    ['a depth beyond the device', { initiatorDepth: 9 }, 'EINVAL'],
    ['wire options', { wire: { crc: false } }, 'EOPNOTSUPP'],
  ])('is refused for %s', async (_name, parameters, code) => {
    const id = await resolved();
    await expect(id.connect({ qp: await newQP(), ...parameters })).rejects.toMatchObject({ code });
    expect(native().parameters).toBeUndefined();
  });

  it('is refused for a queue pair of another device, and for a connected one', async () => {
    const id = await resolved();
    const emulated = await (await rig.provider.open('emu0')).allocPD();
    const cq = await emulated.context.createCQ({ cqe: 1 });
    const foreign = await emulated.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 });
    await expect(id.connect({ qp: foreign })).rejects.toMatchObject({ code: 'EINVAL' });
    const qp = await newQP();
    void id.connect({ qp }).catch(() => undefined);
    const other = await resolved();
    await expect(other.connect({ qp })).rejects.toMatchObject({ code: 'EISCONN' });
  });
});

describe('resolving over a native device', () => {
  it('reports each outcome by one event, and allows another attempt after a failure', async () => {
    const id = await bound();
    const asked = [
      { start: () => id.resolveAddr({ address: NATIVE, port: 9 }), type: CMEventType.addrError },
      { start: () => id.resolveAddr({ address: NATIVE, port: 9 }), type: CMEventType.addrResolved },
      { start: () => id.resolveRoute(), type: CMEventType.routeError },
      { start: () => id.resolveRoute(), type: CMEventType.routeResolved },
    ];
    const failures: readonly CMEventType[] = [CMEventType.addrError, CMEventType.routeError];
    for (const { start, type } of asked) {
      const outcome = start().catch((error: unknown) => error);
      await expect(id.resolveRoute()).rejects.toMatchObject({ code: 'EINVAL' });
      const failed = failures.includes(type);
      await rig.cmEvent(native(), type, { status: failed ? -113 : 0 });
      if (failed) expect(await outcome).toMatchObject({ code: 'EHOSTUNREACH' });
      else expect(await outcome).toBeUndefined();
      expect((await id.nextEvent()).type).toBe(type);
    }
  });

  it('rejects the resolution in progress when the id closes', async () => {
    const id = await bound();
    const resolving = id.resolveAddr({ address: NATIVE, port: 9 });
    const failing = expect(resolving).rejects.toMatchObject({ code: 'ECONNABORTED' });
    await id.close();
    await failing;
  });
});

describe('listening on a native device', () => {
  it('delivers requests with their data, depths and addresses', async () => {
    const { id, lower } = await requested();
    expect(id.device).toBe('nat0');
    expect(id.peerAddress).toEqual({ address: '127.0.0.5', port: 6000 });
    const qp = await newQP();
    const accepting = id.accept({ qp });
    await rig.turn();
    expect(lower.asked).toContain('accept');
    await rig.cmEvent(lower, CMEventType.established);
    await accepting;
    expect((await qp.query()).state).toBe(QPState.RTS);
  });

  it('posts the receives to the device before the accept', async () => {
    const { id } = await requested();
    const qp = await newQP();
    const mr = await pd.allocMR(8, Access.localWrite);
    qp.postRecv({ sgList: [mr.sge()] });
    void id.accept({ qp }).catch(() => undefined);
    await rig.turn();
    expect(rig.device.qps.at(-1)?.receives).toHaveLength(1);
  });

  it('applies the backlog, counting unanswered requests', async () => {
    const { id, lower } = await requested();
    const [listenId] = rig.channel.ids;
    if (listenId === undefined) throw new Error('no listener');
    expect((await newRequest(listenId)).asked).toContain('dispose');
    await id.reject(Uint8Array.of(1));
    expect(lower.asked).toContain('reject');
    expect((await newRequest(listenId)).asked).not.toContain('dispose');
  });

  it('fails with ECONNRESET when the peer left before the answer', async () => {
    const { id, lower } = await requested();
    await rig.cmEvent(lower, CMEventType.disconnected);
    await expect(id.accept({ qp: await newQP() })).rejects.toMatchObject({ code: 'ECONNRESET' });
  });

  it('rejects requests for a device that is not served, or for a listener that left', async () => {
    const { listener } = await requested();
    const [listenId] = rig.channel.ids;
    if (listenId === undefined) throw new Error('no listener');
    const stranger = new FakeId(() => undefined);
    stranger.deviceName = 'mlx0';
    await rig.cmEvent(stranger, CMEventType.connectRequest, { listenId });
    expect(stranger.asked).toContain('dispose');
    await listener.close();
    expect((await newRequest(listenId)).asked).toContain('dispose');
  });
});
