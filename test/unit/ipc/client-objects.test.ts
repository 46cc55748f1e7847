import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DeviceEvent } from '#contract/protocol/commands';
import { CMEventType } from '#contract/verbs/enums';
import type { ClientMemory } from '#daemon/clients/objects/client-memory';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { DEFAULT_QUOTAS, QuotaLedger } from '#daemon/clients/objects/quotas';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';

/** Memory that counts unreleased buffers. */
class CountedMemory implements ClientMemory {
  readonly sharedTier = { tier: 'shared', reason: 'test' } as const;
  held = 0;

  #release(): void {
    this.held -= 1;
  }

  createShared(lengthBytes: number) {
    this.held += 1;
    return {
      mapping: { token: '', lengthBytes },
      view: new Uint8Array(lengthBytes),
      release: () => this.#release(),
    };
  }

  createRing(lengthBytes: number) {
    return this.createShared(lengthBytes);
  }

  openProcess(_address: bigint, lengthBytes: number) {
    this.held += 1;
    return {
      backing: new ViewBacking(new Uint8Array(lengthBytes)),
      reason: 'test',
      release: () => this.#release(),
    };
  }
}

let host: RnicHost;
let directory: DeviceDirectory;
let memory: CountedMemory;
let client: ClientContext;
let events: DeviceEvent[];

beforeEach(() => {
  host = new RnicHost({ system: hostSystem(), devices: [{ name: 'a', addresses: [] }] });
  directory = new DeviceDirectory(host, undefined);
  memory = new CountedMemory();
  events = [];
  client = newClient();
});

afterEach(async () => {
  client.close();
  await host.close();
});

function newClient(quotas = DEFAULT_QUOTAS): ClientContext {
  return new ClientContext({
    directory,
    memory,
    quotas,
    sendEvent: (event) => void events.push(event),
    sendCompletion: () => undefined,
    label: 'test',
  });
}

const CAPABILITIES = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };

/** One object of every kind; returns the handles in the order of making. */
async function oneOfEach(): Promise<Record<string, number>> {
  const { context } = await client.execute('openDevice', { name: 'a' });
  const { pd } = await client.execute('allocPD', { context });
  const { buffer } = await client.execute('allocBuffer', { lengthBytes: 4096 });
  const { channel } = await client.execute('createCompChannel', { context });
  const { cq } = await client.execute('createCQ', { context, cqe: 10, channel });
  const { srq } = await client.execute('createSRQ', { pd, maxWr: 4, maxSge: 1, srqLimit: 0 });
  const { qp } = await client.execute('createQP', {
    pd,
    sendCQ: cq,
    recvCQ: cq,
    srq,
    capabilities: CAPABILITIES,
    sqSigAll: true,
  });
  const region = { pd, lengthBytes: 64, address: undefined, iova: undefined, access: 1 };
  const shared = { kind: 'buffer', buffer, offset: 64 } as const;
  const own = { kind: 'process', address: 4096n } as const;
  const { mr } = await client.execute('regMR', { ...region, source: shared, key: undefined });
  const { mr: ownMr } = await client.execute('regMR', { ...region, source: own, key: 7 });
  const { mw } = await client.execute('allocMW', { pd, type: 1 });
  const { id } = await client.execute('cmCreateId', {});
  return { context, pd, buffer, channel, cq, srq, qp, mr, ownMr, mw, id };
}

describe('the end of a client with many objects', () => {
  it('destroys a share of them at a time, dependencies last', async () => {
    const { context } = await client.execute('openDevice', { name: 'a' });
    for (let count = 0; count < 20; count += 1) {
      const { pd } = await client.execute('allocPD', { context });
      const source = { kind: 'process', address: 4096n } as const;
      const region = { lengthBytes: 64, address: undefined, iova: undefined, access: 1 };
      await client.execute('regMR', { pd, ...region, source, key: count });
    }
    expect(client.close(30)).toBe(30);
    expect(client.usage().objects).toMatchObject({ context: 1, pd: 10 });
    expect(memory.held).toBe(0);
    expect(() => client.execute('allocPD', { context })).toThrow('the client is closed');
    client.doorbell(2);
    client.assertDeepInvariants();
    expect(client.close(30)).toBe(11);
    expect(Object.values(client.usage().objects).some((count) => count > 0)).toBe(false);
    expect(client.close(30)).toBe(0);
  });
});

describe('handles', () => {
  it('are one namespace, the lowest free number first, from 1', async () => {
    expect(Object.values(await oneOfEach())).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    await client.execute('deregMR', { mr: 9 });
    await client.execute('cmDestroyId', { id: 11 });
    expect(await client.execute('cmCreateId', {})).toEqual({ id: 9 });
    expect(await client.execute('cmCreateId', {})).toEqual({ id: 11 });
    expect(await client.execute('cmCreateId', {})).toEqual({ id: 12 });
  });

  it('of one client are invalid for another', async () => {
    const { pd } = await oneOfEach();
    const other = newClient();
    expect(() => other.execute('deallocPD', { pd: pd ?? 0 })).toThrow(/no object of kind pd/);
    other.doorbell(7);
    other.close();
    await client.execute('queryQP', { qp: 7 });
  });

  it('of another kind are refused', async () => {
    await oneOfEach();
    expect(() => client.execute('destroyCQ', { cq: 7 })).toThrow(/has kind qp, not cq/);
    expect(() => client.execute('cmListen', { id: 1, backlog: 1 })).toThrow(
      /has kind context, not id/,
    );
  });
});

describe('an object in use', () => {
  it('cannot be destroyed (EBUSY), for every dependence', async () => {
    await oneOfEach();
    const busy = { code: 'EBUSY' };
    expect(() => client.execute('closeDevice', { context: 1 })).toThrow(
      expect.objectContaining(busy),
    );
    expect(() => client.execute('deallocPD', { pd: 2 })).toThrow(expect.objectContaining(busy));
    expect(() => client.execute('freeBuffer', { buffer: 3 })).toThrow(
      expect.objectContaining(busy),
    );
    expect(() => client.execute('destroyCompChannel', { channel: 4 })).toThrow(
      expect.objectContaining(busy),
    );
    expect(() => client.execute('destroyCQ', { cq: 5 })).toThrow(expect.objectContaining(busy));
    expect(() => client.execute('destroySRQ', { srq: 6 })).toThrow(expect.objectContaining(busy));
  });

  it('can be destroyed in the order of dependence, leaving nothing', async () => {
    await oneOfEach();
    await client.execute('destroyQP', { qp: 7 });
    await client.execute('destroySRQ', { srq: 6 });
    await client.execute('destroyCQ', { cq: 5 });
    await client.execute('destroyCompChannel', { channel: 4 });
    await client.execute('deallocMW', { mw: 10 });
    await client.execute('deregMR', { mr: 8 });
    await client.execute('deregMR', { mr: 9 });
    await client.execute('freeBuffer', { buffer: 3 });
    await client.execute('deallocPD', { pd: 2 });
    await client.execute('closeDevice', { context: 1 });
    await client.execute('cmDestroyId', { id: 11 });
    expectNothing();
  });

  it('is destroyed with its client, whatever depends on it', async () => {
    await oneOfEach();
    expect(client.usage()).toMatchObject({ pinnedBytes: 64, tiers: { shared: 1, local: 1 } });
    client.close();
    client.close();
    expectNothing();
    expect(() => client.execute('listDevices', {})).toThrow(/closed/);
  });
});

function expectNothing(): void {
  const { objects, ...amounts } = client.usage();
  expect(Object.values(objects).every((count) => count === 0)).toBe(true);
  expect(amounts).toEqual({ sharedBytes: 0, pinnedBytes: 0, tiers: {}, tierReasons: {} });
  expect(memory.held).toBe(0);
}

describe('quotas', () => {
  it('refuse one more object with ENOMEM, and keep nothing of it', async () => {
    client.close();
    const objects = { ...DEFAULT_QUOTAS.objects, cq: 2 };
    client = newClient({ ...DEFAULT_QUOTAS, objects, sharedBytes: 20_000, queueEntries: 40 });
    const { context } = await client.execute('openDevice', { name: undefined });
    const create = (cqe: number) =>
      client.execute('createCQ', { context, cqe, channel: undefined });
    await create(32);
    expect(() => create(16)).toThrow(/limit reached: a client may have at most 40 queue entries/);
    expect(() => create(1000)).toThrow(
      /limit reached: a client may have at most 20000 bytes of shared/,
    );
    await create(8);
    expect(() => create(1)).toThrow(
      /limit reached: a client may have at most 2 objects of kind cq/,
    );
    expect(client.usage()).toMatchObject({ objects: { cq: 2 }, sharedBytes: 40 * 32 + 16 });
    expect(memory.held).toBe(2);
    expect(host.devices[0]?.nic.liveCounts()).toMatchObject({ cq: 2 });
  });

  it('stay balanced over any sequence of creations and destructions', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 60 })), (amounts) => {
        const ledger = new QuotaLedger({ ...DEFAULT_QUOTAS, sharedBytes: 100 });
        const taken: number[] = [];
        for (const amount of amounts) {
          const room = 100 - ledger.held('sharedBytes');
          if (amount <= room) {
            ledger.take('sharedBytes', amount);
            taken.push(amount);
          } else {
            expect(() => ledger.take('sharedBytes', amount)).toThrow(/limit reached/);
          }
          expect(ledger.held('sharedBytes')).toBeLessThanOrEqual(100);
        }
        for (const amount of taken) ledger.give('sharedBytes', amount);
        expect(ledger.held('sharedBytes')).toBe(0);
      }),
    );
  });
});

describe('regions', () => {
  it('get the address of their buffer, the requested one, or that of the process', async () => {
    const { context } = await client.execute('openDevice', { name: undefined });
    const { pd } = await client.execute('allocPD', { context });
    const { buffer } = await client.execute('allocBuffer', { lengthBytes: 10_000 });
    const rest = { pd, lengthBytes: 100, iova: undefined, access: 0, key: undefined };
    const source = { kind: 'buffer', buffer, offset: 0 } as const;
    const first = await client.execute('regMR', { ...rest, source, address: undefined });
    const later = { ...source, offset: 5000 };
    const second = await client.execute('regMR', { ...rest, source: later, address: undefined });
    expect(second.address - first.address).toBe(5000n);
    const named = await client.execute('regMR', { ...rest, source, address: 12_345n });
    expect(named.address).toBe(12_345n);
    const own = { kind: 'process', address: 0x7f12_3456_7000n } as const;
    const third = await client.execute('regMR', { ...rest, source: own, address: undefined });
    expect(third.address).toBe(0x7f12_3456_7000n);
  });

  it.each([
    ['beyond their buffer', 9_950],
    ['before it', -1],
    ['at a fraction', 0.5],
  ])('%s: EINVAL', async (_where, offset) => {
    const { context } = await client.execute('openDevice', { name: undefined });
    const { pd } = await client.execute('allocPD', { context });
    const { buffer } = await client.execute('allocBuffer', { lengthBytes: 10_000 });
    const source = { kind: 'buffer', buffer, offset } as const;
    const rest = { address: undefined, iova: undefined, access: 0, key: undefined };
    expect(() => client.execute('regMR', { pd, source, lengthBytes: 100, ...rest })).toThrow(
      expect.objectContaining({ code: 'EINVAL' }),
    );
    await client.execute('freeBuffer', { buffer });
  });

  it('outside the user address space, or beyond 64 bits: EINVAL', async () => {
    const { context } = await client.execute('openDevice', { name: undefined });
    const { pd } = await client.execute('allocPD', { context });
    const rest = { pd, lengthBytes: 100, address: undefined, access: 0, key: undefined };
    const far = { kind: 'process', address: 2n ** 53n } as const;
    const near = { kind: 'process', address: 4096n } as const;
    const wrong = expect.objectContaining({ code: 'EINVAL' });
    expect(() => client.execute('regMR', { ...rest, source: far, iova: undefined })).toThrow(wrong);
    expect(() => client.execute('regMR', { ...rest, source: near, iova: 2n ** 64n - 1n })).toThrow(
      wrong,
    );
    expect(memory.held).toBe(0);
    expect(client.usage().pinnedBytes).toBe(0);
  });
});

describe('resolving an address', () => {
  it('reports the outcome once, by an event, and can be retried', async () => {
    const { id } = await client.execute('cmCreateId', {});
    const resolve = (address: string) => {
      const rest = { source: undefined, timeoutMs: 1000 };
      return client.execute('cmResolveAddr', { id, destination: { address, port: 1 }, ...rest });
    };
    expect(resolve('255.255.255.255')).toEqual({});
    expect(events).toMatchObject([
      { event: { type: CMEventType.addrError, error: expect.stringMatching(/^E/) } },
    ]);
    expect(resolve('127.0.0.1')).toEqual({});
    expect(events.slice(1)).toMatchObject([
      { event: { type: CMEventType.addrResolved, error: undefined, state: { device: 'a' } } },
    ]);
  });
});
