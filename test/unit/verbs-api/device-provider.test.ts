import { describe, expect, it, vi } from 'vitest';
import { ConnectionRejectedError } from '#contract/verbs/connect-errors';
import { Access, CMEventType, QPState, SendFlag, WROpcode } from '#contract/verbs/enums';
import { VerbsError } from '#contract/verbs/errors';
import type { SendWR } from '#contract/verbs/work-request';
import { patient } from '#test/support/patience';
import { DeviceProvider } from '#verbs-api/client/device-provider';
import { FakeChannel } from './fake-channel.ts';

const SEND: SendWR = { opcode: WROpcode.send, flags: SendFlag.signaled };

async function setUp() {
  const device = new FakeChannel();
  const provider = new DeviceProvider(device);
  const context = await provider.open();
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: 8 });
  const cqRing = device.rings.get('ring 0') ?? new Uint8Array(0);
  const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 });
  return { device, provider, context, pd, cq, cqRing, qp };
}

/** Lets everything run that is due. */
const settle = () => new Promise((resolve) => setImmediate(resolve));
const code = (value: string) => expect.objectContaining({ name: 'VerbsError', code: value });

describe('DeviceProvider: a full queue', () => {
  it('is full because the queue pair is not connected, or nothing is polled', async () => {
    const { qp } = await setUp();
    const sends = Array.from({ length: qp.capabilities.maxSendWr }, () => SEND);
    qp.postSend(sends);
    expect(() => qp.postSend(SEND)).toThrow(/send queue is full: connect .* RTS; .* poll/);
    const receive = { wrId: 1, sgList: [] };
    qp.postRecv(Array.from({ length: qp.capabilities.maxRecvWr }, () => receive));
    expect(() => qp.postRecv(receive)).toThrow(/receive queue is full: .*poll/);
  });
});

describe('DeviceProvider: lifetime', () => {
  it('closes the objects of a context, dependants first, then the device', async () => {
    const { device, context, pd } = await setUp();
    await pd.allocMR(64, 1);
    await pd.allocMW(2);
    await pd.createSRQ({ maxWr: 4 });
    device.asked.length = 0;
    await context.close();
    const queues = ['destroyQP', 'destroySRQ', 'destroyCQ'];
    const memory = ['deallocMW', 'deregMR', 'freeBuffer'];
    const rest = ['deallocPD', 'destroyCompChannel', 'closeDevice'];
    expect(device.asked).toEqual([...queues, ...memory, ...rest]);
  });

  it('closes an object once, however often close is called', async () => {
    const { device, qp } = await setUp();
    await Promise.all([qp.close(), qp.close()]);
    await qp[Symbol.asyncDispose]();
    expect(device.asked.filter((name) => name === 'destroyQP')).toHaveLength(1);
  });

  it('keeps an object that the device refuses to destroy', async () => {
    const { device, cq } = await setUp();
    device.refusals.set('destroyCQ', new VerbsError('EBUSY'));
    await expect(cq.close()).rejects.toEqual(code('EBUSY'));
    cq.requestNotify();
    device.refusals.clear();
    await cq.close();
    expect(() => cq.requestNotify()).toThrow(code('EINVAL'));
  });

  it('refuses calls on closed objects with EINVAL', async () => {
    const { qp, pd, context, provider } = await setUp();
    await qp.close();
    expect(() => qp.postSend(SEND)).toThrow(code('EINVAL'));
    expect(() => qp.postRecv({ sgList: [] })).toThrow(code('EINVAL'));
    await expect(qp.query()).rejects.toEqual(code('EINVAL'));
    await provider.close();
    await expect(pd.allocMR(1, 1)).rejects.toEqual(code('EINVAL'));
    await expect(context.queryDevice()).rejects.toEqual(code('EINVAL'));
    await expect(provider.devices()).rejects.toEqual(code('EINVAL'));
  });

  it('releases a shared buffer with the last region in it', async () => {
    const { device, pd } = await setUp();
    const whole = await pd.allocMR(64, 1);
    const part = await pd.regMR(whole.buffer.subarray(16, 32), 1);
    await whole.close();
    expect(device.asked).not.toContain('freeBuffer');
    await part.close();
    expect(device.asked).toContain('freeBuffer');
  });

  it('sends a daemon without RoCE no unknown fields', async () => {
    const { device, pd, cq } = await setUp();
    device.requests.length = 0;
    const qp = await pd.createQP({ sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 });
    await qp.modify({ state: QPState.INIT, accessFlags: undefined });
    await qp.modify({ accessFlags: Access.remoteRead });
    const [create, plain, rich] = device.requests;
    expect(create).not.toHaveProperty('type');
    expect(plain).toEqual({ qp: qp.handle, state: QPState.INIT });
    const attributes = { accessFlags: Access.remoteRead };
    expect(rich).toEqual({ qp: qp.handle, state: undefined, attributes });
  });

  it('refuses queues of another provider as invalid arguments', async () => {
    const here = await setUp();
    const there = await setUp();
    await expect(
      here.pd.createQP({ sendCQ: there.cq, recvCQ: here.cq, maxSendWr: 1, maxRecvWr: 1 }),
    ).rejects.toEqual(code('EINVAL'));
  });
});

describe('DeviceProvider: memory regions', () => {
  it('takes SGE offsets from the address of the region, inside its bounds', async () => {
    const { pd } = await setUp();
    const mr = await pd.regMR(new Uint8Array(100), 1);
    expect(mr.sge()).toEqual({ addr: 0x1000, length: 100, lkey: mr.lkey });
    expect(mr.sge(10)).toEqual({ addr: 0x100a, length: 90, lkey: mr.lkey });
    expect(mr.sge(100, 0)).toEqual({ addr: 0x1064, length: 0, lkey: mr.lkey });
    expect(() => mr.sge(0, 101)).toThrow(RangeError);
    expect(() => mr.sge(-1, 1)).toThrow(RangeError);
    expect(() => mr.sge(0, -1)).toThrow(RangeError);
    expect(() => mr.sge(0.5)).toThrow(RangeError);
  });

  it('names the argument that is outside, and its value', async () => {
    const { pd } = await setUp();
    const mr = await pd.regMR(new Uint8Array(100), Access.remoteRead);
    for (const call of ['sge', 'export'] as const) {
      const given = (...values: unknown[]) =>
        expect(() => mr[call](...(values as [number, number])));
      given('4').toThrow(
        `mr.${call}: offset must be a whole number from 0 to 100, the bytes of the region, ` +
          "not the string '4'",
      );
      given(4n).toThrow(/offset must be .*, not 4n$/);
      given(101).toThrow(/offset must be .*, not 101$/);
      given(0, 101).toThrow(/length must be .* 0 to 100, the bytes of the region, not 101$/);
      given(10, 91).toThrow(/length must be .* 0 to 90, the bytes from 10 on, not 91$/);
      given(0, null).toThrow(RangeError);
    }
  });

  it('describes no region that is closed', async () => {
    const { pd } = await setUp();
    const mr = await pd.regMR(new Uint8Array(100), Access.remoteRead);
    await mr.close();
    expect(() => mr.sge()).toThrow(code('EINVAL'));
    expect(() => mr.export()).toThrow('the memory region is closed');
  });
});

describe('DeviceProvider: posting', () => {
  it('posts the requests before a refused one, rings, and reports the index', async () => {
    const { device, qp } = await setUp();
    const list = [SEND, SEND, { ...SEND, flags: 64 }, SEND];
    expect(() => qp.postSend(list)).toThrow(
      expect.objectContaining({ code: 'EINVAL', badIndex: 2 }),
    );
    expect(device.doorbells).toEqual([qp.handle]);
    expect(() => qp.postSend([SEND, SEND, SEND])).toThrow(
      expect.objectContaining({ code: 'ENOMEM', badIndex: 2 }),
    );
  });

  it('notifies a flushing queue pair of new receives, which the device otherwise finds itself', async () => {
    const { device, qp, cq, cqRing } = await setUp();
    qp.postRecv({ sgList: [] });
    expect(device.doorbells).toEqual([]);
    device.complete(cqRing, 0, 1, 4);
    cq.poll();
    qp.postRecv({ sgList: [] });
    expect(device.doorbells).toEqual([qp.handle]);
  });
});

describe('DeviceProvider: completion queues', () => {
  it('wakes a wait by the event of the armed queue', async () => {
    const { device, cq, cqRing } = await setUp();
    const waiting = cq.wait();
    await settle();
    expect(new DataView(cqRing.buffer).getUint32(8 * 32, true)).toBe(3);
    device.complete(cqRing, 0, 5);
    device.fire(cq.handle);
    expect(await waiting).toMatchObject([{ wrId: 5n }]);
  });

  it('sees a completion that comes between polling and arming', async () => {
    const { device, cq, cqRing } = await setUp();
    const arm = Atomics.or;
    const early = vi.spyOn(Atomics, 'or').mockImplementationOnce((...parameters) => {
      // The device does not fire: the queue is not armed yet when it completes.
      device.complete(cqRing, 0, 5);
      return arm(...parameters);
    });
    expect(await cq.wait({ signal: patient() })).toMatchObject([{ wrId: 5n }]);
    early.mockRestore();
  });

  it('keeps waiting after a spurious event, and stops when cancelled', async () => {
    const { device, cq, cqRing } = await setUp();
    const cancel = new AbortController();
    const waiting = cq.wait({ signal: cancel.signal });
    device.fire(cq.handle);
    await settle();
    cancel.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await expect(cq.wait({ signal: cancel.signal })).rejects.toThrow('enough');
    device.complete(cqRing, 0, 6);
    expect(await cq.wait()).toHaveLength(1);
  });

  it('reports to its channel only the completions that the consumer armed for', async () => {
    const { device, context } = await setUp();
    const channel = await context.createCompChannel();
    const cq = await context.createCQ({ cqe: 4, channel });
    const ring = [...device.rings.values()].at(-1) ?? new Uint8Array(0);
    const waiting = cq.wait();
    device.complete(ring, 0, 1);
    device.fire(cq.handle);
    await waiting;
    const next = channel.nextEvent();
    let notified = false;
    void next.then(() => {
      notified = true;
    });
    await settle();
    expect(notified).toBe(false);
    cq.requestNotify();
    device.fire(cq.handle);
    expect(await next).toBe(cq);
    await expect(channel.close()).rejects.toEqual(code('EBUSY'));
    await cq.close();
    await channel.close();
  });

  it('iterates until the queue closes, and keeps completions that an abandoned loop did not see', async () => {
    const { device, cq, qp, cqRing } = await setUp();
    for (let index = 0; index < 4; index += 1) device.complete(cqRing, index, index);
    for await (const wc of cq) if (wc.wrId === 1n) break;
    expect(cq.poll(1)).toMatchObject([{ wrId: 2n }]);
    const seen: bigint[] = [];
    const loop = (async () => {
      for await (const wc of cq) seen.push(wc.wrId);
    })();
    await settle();
    await qp.close();
    await cq.close();
    await loop;
    expect(seen).toEqual([3n]);
  });
});

describe('DeviceProvider: connection ids', () => {
  async function connecting() {
    const parts = await setUp();
    const { device, provider, pd, cq } = parts;
    const id = await provider.createId();
    const handle = device.lastHandle;
    await id.resolveAddr({ address: '127.0.0.1', port: 1 });
    const qp = await id.createQP(pd, { sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 });
    return { ...parts, id, handle, qp };
  }

  it('resolves connect with the established event, which also comes as an event', async () => {
    const { device, id, handle, qp } = await connecting();
    const outcome = id.connect();
    device.emit(CMEventType.established, handle, { privateData: Uint8Array.of(1) });
    const event = await outcome;
    expect(event.privateData).toEqual(Uint8Array.of(1));
    expect((await id.nextEvent()).type).toBe(CMEventType.addrResolved);
    expect(await id.nextEvent()).toBe(event);
    expect(id.qp).toBe(qp);
  });

  it('rejects connect with the event of a rejection and the errno of a failure', async () => {
    const { device, id, handle } = await connecting();
    const rejected = id.connect();
    device.emit(CMEventType.rejected, handle, {
      privateData: Uint8Array.of(7),
      error: 'ECONNRESET',
    });
    const error = await rejected.catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(ConnectionRejectedError);
    expect(error).toMatchObject({ code: 'ECONNREFUSED', event: { privateData: Uint8Array.of(7) } });
    const unreachable = id.connect();
    device.emit(CMEventType.unreachable, handle, { error: 'ETIMEDOUT' });
    await expect(unreachable).rejects.toEqual(code('ETIMEDOUT'));
    device.refusals.set('cmConnect', new VerbsError('EINVAL'));
    await expect(id.connect()).rejects.toEqual(code('EINVAL'));
  });

  it('hangs up before it destroys, and waits until the connection has ended', async () => {
    const { device, id, handle } = await connecting();
    const outcome = id.connect();
    device.emit(CMEventType.established, handle);
    await outcome;
    device.asked.length = 0;
    const closing = id.close();
    await settle();
    expect(device.asked).toEqual(['cmDisconnect']);
    device.emit(CMEventType.disconnected, handle);
    await closing;
    expect(device.asked).toEqual(['cmDisconnect', 'destroyQP', 'cmDestroyId']);
  });

  it('destroys the ids of unanswered requests when the listener closes', async () => {
    const { device, provider } = await setUp();
    const id = await provider.createId();
    const listenId = device.lastHandle;
    await id.listen();
    device.emit(CMEventType.connectRequest, 500, { listenId });
    device.emit(CMEventType.connectRequest, 501, { listenId });
    const event = await id.nextEvent();
    expect(event.listenId).toBe(id);
    device.asked.length = 0;
    await id.close();
    device.emit(CMEventType.connectRequest, 502, { listenId });
    await settle();
    expect(device.asked).toEqual(['cmDestroyId', 'cmDestroyId', 'cmDestroyId']);
    await event.id.reject();
    expect(device.asked.at(-1)).toBe('cmReject');
  });

  it('distinguishes ids when the device reuses a handle', async () => {
    const { device, provider } = await setUp();
    const first = await provider.createId();
    const handle = device.lastHandle;
    const closing = first.close();
    device.lastHandle = handle - 1;
    const second = await provider.createId();
    await closing;
    device.emit(CMEventType.addrResolved, handle);
    const event = await second.nextEvent({ signal: patient() });
    expect(event.id).toBe(second);
  });

  it('requires a queue pair of the same device and provider', async () => {
    const { provider, pd, cq } = await setUp();
    const id = await provider.createId();
    const init = { sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 };
    await expect(id.createQP(pd, init)).rejects.toEqual(code('EINVAL'));
    await expect(id.connect()).rejects.toEqual(code('EINVAL'));
    const { qp } = await setUp();
    await expect(id.connect({ qp })).rejects.toEqual(code('EINVAL'));
  });
});

describe('DeviceProvider: lost device', () => {
  it('fails waits with EIO, still polls existing completions, and closes silently', async () => {
    const { device, provider, context, cq, cqRing, qp } = await setUp();
    const channel = await context.createCompChannel();
    const id = await provider.createId();
    const waiting = cq.wait();
    const next = channel.nextEvent();
    const event = id.nextEvent();
    const async = context.asyncEvents()[Symbol.asyncIterator]().next();
    device.lose();
    for (const pending of [waiting, next, event, async]) {
      await expect(pending).rejects.toEqual(code('EIO'));
    }
    device.complete(cqRing, 0, 9);
    expect(cq.poll()).toMatchObject([{ wrId: 9n }]);
    expect(() => qp.postSend(SEND)).toThrow(code('EIO'));
    await expect(cq.wait()).rejects.toEqual(code('EIO'));
    await expect(id.nextEvent()).rejects.toEqual(code('EIO'));
    await expect(provider.devices()).rejects.toEqual(code('EIO'));
    await provider.close();
  });

  it('closes an object with an outstanding command when the device was lost', async () => {
    const { device, qp } = await setUp();
    device.refusals.set('destroyQP', new VerbsError('EIO'));
    await qp.close();
    expect(() => qp.postSend(SEND)).toThrow(code('EINVAL'));
  });

  it('leaves no rejection unhandled when there is no waiter', async () => {
    const { device, provider, cq } = await setUp();
    const unhandled: unknown[] = [];
    const note = (reason: unknown) => unhandled.push(reason);
    process.on('unhandledRejection', note);
    const id = await provider.createId();
    const forgotten = [cq.wait(), id.nextEvent()];
    device.lose();
    await settle();
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
    await Promise.allSettled(forgotten);
  });
});
