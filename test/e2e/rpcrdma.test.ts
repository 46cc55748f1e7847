/** Programs called and served over RDMA: in one process, and over a daemon. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Access, WCFlag, WCOpcode, WCStatus, WROpcode } from '#contract/verbs/enums';
import { isVerbsError } from '#contract/verbs/errors';
import { queryDaemon } from '#verbs-api/client/daemon-query';
import { ClientPD } from '#verbs-api/client/protection-domain';
import { ClientQP } from '#verbs-api/client/queue-pair';
import { connect } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { emitPrivateData, parsePrivateData } from '#verbs-api/rpcrdma/core/private-data';
import { defineProgram } from '#verbs-api/rpcrdma/core/program';
import { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import type { RpcClient, RpcClientOptions } from '#verbs-api/rpcrdma/rpc-client-types';
import { RpcError } from '#verbs-api/rpcrdma/rpc-error';
import { listenRpc, type RpcServer } from '#verbs-api/rpcrdma/rpc-server';
import { DaemonRig } from '../support/daemon-rig.ts';
import { ECHO, sumOf } from '../support/echo-program.ts';
import { quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import {
  type EchoLog,
  echoService,
  RawPeer,
  RawServer,
  WORLDS,
  type World,
} from '../support/rpc-world.ts';
import { messageBytes, shortCall, storePayload } from '../support/rpcrdma-rig.ts';

/** Sizes around roundup, the threshold of 4096 and pages, and large ones. */
const SIZES = [0, 1, 3, 4, 5, 1000, 3900, 4020, 4028, 4032, 4033, 4096, 8193, 65_536, 1 << 20];

async function failureOf(call: Promise<unknown>): Promise<readonly [string, boolean]> {
  try {
    await call;
  } catch (error) {
    if (error instanceof RpcError) return [error.code, error.outcomeUnknown];
    throw error;
  }
  throw new Error('the call succeeded');
}

describe.each(Object.entries(WORLDS))('over the %s provider', (_name, makeWorld) => {
  let world: World;
  let server: RpcServer;
  let client: RpcClient;
  let log: EchoLog;
  const closers: (() => Promise<void>)[] = [];

  const connectClient = (options: Partial<RpcClientOptions> = {}): Promise<RpcClient> =>
    connectRpc(world.provider, { host: '127.0.0.1', port: server.address.port, ...options });

  beforeAll(async () => {
    world = await makeWorld();
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    const echo = echoService();
    log = echo.log;
    server = await listenRpc(world.provider, echo.service, { host: '127.0.0.1', port: 0 });
    client = await connectClient();
  });
  afterEach(async () => {
    vi.restoreAllMocks();
    for (const close of closers.splice(0)) await close();
    await client.close();
    await server.close();
  });

  it('returns results of every size [RPCR-3.4-02, RPCR-3.6-01]', async () => {
    for (const size of SIZES) {
      const bytes = await client.call(ECHO, 'FETCH', size);
      expect(sumOf(bytes), `${size}`).toBe(sumOf(pattern(size)));
      expect(bytes).toHaveLength(size);
    }
  });

  it('accepts arguments of every size', async () => {
    for (const size of SIZES) {
      const args = { name: `${size}`, bytes: pattern(size), mode: 3 };
      expect(await client.call(ECHO, 'STORE', args)).toBe(sumOf(args.bytes));
    }
    expect(log.stored).toEqual(SIZES.map(String));
  });

  it('accepts and returns long messages of every size [RPCR-5.1-02, RPCR-5.2-02]', async () => {
    for (const size of SIZES) {
      const bytes = pattern(size);
      expect(Buffer.compare(await client.call(ECHO, 'MIRROR', bytes), bytes)).toBe(0);
    }
  });

  it('places two results in memory of the program, complete when the call returns [RPCR-3.6-03, RPCR2-4.4.1-01]', async () => {
    const bytes = pattern(100_003);
    const bulkInto = [await client.allocate(50_001), new Uint8Array(50_002)];
    const halves = await client.call(ECHO, 'SPLIT', { bytes, at: 50_001 }, { bulkInto });
    expect(halves[0].buffer).toBe(bulkInto[0]?.buffer);
    expect(halves[1].buffer).toBe(bulkInto[1]?.buffer);
    expect(Buffer.compare(Buffer.concat(halves), bytes)).toBe(0);
  });

  it('registers what a call needs, and nothing stays registered [RPCR-7-01]', async () => {
    const counts: number[] = [];
    const countOf = async (call: () => Promise<unknown>): Promise<void> => {
      const before = client.counters.exposed;
      await call();
      counts.push(client.counters.exposed - before);
    };
    const bytes = pattern(10_000);
    await countOf(() => client.call(ECHO, 'NULL', undefined));
    await countOf(() => client.call(ECHO, 'FETCH', 10_000));
    await countOf(() => client.call(ECHO, 'STORE', { name: '', bytes, mode: 0 }));
    await countOf(() => client.call(ECHO, 'MIRROR', bytes));
    await countOf(() => client.call(ECHO, 'SPLIT', { bytes, at: 5000 }));
    expect(counts).toEqual([0, 1, 1, 2, 3]);
  });

  it('registers nothing for calls with their own memory, however many [RPCR-7-01]', async () => {
    const memory = await client.allocate(30_000);
    memory.set(pattern(10_000), 20_000);
    const [into, from] = [memory.subarray(0, 10_000), memory.subarray(20_000)];
    const calls = async (): Promise<void> => {
      await Promise.all([
        client.call(ECHO, 'FETCH', 10_000, { bulkInto: [into] }),
        client.call(ECHO, 'STORE', { name: '', bytes: from, mode: 0 }),
      ]);
    };
    // The first ones register the memory for the connection, and take windows.
    await calls();
    const registering = vi.spyOn(ClientPD.prototype, 'regMR');
    const allocating = vi.spyOn(ClientPD.prototype, 'allocMW');
    const before = client.counters.exposed;
    for (let i = 0; i < 20; i++) await calls();
    expect(client.counters.exposed - before).toBe(40);
    expect(registering).not.toHaveBeenCalled();
    expect(allocating).not.toHaveBeenCalled();
    // Memory from elsewhere is registered, for this call only.
    const strange = pattern(10_000);
    await client.call(ECHO, 'STORE', { name: '', bytes: strange, mode: 0 });
    expect(registering).toHaveBeenCalledTimes(1);
  });

  it('serves hundreds of concurrent calls within its credits [RPCR-3.3-05, RPCR2-3.3.1-04, RPCR-6-01]', async () => {
    const calls = Array.from({ length: 300 }, async (_, i) => {
      const size = (i * 37) % 9000;
      const bytes = await client.call(ECHO, 'FETCH', size);
      return bytes.length === size && sumOf(bytes) === sumOf(pattern(size));
    });
    expect((await Promise.all(calls)).every((good) => good)).toBe(true);
    expect(client.counters).toMatchObject({ sent: 300, replies: 300, connections: 1 });
  });

  it('reports why a call cannot be executed, and continues [RPCR2-6.3-01]', async () => {
    const other = defineProgram({ ...ECHO, number: ECHO.number + 1 });
    const later = defineProgram({ ...ECHO, version: 9 });
    const missing = client.call(ECHO, 'MISSING', undefined);
    expect(await failureOf(missing)).toEqual(['PROC_UNAVAIL', false]);
    expect(await failureOf(client.call(other, 'NULL', undefined))).toEqual(['PROG_UNAVAIL', false]);
    const mismatch = client.call(later, 'NULL', undefined);
    expect(await failureOf(mismatch)).toEqual(['PROG_MISMATCH', false]);
    const args = { name: 'fail', bytes: pattern(10), mode: 0 };
    expect(await failureOf(client.call(ECHO, 'STORE', args))).toEqual(['SYSTEM_ERR', false]);
    const long = { ...args, name: 'x'.repeat(256) };
    expect(await failureOf(client.call(ECHO, 'STORE', long))).toEqual(['GARBAGE_ARGS', false]);
    await client.call(ECHO, 'NULL', undefined);
    expect(client.counters.connections).toBe(1);
  });

  it('sends nothing for memory that no result is mapped to, or that is too short [RPCR-3.6-04, RPCR2-3.4.6-01]', async () => {
    const sent = client.counters.sent;
    const into = [new Uint8Array(100)];
    const mirror = client.call(ECHO, 'MIRROR', pattern(8), { bulkInto: into });
    expect(await failureOf(mirror)).toEqual(['unfit', false]);
    const fetch = client.call(ECHO, 'FETCH', 101, { bulkInto: into });
    expect(await failureOf(fetch)).toEqual(['unfit', false]);
    expect(client.counters.sent).toBe(sent);
  });

  it('identifies the caller to the server', async () => {
    const ids = { uid: 7, gid: 8, gids: [9] };
    const user = { flavor: 'sys', stamp: 1, machineName: 'host', ...ids } as const;
    await client.call(ECHO, 'FETCH', 1, { credential: user });
    await client.call(ECHO, 'FETCH', 1);
    expect(log.calls.map(({ credential }) => credential)).toEqual([user, { flavor: 'none' }]);
    expect(log.calls[0]?.address).toBe('127.0.0.1');
  });

  it('uses long messages in both directions if its own receives are small [RPCR2-3.5.3-01]', async () => {
    const small = await connectClient({ inlineBytes: 1024 });
    for (const size of [900, 960, 1000, 1100, 4000]) {
      const bytes = pattern(size);
      expect(Buffer.compare(await small.call(ECHO, 'MIRROR', bytes), bytes)).toBe(0);
    }
    // The three that do not fit needed memory for the call and for the reply.
    expect(small.counters.exposed).toBeGreaterThanOrEqual(4);
    await small.close();
  });

  it('announces its buffer sizes and uses those of each connection [CMPD-4-03, CMPD-7-01]', async () => {
    const echo = echoService();
    const options = { host: '127.0.0.1', port: 0, inlineBytes: 5000 };
    const odd = await listenRpc(world.provider, echo.service, options);
    const { port } = odd.address;
    const raw = await connect(world.provider, { host: '127.0.0.1', port });
    // Rounded down to the 4096 bytes of its receives.
    expect(parsePrivateData(raw.established.privateData)).toMatchObject({ receiveBytes: 4096 });
    await raw.close();
    const roaming = await connectRpc(world.provider, { host: '127.0.0.1', port });
    const bytes = pattern(3000);
    await roaming.call(ECHO, 'MIRROR', bytes);
    expect(roaming.counters.exposed).toBe(0);
    await odd.close();
    const smaller = { ...options, port, inlineBytes: 1024 };
    const small = await listenRpc(world.provider, echo.service, smaller);
    expect(Buffer.compare(await roaming.call(ECHO, 'MIRROR', bytes), bytes)).toBe(0);
    expect(roaming.counters.exposed).toBe(2);
    await roaming.close();
    await small.close();
  });

  it('reads segment after segment from a client that serves one Read at once [RPCR-3.3-11, RPCR-6.2-07]', async () => {
    const { port } = server.address;
    const raw = await RawPeer.connect(world.provider, port, { responderResources: 1 });
    const bytes = pattern(5000);
    const mr = await raw.channel.pd.regMR(bytes, Access.remoteRead);
    const { reduced, position } = storePayload(bytes);
    const readList = Array.from({ length: 5 }, (_, i) => {
      const offset = mr.address + BigInt(i * 1000);
      return { position, handle: mr.rkey, lengthBytes: 1000, offset };
    });
    const lists = { readList, writeList: [], replyChunk: undefined };
    raw.send(messageBytes({ type: 'msg', xid: 1, credits: 1, ...lists }, reduced));
    const reply = await raw.next();
    expect(new XdrReader(reply.payload.subarray(24)).uint32()).toBe(sumOf(bytes));
    await raw.close();
  });

  it('refuses to serve with too few credits for its options [RPCR-3.8-05]', async () => {
    const { service } = echoService();
    const serve = (credits: number, readListReplies: boolean): Promise<RpcServer> => {
      const responder = { credits, readListReplies };
      return listenRpc(world.provider, service, { host: '127.0.0.1', port: 0, responder });
    };
    await expect(serve(0, false)).rejects.toThrow(RangeError);
    await expect(serve(1, true)).rejects.toThrow(RangeError);
    await (await serve(1, false)).close();
    await (await serve(2, true)).close();
  });

  it('answers with plain Sends, whatever the client could have invalidated [CMPD-4.1-02]', async () => {
    const sizes = { sendBytes: 4096, receiveBytes: 4096 };
    const privateData = emitPrivateData({ remoteInvalidation: true, ...sizes });
    const { port } = server.address;
    let memory: Awaited<ReturnType<typeof raw.pd.allocMR>> | undefined;
    const raw = await connect(world.provider, {
      host: '127.0.0.1',
      port,
      privateData,
      prepare: async ({ pd, qp }) => {
        memory = await pd.allocMR(4096, Access.localWrite);
        qp.postRecv({ wrId: 1, sgList: [memory.sge(0, 2048)] });
      },
    });
    const call = shortCall(5);
    memory?.buffer.set(call, 2048);
    const sgList = memory === undefined ? [] : [memory.sge(2048, call.length)];
    raw.qp.postSend({ opcode: WROpcode.send, sgList });
    let received = (await raw.cq.wait()).find(({ opcode }) => opcode === WCOpcode.recv);
    received ??= (await raw.cq.wait()).find(({ opcode }) => opcode === WCOpcode.recv);
    expect(received?.status).toBe(WCStatus.success);
    expect((received?.wcFlags ?? 0) & WCFlag.withInv).toBe(0);
    await raw.close();
  });

  it('supports RFC 5666 if both ends ask for it [RPCR-3.5-04, RPCR-3.9-01]', async () => {
    const echo = echoService();
    const responder = { readListReplies: true, doneTimeoutMs: 200 };
    const options = { host: '127.0.0.1', port: 0, responder };
    const old = await listenRpc(world.provider, echo.service, options);
    const oldClient = await connectRpc(world.provider, {
      host: '127.0.0.1',
      port: old.address.port,
      requester: { readListReplies: true },
      padding: { alignBytes: 64, thresholdBytes: 100 },
    });
    // It reserves no room for a reply, so the server keeps it for the client to read.
    const { MIRROR } = ECHO.procedures;
    const procedures = { MIRROR: { ...MIRROR, resultMaxBytes: () => 0 } };
    const roomless = defineProgram({ ...ECHO, procedures });
    for (const size of [50, 1000, 3900, 5000, 100_001]) {
      const bytes = pattern(size);
      const mirrored = await oldClient.call(roomless, 'MIRROR', bytes);
      expect(Buffer.compare(mirrored, bytes)).toBe(0);
    }
    const mirror = client.call(roomless, 'MIRROR', pattern(5000));
    await expect(mirror).rejects.toMatchObject({ code: 'ERR_CHUNK' });
    await oldClient.close();
    await old.close();
  });

  /** A client of a server that never answers, and the server's end of its connection. */
  async function lossyClient() {
    const silent = await RawServer.listen(world.provider);
    const accepting = silent.accept();
    const lossy = await connectRpc(world.provider, { host: '127.0.0.1', port: silent.port });
    closers.push(
      () => lossy.close(),
      () => silent.close(),
    );
    return { silent, lossy, peer: await accepting };
  }

  it('abandons a call at its deadline or on request; a late reply is harmless', async () => {
    let open = (): void => undefined;
    log.gate = new Promise((resolve) => {
      open = resolve;
    });
    const slow = failureOf(client.call(ECHO, 'FETCH', 5000, { timeoutMs: 50 }));
    const controller = new AbortController();
    expect(await slow).toEqual(['timeout', true]);
    const aborted = failureOf(client.call(ECHO, 'FETCH', 6000, { signal: controller.signal }));
    controller.abort();
    expect((await aborted)[0]).toBe('aborted');
    // The server now writes to memory that is closed to it, which ends the connection.
    open();
    expect(sumOf(await client.call(ECHO, 'FETCH', 7000))).toBe(sumOf(pattern(7000)));
  });

  it('repeats only idempotent calls after a loss [RPCR-8-01]', async () => {
    const { silent, lossy, peer } = await lossyClient();
    const { port } = silent;
    const args = { name: 'b', bytes: pattern(9), mode: 0 };
    const twice = lossy.call(ECHO, 'FETCH', 9000);
    // The first call holds the only credit, so this one is not sent.
    const later = lossy.call(ECHO, 'STORE', args);
    const { header } = await peer.next();
    await silent.close();
    await peer.close();
    const echo = echoService();
    const second = await listenRpc(world.provider, echo.service, { host: '127.0.0.1', port });
    expect(sumOf(await twice)).toBe(sumOf(pattern(9000)));
    await later;
    expect(echo.log.calls.map(({ xid }) => xid)).toEqual([header.xid]);
    expect(echo.log.stored).toEqual(['b']);
    expect(lossy.counters).toMatchObject({ connections: 2, sent: 3 });
    await second.close();
  });

  it('does not retry a non-idempotent call and reports an unknown outcome [NFSR-8267.4-03]', async () => {
    const { lossy, peer } = await lossyClient();
    const once = failureOf(lossy.call(ECHO, 'STORE', { name: 'b', bytes: pattern(9), mode: 0 }));
    await peer.next();
    await peer.close();
    expect(await once).toEqual(['connectionLost', true]);
  });

  it('closes at once while it waits for a server that does not answer', async () => {
    const { lossy, peer } = await lossyClient();
    await peer.close();
    // The second connection is never accepted.
    const call = failureOf(lossy.call(ECHO, 'NULL', undefined));
    await quiet(100);
    await lossy.close();
    expect((await call)[0]).toBe('closed');
  });

  it('reports why it cannot connect', async () => {
    const { port } = server.address;
    await server.close();
    await client.close();
    const refused = connectRpc(world.provider, { host: '127.0.0.1', port });
    await expect(refused).rejects.toSatisfy((error) => isVerbsError(error));
    expect(await failureOf(client.call(ECHO, 'NULL', undefined))).toEqual(['closed', false]);
  });

  it('rejects connections beyond its bound', async () => {
    const { service } = echoService();
    const options = { host: '127.0.0.1', port: 0, connectionsMax: 1 };
    const small = await listenRpc(world.provider, service, options);
    const to = { host: '127.0.0.1', port: small.address.port };
    const first = await connectRpc(world.provider, to);
    await expect(connectRpc(world.provider, to)).rejects.toThrow();
    await first.call(ECHO, 'NULL', undefined);
    await first.close();
    await small.close();
  });
});

/** A client of an echo server, both on one daemon. */
async function echoOverDaemon(): Promise<{
  readonly rig: DaemonRig;
  readonly client: RpcClient;
  close(): Promise<void>;
}> {
  const rig = await DaemonRig.start();
  const provider = await connectDaemon({ socketPath: rig.socketPath });
  const { service } = echoService();
  const server = await listenRpc(provider, service, { host: '127.0.0.1', port: 0 });
  const { port } = server.address;
  const client = await connectRpc(provider, { host: '127.0.0.1', port });
  const close = async (): Promise<void> => {
    await client.close();
    await server.close();
    await provider.close();
    await rig.stop();
  };
  return { rig, client, close };
}

describe('over a daemon', () => {
  it('leaves no region behind, whatever was called [RPCR-7-01, RPCR2-3.4.3-01]', async () => {
    const rig = await DaemonRig.start();
    const provider = await connectDaemon({ socketPath: rig.socketPath });
    const objects = async (): Promise<Readonly<Record<string, number>>> => {
      const { clients } = await queryDaemon('status', {}, { socketPath: rig.socketPath });
      return clients.find(({ usage }) => (usage.objects['qp'] ?? 0) > 0)?.usage.objects ?? {};
    };
    const { service } = echoService();
    const server = await listenRpc(provider, service, { host: '127.0.0.1', port: 0 });
    const { port } = server.address;
    const client = await connectRpc(provider, { host: '127.0.0.1', port });
    const memory = await client.allocate(40_000);
    const all = async (): Promise<void> => {
      const bytes = pattern(20_000);
      const windowed = memory.subarray(20_000);
      windowed.set(bytes);
      await Promise.all([
        client.call(ECHO, 'FETCH', 20_000),
        client.call(ECHO, 'FETCH', 20_000, { bulkInto: [memory.subarray(0, 20_000)] }),
        client.call(ECHO, 'STORE', { name: '', bytes: windowed, mode: 0 }),
        client.call(ECHO, 'STORE', { name: '', bytes, mode: 0 }),
        client.call(ECHO, 'MIRROR', bytes),
        client.call(ECHO, 'SPLIT', { bytes, at: 5000 }),
      ]);
    };
    // Pooled buffers and windows stay; after the first rounds there are as many as needed.
    for (let i = 0; i < 5; i++) await all();
    const before = await objects();
    for (let i = 0; i < 30; i++) await all();
    expect(await objects()).toEqual(before);
    expect(before['qp']).toBe(2);
    await client.close();
    await server.close();
    expect(await objects()).toEqual({});
    await provider.close();
    await rig.stop();
  });

  it('needs a completion for one Send in 64 that only carry a message', async () => {
    const { rig, client, close } = await echoOverDaemon();
    const completions = async (): Promise<number> => {
      const { devices } = await queryDaemon('status', {}, { socketPath: rig.socketPath });
      return devices.reduce((sum, { counters }) => sum + (counters['completions'] ?? 0), 0);
    };
    const batches = 16;
    const before = await completions();
    for (let batch = 0; batch < batches; batch += 1) {
      await Promise.all(Array.from({ length: 16 }, () => client.call(ECHO, 'NULL', undefined)));
    }
    // Calls and replies complete as receives.
    const sends = 2 * batches * 16;
    expect((await completions()) - before - sends).toBe(sends / 64);
    await close();
  });

  it('posts the replies of a burst in parts', async () => {
    const { client, close } = await echoOverDaemon();
    const posted = vi.spyOn(ClientQP.prototype, 'postSend');
    await Promise.all(Array.from({ length: 16 }, () => client.call(ECHO, 'NULL', undefined)));
    const lengths = posted.mock.calls.map(([requests]) => [requests].flat().length);
    expect(lengths.reduce((sum, length) => sum + length, 0)).toBe(32);
    expect(Math.max(...lengths)).toBeLessThanOrEqual(4);
    posted.mockRestore();
    await close();
  });
});
