/** Two clients of one host: objects of one are invalid for the other. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import type { ClientMemory } from '#daemon/clients/objects/client-memory';
import { DeviceDirectory } from '#daemon/clients/objects/device-directory';
import { DEFAULT_QUOTAS, OBJECT_KINDS } from '#daemon/clients/objects/quotas';
import { hostSystem } from '#daemon/host/links/system';
import { RnicHost } from '#daemon/host/rnic-host';
import { COMMAND_SCHEMAS } from '#daemon/ipc/command-schemas';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';

const CAPABILITIES = { maxSendWr: 4, maxRecvWr: 4, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
/** Handles are dense, so a handle this large does not exist. */
const NOBODYS = 4000;

const createShared: ClientMemory['createShared'] = (lengthBytes) => ({
  mapping: { token: '', lengthBytes },
  view: new Uint8Array(lengthBytes),
  release: () => undefined,
});

const memory: ClientMemory = {
  sharedTier: { tier: 'shared', reason: 'test' },
  createShared,
  createRing: createShared,
  openProcess: (_address, lengthBytes) => ({
    backing: new ViewBacking(new Uint8Array(lengthBytes)),
    reason: 'test',
    release: () => undefined,
  }),
};

let host: RnicHost;
let directory: DeviceDirectory;
const clients: ClientContext[] = [];

beforeEach(() => {
  host = new RnicHost({ system: hostSystem(), devices: [{ name: 'a', addresses: [] }] });
  directory = new DeviceDirectory(host, undefined);
});

afterEach(async () => {
  for (const client of clients.splice(0)) client.close();
  await host.close();
});

function newClient(quotas = DEFAULT_QUOTAS): ClientContext {
  const client = new ClientContext({
    directory,
    memory,
    quotas,
    sendEvent: () => undefined,
    sendCompletion: () => undefined,
    label: 'test',
  });
  clients.push(client);
  return client;
}

/** A client with objects at handles above those of a new client. */
async function owner(): Promise<{ pd: number; cq: number; qp: number; id: number }> {
  const client = newClient();
  const { context } = await client.execute('openDevice', { name: 'a' });
  for (let count = 0; count < 20; count++) await client.execute('allocPD', { context });
  const { pd } = await client.execute('allocPD', { context });
  const { cq } = await client.execute('createCQ', { context, cqe: 8, channel: undefined });
  const made = { pd, sendCQ: cq, recvCQ: cq, srq: undefined };
  const { qp } = await client.execute('createQP', {
    ...made,
    capabilities: CAPABILITIES,
    sqSigAll: false,
  });
  const { id } = await client.execute('cmCreateId', {});
  return { pd, cq, qp, id };
}

async function refusal(call: () => unknown): Promise<string> {
  try {
    await call();
  } catch (error) {
    return error instanceof Error && 'code' in error ? String(error.code) : String(error);
  }
  return 'done';
}

describe('two clients of one host', () => {
  it('handles of one are invalid for the other [SEC-3-01, SEC-7.1-01]', async () => {
    const { pd, cq, qp, id } = await owner();
    const stranger = newClient();
    const { context } = await stranger.execute('openDevice', { name: 'a' });
    const own = await stranger.execute('allocPD', { context });
    const calls: readonly (() => unknown)[] = [
      () => stranger.execute('deallocPD', { pd }),
      () => stranger.execute('destroyCQ', { cq }),
      () => stranger.execute('destroyQP', { qp }),
      () => stranger.execute('queryQP', { qp }),
      () => stranger.execute('cmDisconnect', { id }),
      () => stranger.execute('cmDestroyId', { id }),
      // The CQ of another client, for a QP in the client's own PD.
      () =>
        stranger.execute('createQP', {
          pd: own.pd,
          sendCQ: cq,
          recvCQ: cq,
          srq: undefined,
          capabilities: CAPABILITIES,
          sqSigAll: false,
        }),
    ];
    const codes: string[] = [];
    for (const call of calls) codes.push(await refusal(call));
    expect(codes).toEqual(calls.map(() => 'ENOENT'));
    const first = clients[0];
    if (first === undefined) throw new Error('the owner is a client');
    expect(await refusal(() => first.execute('queryQP', { qp }))).toBe('done');
  });

  it('a client at its limit is refused while another continues [SEC-3-02, SEC-6.4.1-01]', async () => {
    const objects = { ...DEFAULT_QUOTAS.objects, pd: 2, cq: 1 };
    const small = newClient({ ...DEFAULT_QUOTAS, objects, sharedBytes: 1 << 20 });
    const other = newClient();
    const { context } = await small.execute('openDevice', { name: 'a' });
    await small.execute('allocPD', { context });
    await small.execute('allocPD', { context });
    expect(await refusal(() => small.execute('allocPD', { context }))).toBe('ENOMEM');
    const big = { lengthBytes: (1 << 20) + 1 };
    expect(await refusal(() => small.execute('allocBuffer', big))).toBe('ENOMEM');
    const opened = await other.execute('openDevice', { name: 'a' });
    expect(await refusal(() => other.execute('allocPD', opened))).toBe('done');
    expect(await refusal(() => other.execute('allocBuffer', big))).toBe('done');
  });

  it('every kind of object is counted and has a limit [SEC-3-02]', () => {
    for (const kind of OBJECT_KINDS) expect(DEFAULT_QUOTAS.objects[kind]).toBeGreaterThan(0);
  });

  it('memory outside the client’s address space is not registered [SEC-7.3-01]', async () => {
    const holder = newClient();
    const { context: theirs } = await holder.execute('openDevice', { name: 'a' });
    for (let count = 0; count < 20; count++) await holder.execute('allocPD', { context: theirs });
    const { buffer } = await holder.execute('allocBuffer', { lengthBytes: 4096 });
    const client = newClient();
    const { context } = await client.execute('openDevice', { name: 'a' });
    const { pd } = await client.execute('allocPD', { context });
    const own = await client.execute('allocBuffer', { lengthBytes: 4096 });
    const register = (from: number, offset: number, lengthBytes: number) =>
      refusal(() =>
        client.execute('regMR', {
          pd,
          source: { kind: 'buffer', buffer: from, offset },
          lengthBytes,
          address: undefined,
          iova: undefined,
          access: Access.localWrite,
          key: undefined,
        }),
      );
    expect(await register(buffer, 0, 4096)).toBe('ENOENT');
    expect(await register(NOBODYS, 0, 4096)).toBe('ENOENT');
    expect(await register(own.buffer, 4000, 4096)).toBe('EINVAL');
    expect(await register(own.buffer, 0, 4096)).toBe('done');
  });

  it('no command loads code or configures the device [RDMAP-8.1.1-03]', () => {
    const verbs =
      /^(?:list|open|close|query|alloc|dealloc|free|reg|dereg|create|destroy|modify|attach|detach|cm)/;
    expect(Object.keys(COMMAND_SCHEMAS).filter((name) => !verbs.test(name))).toEqual([]);
  });
});
