/** Registered memory that disappears: its queue pair fails, the daemon and other clients keep working. */
import koffi from 'koffi';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access, WCStatus } from '#contract/verbs/enums';
import type { MR, Provider } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { DaemonRig } from '../support/daemon-rig.ts';
import { pattern } from '../support/pattern.ts';
import {
  completions,
  connectedPair,
  type Pair,
  read,
  send,
  write,
} from '../support/provider-fixture.ts';

const LENGTH_BYTES = 65_536;
const PROT_READ_WRITE = 3;
const PROT_NONE = 0;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const libc = koffi.load('libc.so.6');
const mmap = libc.func('void *mmap(void *, uint64_t, int, int, int, int64_t)');
const mprotect = libc.func('int mprotect(void *, uint64_t, int)');

let rig: DaemonRig;
let provider: Provider;
let pair: Pair;

async function start(tier: 'process_vm' | 'agent'): Promise<void> {
  const devices = [{ name: 'rnic0', addresses: ['127.0.0.1'] }];
  rig = await DaemonRig.start({ devices, memoryTiers: ['shared', tier] });
  provider = await connectDaemon({ socketPath: rig.socketPath });
  pair = await connectedPair({ server: provider, client: provider, stop: async () => undefined });
}

afterEach(async () => {
  await pair[Symbol.asyncDispose]();
  await provider.close();
  await rig.stop();
});

const ACCESS = Access.localWrite | Access.remoteWrite | Access.remoteRead;

/**
 * Registers pages of this process with the server's PD, then makes them inaccessible. No process may copy
 * into them, as if they were unmapped; but another thread of this process could map its own memory
 * at an address that is free, and the daemon would find that.
 */
async function inaccessibleRegion(): Promise<MR> {
  const address = mmap(null, LENGTH_BYTES, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  const bytes = new Uint8Array(koffi.view(address, LENGTH_BYTES));
  bytes.fill(1);
  const mr = await pair.server.pd.regMR(bytes, ACCESS);
  expect(mr.tier).toBe('process_vm');
  expect(mprotect(address, LENGTH_BYTES, PROT_NONE)).toBe(0);
  return mr;
}

/** Registers a buffer of this process, then transfers it: the agent does not find it. */
async function detachedRegion(): Promise<MR> {
  const bytes = new Uint8Array(LENGTH_BYTES);
  const mr = await pair.server.pd.regMR(bytes, ACCESS);
  expect(mr.tier).toBe('agent');
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return mr;
}

/** Another connection of the same daemon still moves bytes. */
async function expectOthersUnharmed(): Promise<void> {
  await using other = await connectedPair({
    server: provider,
    client: provider,
    stop: async () => undefined,
  });
  other.server.connection.qp.postRecv({ sgList: [other.server.mr.sge()] });
  other.client.mr.buffer.set(pattern(100));
  other.client.connection.qp.postSend(send([other.client.mr.sge(0, 100)]));
  expect(await completions(other.server.connection.cq)).toMatchObject([{ byteLen: 100 }]);
  expect(other.server.mr.buffer.subarray(0, 100)).toEqual(pattern(100));
}

describe.each([
  ['process_vm', inaccessibleRegion],
  ['agent', detachedRegion],
] as const)('memory of the %s tier that disappeared', (tier, lostRegion) => {
  beforeEach(() => start(tier));

  it('ends the connection of an RDMA Write into it, at both sides', async () => {
    const lost = await lostRegion();
    const { client, server } = pair;
    server.connection.qp.postRecv({ wrId: 5, sgList: [] });
    client.connection.qp.postSend(write([client.mr.sge(0, 100)], lost));
    const [flushed] = await completions(server.connection.cq);
    expect(flushed).toMatchObject({ wrId: 5n, status: WCStatus.wrFlushErr });
    await client.connection.disconnected();
    await lost.close();
    await expectOthersUnharmed();
  });

  it('fails every Send after the Write [RDMAP-5.5-04]', async () => {
    const lost = await lostRegion();
    const { client, server } = pair;
    server.connection.qp.postRecv({ wrId: 5, sgList: [server.mr.sge()] });
    const piece = client.mr.sge(0, 100);
    client.connection.qp.postSend([write([piece], lost), send([piece])]);
    const [flushed] = await completions(server.connection.cq);
    expect(flushed).toMatchObject({ wrId: 5n, byteLen: 0 });
    expect(flushed?.status).not.toBe(WCStatus.success);
    await client.connection.disconnected();
    await lost.close();
  });

  it('fails an RDMA Read into it [RDMAP-5.2.2-04, RDMAP-5.5-05]', async () => {
    const lost = await lostRegion();
    const { client, server } = pair;
    server.connection.qp.postSend({ ...read([lost.sge(0, 100)], client.mr), wrId: 7 });
    const [failed] = await completions(server.connection.cq);
    expect(failed).toMatchObject({ wrId: 7n, status: WCStatus.locProtErr, byteLen: 0 });
    await client.connection.disconnected();
    await lost.close();
    await expectOthersUnharmed();
  });

  it('fails a receive into it', async () => {
    const lost = await lostRegion();
    const { client, server } = pair;
    server.connection.qp.postRecv({ wrId: 5, sgList: [lost.sge()] });
    client.connection.qp.postSend(send([client.mr.sge(0, 100)]));
    const [failed] = await completions(server.connection.cq);
    expect(failed).toMatchObject({ wrId: 5n, status: WCStatus.locProtErr, byteLen: 0 });
    await client.connection.disconnected();
    await lost.close();
  });

  it('fails a Send out of it', async () => {
    const lost = await lostRegion();
    const { client, server } = pair;
    client.connection.qp.postRecv({ sgList: [client.mr.sge()] });
    server.connection.qp.postSend(send([lost.sge(0, 100)], 9));
    const [failed] = await completions(server.connection.cq);
    expect(failed).toMatchObject({ wrId: 9n, status: WCStatus.locProtErr, byteLen: 0 });
    await client.connection.disconnected();
    await lost.close();
    await expectOthersUnharmed();
  });
});
