/** Commands for RoCE devices from clients without a compiler or client library to check them. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { QPType } from '#contract/verbs/enums';
import { gidBytes } from '#contract/verbs/gid';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { DEFAULT_QUOTAS } from '#daemon/clients/objects/quotas';
import { EmbeddedMemory } from '#daemon/embedded/embedded-memory';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { ROCE_NETWORK } from '#daemon/host/roce/roce-network';
import { COMMAND_SCHEMAS } from '#daemon/ipc/command-schemas';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { failure } from '#test/support/outcomes';

const GID = '0000:0000:0000:0000:0000:ffff:7f00:0001';
const GROUP = '0000:0000:0000:0000:0000:ffff:e000:0105';
const attributes = { grh: { dgid: GID, sgidIndex: 1 } };
const capabilities = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
const device = { name: 'roce0', transport: 'roce', addresses: ['127.0.0.1'] } as const;

let host: RnicHost;
let directory: DeviceDirectory;
let clients: ClientContext[];

beforeEach(() => {
  host = new RnicHost({ system: hostSystem(), devices: [device], roce: ROCE_NETWORK });
  directory = new DeviceDirectory(host, undefined);
  clients = [];
});

afterEach(async () => {
  for (const client of clients) {
    client.assertDeepInvariants();
    client.close();
    expect(client.usage().objects).toEqual(
      expect.objectContaining({ ah: 0, qp: 0, pd: 0, context: 0 }),
    );
  }
  host.assertDeepInvariants();
  await host.close();
});

function newClient(ah = DEFAULT_QUOTAS.objects.ah): ClientContext {
  const client = new ClientContext({
    directory,
    memory: new EmbeddedMemory(),
    quotas: { ...DEFAULT_QUOTAS, objects: { ...DEFAULT_QUOTAS.objects, ah } },
    sendEvent: () => undefined,
    sendCompletion: () => undefined,
    label: 'test',
  });
  clients.push(client);
  return client;
}

function openPD(client: ClientContext): number {
  const { context } = client.execute('openDevice', { name: undefined });
  return client.execute('allocPD', { context }).pd;
}

function newQP(client: ClientContext, pd: number, type: QPType): number {
  const { context } = client.execute('openDevice', { name: undefined });
  const { cq } = client.execute('createCQ', { context, cqe: 16, channel: undefined });
  const queues = { pd, sendCQ: cq, recvCQ: cq, srq: undefined };
  return client.execute('createQP', { ...queues, capabilities, sqSigAll: false, type }).qp;
}

describe('address handles', () => {
  it('have a quota, and a closed one makes room', () => {
    const client = newClient(2);
    const pd = openPD(client);
    const first = client.execute('createAH', { pd, attributes });
    client.execute('createAH', { pd, attributes });
    expect(() => client.execute('createAH', { pd, attributes })).toThrow(
      'limit reached: a client may have at most 2 objects of kind ah',
    );
    expect(() => client.execute('deallocPD', { pd })).toThrow(failure('EBUSY'));
    client.execute('destroyAH', { ah: first.ah });
    const third = client.execute('createAH', { pd, attributes });
    // Work requests that name the old number must not reach the new destination.
    expect(third.number).not.toBe(first.number);
  });

  it('are unknown to other clients', () => {
    const [owner, other] = [newClient(), newClient()];
    const { ah } = owner.execute('createAH', { pd: openPD(owner), attributes });
    for (const handle of [ah, 77]) {
      expect(() => other.execute('destroyAH', { ah: handle })).toThrow(failure('ENOENT'));
    }
    expect(owner.usage().objects).toMatchObject({ ah: 1 });
  });

  it('of a client that ends are freed with it', () => {
    const client = newClient();
    client.execute('createAH', { pd: openPD(client), attributes });
    client.close();
    const next = newClient(1);
    next.execute('createAH', { pd: openPD(next), attributes });
  });
});

describe('a queue pair in multicast groups', () => {
  it('has a limit of groups, and leaves them with its end', () => {
    const client = newClient();
    const pd = openPD(client);
    const qp = newQP(client, pd, QPType.ud);
    const group = (number: number): string => GROUP.replace('0105', number.toString(16));
    for (let number = 1; number <= 256; number += 1) {
      client.execute('attachMcast', { qp, gid: group(number) });
    }
    expect(() => client.execute('attachMcast', { qp, gid: group(257) })).toThrow(
      'a queue pair is in at most 256 groups',
    );
    client.execute('attachMcast', { qp, gid: group(1) });
    client.execute('destroyQP', { qp });
    expect(host.multicastGroups.members(gidBytes(group(1))).size).toBe(0);
  });
});

/** Calls until refused; returns the number of calls that succeeded. */
function takeAll(call: () => unknown): number {
  for (let count = 0; ; count += 1) {
    try {
      call();
    } catch (error) {
      expect(error).toMatchObject({ code: 'ENOMEM' });
      return count;
    }
  }
}

describe('a client that exhausts its limits', () => {
  it('leaves the shares of others, including address handles and groups', () => {
    const [greedy, other, third] = [newClient(), newClient(), newClient()];
    const { objects } = DEFAULT_QUOTAS;
    const { context } = greedy.execute('openDevice', { name: undefined });
    const pd = openPD(greedy);
    expect(takeAll(() => greedy.execute('createAH', { pd, attributes }))).toBe(objects.ah);
    // Queue pairs that join one group up to its limit, and 256 groups each.
    const qps: number[] = [];
    const { cq } = greedy.execute('createCQ', { context, cqe: 16, channel: undefined });
    const made = { pd, sendCQ: cq, recvCQ: cq, srq: undefined, capabilities, sqSigAll: false };
    const type = QPType.ud;
    takeAll(() => qps.push(greedy.execute('createQP', { ...made, type }).qp));
    expect(qps).toHaveLength(objects.qp);
    let next = 0;
    takeAll(() => greedy.execute('attachMcast', { qp: qps[next++] as number, gid: GROUP }));
    expect(next - 1).toBe(56);
    const group = (number: number): string => GROUP.replace('0105', number.toString(16));
    for (const [index, qp] of qps.slice(0, 40).entries()) {
      let number = index * 256 + 0x200;
      takeAll(() => greedy.execute('attachMcast', { qp, gid: group(number++) }));
    }
    takeAll(() => greedy.execute('allocPD', { context }));
    takeAll(() => greedy.execute('createCQ', { context, cqe: 16, channel: undefined }));
    takeAll(() => greedy.execute('openDevice', { name: undefined }));
    const srq = { maxWr: 4, maxSge: 1, srqLimit: 0 };
    expect(takeAll(() => greedy.execute('createSRQ', { pd, ...srq }))).toBe(objects.srq);
    // Every request of the others succeeds, on the same device and in the same group.
    for (const client of [other, third]) {
      const opened = client.execute('openDevice', { name: undefined });
      const own = client.execute('allocPD', opened).pd;
      const theirs = client.execute('createCQ', { ...opened, cqe: 16, channel: undefined }).cq;
      for (let count = 0; count < 1000; count += 1) {
        client.execute('createAH', { pd: own, attributes });
        if (count % 10 !== 0) continue;
        const queues = { pd: own, sendCQ: theirs, recvCQ: theirs, srq: undefined };
        const { qp } = client.execute('createQP', { ...made, ...queues, type });
        if (count < 500) client.execute('attachMcast', { qp, gid: GROUP });
        client.execute('createSRQ', { pd: own, ...srq });
      }
    }
    expect(host.multicastGroups.members(gidBytes(GROUP)).size).toBe(56 + 50 + 50);
  });
});

describe('attributes', () => {
  it.each([
    ['pkeyIndex', 1],
    ['portNum', 0],
    ['qkey', 2 ** 32],
    ['destQpNum', -1],
    ['rqPsn', 0.5],
    ['sqPsn', Number.NaN],
    ['timeout', 32],
    ['retryCnt', 8],
    ['rnrRetry', Number.POSITIVE_INFINITY],
    ['minRnrTimer', 2 ** 53],
    ['maxRdAtomic', 256],
    ['pathMtu', 6],
  ] as const)('%s is not %d', (name, value) => {
    const client = newClient();
    const qp = newQP(client, openPD(client), QPType.rc);
    const change = { [name]: value };
    expect(() => client.execute('modifyQP', { qp, state: 1, attributes: change })).toThrow(
      new RegExp(`^${name} must be .*, not ${value}$`),
    );
  });

  it('that are unknown, or of another type, are rejected', () => {
    const { modifyQP, createAH } = COMMAND_SCHEMAS;
    const shapes: unknown[] = [
      { alternatePath: {} },
      { timeout: '14' },
      { ahAttr: { grh: { dgid: 'x'.repeat(65), sgidIndex: 1 } } },
      { ahAttr: { ...attributes, dlid: 1 } },
      { curState: 7 },
    ];
    for (const shape of shapes) {
      const request = { qp: 1, state: 1, attributes: shape };
      expect(modifyQP.safeParse(request).success, JSON.stringify(shape)).toBe(false);
    }
    expect(modifyQP.safeParse({ qp: 1, state: 1 }).success).toBe(true);
    expect(modifyQP.safeParse({ qp: 1, state: undefined, attributes: {} }).success).toBe(true);
    expect(createAH.safeParse({ pd: 1, attributes: { sl: 1 } }).success).toBe(false);
  });
});

it('a verb of a RoCE device fails by an injected fault', async () => {
  await using rnic = await createEmbedded({ devices: [device] });
  const context = await rnic.open();
  const pd = await context.allocPD();
  await rnic.addFault({ kind: 'errno', verb: 'createAH', errno: 'ENOMEM' });
  await expect(pd.createAH(attributes)).rejects.toMatchObject({ code: 'ENOMEM' });
  await rnic.removeFaults();
  await pd.createAH(attributes);
});

describe('services of datagrams', () => {
  const none = {
    privateData: new Uint8Array(0),
    initiatorDepth: undefined,
    responderResources: undefined,
    wire: undefined,
  };
  const at = { address: '127.0.0.1', port: 0 };

  it('refuse commands that do not fit the id', () => {
    const client = newClient();
    const { id } = client.execute('cmCreateId', { datagrams: true });
    const { id: stream } = client.execute('cmCreateId', {});
    const qp = newQP(client, openPD(client), QPType.ud);
    const invalid = failure('EINVAL');
    expect(() => client.execute('cmConnect', { id, qp: undefined, ...none })).toThrow(invalid);
    expect(() => client.execute('cmConnect', { id: stream, qp: undefined, ...none })).toThrow(
      'a connection needs a queue pair',
    );
    client.execute('cmBindAddr', { id, address: at });
    expect(() => client.execute('cmAccept', { id, qp, qkey: 1, ...none })).toThrow(invalid);
    expect(() => client.execute('cmAccept', { id, qp: 77, ...none })).toThrow(failure('ENOENT'));
    expect(() => client.execute('cmReject', { id, privateData: none.privateData })).toThrow(
      invalid,
    );
    expect(() => client.execute('cmConnect', { id, qp, ...none })).toThrow(invalid);
  });

  it('count among the ids of a client, the requests of peers too', () => {
    const client = newClient();
    const { id } = client.execute('cmCreateId', { datagrams: true });
    const { localAddress } = client.execute('cmBindAddr', { id, address: at });
    client.execute('cmListen', { id, backlog: 4 });
    const asker = newClient();
    const { id: asking } = asker.execute('cmCreateId', { datagrams: true });
    const destination = { address: '127.0.0.1', port: localAddress?.port ?? 0 };
    asker.execute('cmResolveAddr', { id: asking, destination, source: undefined, timeoutMs: 100 });
    asker.execute('cmResolveRoute', { id: asking });
    asker.execute('cmConnect', { id: asking, qp: undefined, ...none });
    expect(client.usage().objects).toMatchObject({ id: 2 });
    client.execute('cmDestroyId', { id });
    expect(client.usage().objects).toMatchObject({ id: 1 });
  });

  it('have schemas that accept nothing else', () => {
    expect(COMMAND_SCHEMAS.cmCreateId.safeParse({ datagrams: true }).success).toBe(true);
    for (const request of [{ datagrams: 1 }, { datagram: true }]) {
      expect(COMMAND_SCHEMAS.cmCreateId.safeParse(request).success).toBe(false);
    }
    const accept = { id: 1, qp: 1, ...none, qkey: 'x' };
    expect(COMMAND_SCHEMAS.cmAccept.safeParse(accept).success).toBe(false);
  });
});
