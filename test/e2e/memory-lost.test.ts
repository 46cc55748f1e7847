/** Registered memory that goes away: its queue pair fails, the daemon and everybody else go on. */
import koffi from 'koffi';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { connectDaemon } from '../../verbs-api/connect-daemon.ts';
import { Access, WCStatus } from '../../verbs-api/contract/enums.ts';
import type { MR, Provider } from '../../verbs-api/contract/provider.ts';
import {
  completions,
  connectedPair,
  type Pair,
  pattern,
  send,
  write,
} from '../compliance/fixture.ts';
import { DaemonRig } from '../support/daemon-rig.ts';

const LENGTH_BYTES = 65_536;
const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const libc = koffi.load('libc.so.6');
const mmap = libc.func('void *mmap(void *, uint64_t, int, int, int, int64_t)');
const munmap = libc.func('int munmap(void *, uint64_t)');

let rig: DaemonRig;
let provider: Provider;
let pair: Pair;

beforeEach(async () => {
  const devices = [{ name: 'rnic0', addresses: ['127.0.0.1'] }];
  rig = await DaemonRig.start({ devices, memoryTiers: ['shared', 'process_vm'] });
  provider = await connectDaemon({ socketPath: rig.socketPath });
  pair = await connectedPair({ server: provider, client: provider, stop: async () => undefined });
});

afterEach(async () => {
  await pair[Symbol.asyncDispose]();
  await provider.close();
  await rig.stop();
});

/** Registers pages of this process with the server's PD, then unmaps them. Nobody touches them. */
async function lostRegion(): Promise<MR> {
  const address = mmap(null, LENGTH_BYTES, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  const octets = new Uint8Array(koffi.view(address, LENGTH_BYTES));
  octets.fill(1);
  const access = Access.localWrite | Access.remoteWrite | Access.remoteRead;
  const mr = await pair.server.pd.regMR(octets, access);
  expect(mr.tier).toBe('process_vm');
  expect(munmap(address, LENGTH_BYTES)).toBe(0);
  return mr;
}

/** Another connection of the same daemon still moves octets. */
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

it('an RDMA Write into it ends its connection at both sides', async () => {
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

it('a Send out of it completes in error', async () => {
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
