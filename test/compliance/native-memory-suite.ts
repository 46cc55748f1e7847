/**
 * The native bridge's guarantees for registered memory, and its errors for misuse: bytes never
 * move, and calls that would crash C fail. Runs as `native-suite.ts` does.
 */
import { readdirSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Access, WROpcode } from '#contract/verbs/enums';
import type { Context, PD, Provider } from '#contract/verbs/provider';
import { NativeDevice } from '#native-bridge/rdma/device';
import { openLibraries } from '#native-bridge/rdma/libraries';
import { listen } from '#verbs-api/connect';
import { createNative } from '#verbs-api/native/native-provider';
import { quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import {
  ALL_ACCESS,
  completions,
  connectedPair,
  DEVICE,
  OWN_ERROR,
  read,
  verbsError,
} from '../support/provider-fixture.ts';

/** Triggers garbage collection; `--expose-gc` takes effect in new contexts. */
function collector(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
}

const LOCAL = Access.localWrite;

describe('native memory', () => {
  let provider: Provider;
  let context: Context;
  let pd: PD;

  beforeAll(async () => {
    provider = await createNative();
    context = await provider.open(DEVICE.name);
    pd = await context.allocPD();
  });
  afterAll(() => provider.close());

  it.each([
    ['a typed array of 8 bytes, which V8 keeps in its heap', () => new Uint8Array(8)],
    ['a small Buffer, which shares a slab', () => Buffer.from('some bytes')],
    ['a view into the middle', () => new Uint8Array(100).subarray(50, 60)],
    ['shared memory of threads', () => new Uint8Array(new SharedArrayBuffer(32))],
  ])(
    'reads and writes %s at the device’s address, also after a garbage collection',
    async (_name, make) => {
      const gc = collector();
      await using pair = await connectedPair({
        server: provider,
        client: provider,
        stop: async () => {},
      });
      const { server, client } = pair;
      const bytes = make();
      await using target = await client.pd.regMR(bytes, LOCAL);
      server.mr.buffer.set(pattern(bytes.length));
      for (let round = 0; round < 3; round += 1) gc();
      client.connection.qp.postSend(read([target.sge()], server.mr));
      await completions(client.connection.cq);
      expect([...bytes]).toEqual([...pattern(bytes.length)]);
    },
  );

  it('keeps a buffer alive until its region is closed, even if the program drops it', async () => {
    const gc = collector();
    await using pair = await connectedPair({
      server: provider,
      client: provider,
      stop: async () => {},
    });
    const { server, client } = pair;
    const length = 1_000_000;
    let collected = false;
    const registry = new FinalizationRegistry(() => {
      collected = true;
    });
    const sge = await (async () => {
      const bytes = new Uint8Array(length);
      registry.register(bytes, undefined);
      // The region is dropped as well; only the device knows of it.
      return (await client.pd.regMR(bytes, LOCAL)).sge();
    })();
    for (let round = 0; round < 5; round += 1) {
      gc();
      await quiet(10);
    }
    expect(collected).toBe(false);
    server.mr.buffer.set(pattern(100));
    client.connection.qp.postSend(read([{ ...sge, length: 100 }], server.mr));
    const [wc] = await completions(client.connection.cq);
    expect(wc?.status).toBe(0);
  });

  it('prevents the transfer of a registered buffer and refuses resizable ones', async () => {
    const bytes = new Uint8Array(4096);
    await using mr = await pd.regMR(bytes, LOCAL);
    try {
      structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
    } catch {
      // Newer versions of Node refuse, older ones make a copy.
    }
    expect(mr.buffer).toHaveLength(4096);
    const Resizable = ArrayBuffer as unknown as new (
      length: number,
      options: { maxByteLength: number },
    ) => ArrayBuffer;
    const resizable = new Uint8Array(new Resizable(64, { maxByteLength: 128 }));
    await expect(pd.regMR(resizable, LOCAL)).rejects.toEqual(verbsError('EINVAL'));
    const moved = new Uint8Array(64);
    structuredClone(moved.buffer, { transfer: [moved.buffer] });
    await expect(pd.regMR(moved, LOCAL)).rejects.toEqual(verbsError('EINVAL'));
  });

  it('aligns allocated memory to a page, and keeps it until its last region closes; its views stay readable even then', async () => {
    const whole = await pd.allocMR(10_000, ALL_ACCESS);
    expect(whole.address % 4096n).toBe(0n);
    const part = await pd.regMR(whole.buffer.subarray(100, 200), LOCAL);
    whole.buffer.fill(7);
    await whole.close();
    expect(part.buffer[99]).toBe(7);
    await part.close();
    expect(part.buffer[99]).toBeTypeOf('number');
  });

  it('keeps no descriptor for allocated memory and frees rejected memory', async () => {
    const descriptors = () => readdirSync('/proc/self/fd').length;
    const before = descriptors();
    const regions = await Promise.all(
      Array.from({ length: 50 }, () => pd.allocMR(4096, ALL_ACCESS)),
    );
    for (let count = 0; count < 50; count += 1) {
      await expect(pd.allocMR(4096, Access.remoteWrite)).rejects.toEqual(verbsError('EINVAL'));
    }
    expect(descriptors() - before).toBeLessThan(10);
    await Promise.all(regions.map((region) => region.close()));
  });

  it('closes its objects with their device, in any order, twice', async () => {
    const other = await provider.open(DEVICE.name);
    const domain = await other.allocPD();
    const channel = await other.createCompChannel();
    const cq = await other.createCQ({ cqe: 16, channel });
    const srq = await domain.createSRQ({ maxWr: 4 });
    const init = { sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 };
    const qp = await domain.createQP({ ...init, srq });
    const mr = await domain.allocMR(64, LOCAL);
    const objects = [qp, srq, cq, channel, mr, domain, other];
    await Promise.all([other.close(), ...objects.map((object) => object.close().catch(() => {}))]);
    for (const object of [...objects].reverse()) await object.close();
    const closed = verbsError('EINVAL');
    expect(() => qp.postSend({ opcode: WROpcode.send })).toThrow(closed);
    expect(() => qp.postRecv({ sgList: [] })).toThrow(closed);
    expect(() => srq.postRecv({ sgList: [] })).toThrow(closed);
    expect(cq.poll()).toEqual([]);
    expect(() => cq.requestNotify()).toThrow(closed);
    await expect(domain.allocMR(8, LOCAL)).rejects.toEqual(closed);
    await expect(other.allocPD()).rejects.toEqual(closed);
  });

  it('closes a provider with a listener, a request and a connection in progress', async () => {
    const host = await createNative();
    const guest = await createNative();
    const listener = await listen(host, { host: DEVICE.addresses[0] });
    const ids = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const id = await guest.createId();
        await id.resolveAddr({ address: DEVICE.addresses[0], port: listener.address.port });
        const device = await guest.open(id.device);
        const cq = await device.createCQ({ cqe: 8 });
        const init = { sendCQ: cq, recvCQ: cq, maxSendWr: 4, maxRecvWr: 4 };
        await id.createQP(await device.allocPD(), init);
        return id;
      }),
    );
    const attempts = ids.map((id) => id.connect());
    await listener.id.nextEvent();
    await Promise.all([host.close(), guest.close()]);
    for (const attempt of attempts)
      await expect(attempt).rejects.toMatchObject({ name: expect.stringMatching(OWN_ERROR) });
    await host.close();
    await expect(host.createId()).rejects.toEqual(verbsError('EINVAL'));
    await expect(guest.devices()).rejects.toEqual(verbsError('EINVAL'));
  });

  it.each(['process.exit(3)', 'throw new Error("on purpose")', 'await stopped'])(
    'survives a worker that leaves everything open: %s',
    async (end) => {
      const bridge = new URL('../../dist/verbs-api/native/native-provider.js', import.meta.url);
      const worker = new Worker(
        `(async () => {
          const { parentPort } = require('node:worker_threads');
          const { createNative } = await import(${JSON.stringify(bridge.href)});
          const provider = await createNative();
          const context = await provider.open('${DEVICE.name}');
          const pd = await context.allocPD();
          const cq = await context.createCQ({ cqe: 8 });
          await pd.regMR(new Uint8Array(4096), 1);
          const id = await provider.createId();
          await id.bindAddr({ address: '${DEVICE.addresses[0]}', port: 0 });
          await id.listen();
          cq.wait().catch(() => {});
          const stopped = new Promise(() => {});
          parentPort.postMessage('open');
          ${end};
        })()`,
        { eval: true, stderr: true },
      );
      worker.on('error', () => {});
      const exited = new Promise((resolve) => worker.once('exit', resolve));
      // Not `once` of node:events: an error would reject it before the message arrives.
      await new Promise((resolve) => worker.once('message', resolve));
      if (end === 'await stopped') await worker.terminate();
      await exited;
      expect((await context.queryPort()).state).toBe('active');
    },
  );

  it('refuses to destroy an object in use without calling the library', () => {
    using device = NativeDevice.open(openLibraries(), DEVICE.name);
    const domain = device.allocPD();
    const cq = device.createCQ(8);
    const qp = domain.createQP({
      sendCQ: cq,
      recvCQ: cq,
      maxSendWr: 1,
      maxRecvWr: 1,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: 0,
      sqSigAll: false,
    });
    for (const parent of [domain, cq]) {
      expect(() => parent.dispose()).toThrow(expect.objectContaining({ kind: 'inUse' }));
    }
    expect(cq.poll(1)).toEqual([]);
    qp.dispose();
    cq.dispose();
    domain.dispose();
    expect(() => cq.poll(1)).toThrow(expect.objectContaining({ kind: 'closed' }));
  });
});
