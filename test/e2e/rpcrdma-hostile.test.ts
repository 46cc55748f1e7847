/** Peers that break the rules of RPC over RDMA: their replies, and the effect on others. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { Access, SendFlag, WCStatus, WROpcode } from '#contract/verbs/enums';
import type { MR } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { emitPrivateData } from '#verbs-api/rpcrdma/core/private-data';
import type { ChunkLists, Segment } from '#verbs-api/rpcrdma/core/transport-header';
import { parseTransportHeader } from '#verbs-api/rpcrdma/core/transport-header';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import type { RpcClient } from '#verbs-api/rpcrdma/rpc-client-types';
import { listenRpc, type RpcServer } from '#verbs-api/rpcrdma/rpc-server';
import { ECHO, sumOf } from '../support/echo-program.ts';
import { bytesOf, hexOf } from '../support/hex.ts';
import {
  emitFpdu,
  mpaReply,
  mpaRequest,
  readRequestUlpdu,
  sendUlpdu,
} from '../support/mpa-frames.ts';
import { mutants } from '../support/mutate.ts';
import { patience, quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { RawListener, RawPeer as TcpPeer } from '../support/raw-peer.ts';
import {
  codeOf,
  echoService,
  type RawMessage,
  RawPeer,
  RawServer,
  WORLDS,
  type World,
} from '../support/rpc-world.ts';
import {
  callPayload,
  messageBytes,
  messageHeader,
  shortCall,
  shortReply,
  storePayload,
} from '../support/rpcrdma-rig.ts';

const NO_LISTS: ChunkLists = { readList: [], writeList: [], replyChunk: undefined };
const TERMS = emitPrivateData({ remoteInvalidation: false, sendBytes: 4096, receiveBytes: 4096 });
/** Length, DDP and RDMAP header of a Send, before its message. */
const FPDU_SEND_HEADER_BYTES = 20;
const ERROR_CHUNK = { type: 'error', error: { code: 'chunk' } };

function segmentOf(mr: MR, at = 0, lengthBytes = mr.length): Segment {
  return { handle: mr.rkey, lengthBytes, offset: mr.address + BigInt(at) };
}

describe.each(Object.entries(WORLDS))('a hostile client, %s provider', (_name, makeWorld) => {
  let world: World;
  let server: RpcServer;
  /** Must stay unaffected. */
  let bystander: RpcClient;
  const raws: RawPeer[] = [];

  beforeAll(async () => {
    world = await makeWorld();
    const responder = { stallTimeoutMs: 300, credits: 8 };
    const { service } = echoService();
    server = await listenRpc(world.provider, service, { host: '127.0.0.1', port: 0, responder });
    bystander = await connectRpc(world.provider, { host: '127.0.0.1', port: server.address.port });
  });

  afterEach(async () => {
    for (const raw of raws.splice(0)) await raw.close();
    expect(sumOf(await bystander.call(ECHO, 'FETCH', 20_000))).toBe(sumOf(pattern(20_000)));
    expect(bystander.counters.connections).toBe(1);
  });

  afterAll(async () => {
    await bystander.close();
    await server.close();
    await world.close();
  });

  async function connectRaw(): Promise<RawPeer> {
    const raw = await RawPeer.connect(world.provider, server.address.port);
    raws.push(raw);
    return raw;
  }

  async function expectAlive(raw: RawPeer): Promise<void> {
    raw.send(shortCall(0xffff));
    expect((await raw.next()).header).toMatchObject({ type: 'msg', xid: 0xffff });
  }

  it('that cuts a header at any byte gets nothing, or one error [RPCR2-4.5-01, RPCR-4.2-01]', async () => {
    const raw = await connectRaw();
    const segment = { handle: 1, lengthBytes: 8, offset: 0n };
    const readList = [{ position: 44, ...segment }];
    const lists = { readList, writeList: [[segment]], replyChunk: [segment] };
    const whole = messageBytes({ type: 'msg', xid: 7, credits: 1, ...lists });
    for (let length = 0; length <= whole.length; length++) {
      raw.send(whole.subarray(0, length));
      if (length >= 28) expect((await raw.next()).header).toMatchObject({ ...ERROR_CHUNK, xid: 7 });
      else await expectAlive(raw);
    }
    await expectAlive(raw);
  });

  it('that sends anything gets an error, a reply or a disconnect [RPCR-4.2-02, RPCR-4.2-05]', async () => {
    let raw = await connectRaw();
    let fate = 0;
    const writeList = [[{ handle: 1, lengthBytes: 9, offset: 0n }]];
    const samples = [
      shortCall(1),
      shortCall(
        2,
        callPayload(2, (writer) => writer.uint32(10), 1),
      ),
      messageBytes({ type: 'done', xid: 3, credits: 1 }),
      messageBytes(
        { type: 'msg', xid: 4, credits: 1, ...NO_LISTS, writeList },
        callPayload(4, (writer) => writer.uint32(4), 1),
      ),
    ];
    for (const bytes of mutants(samples, 400)) {
      if (raw.ended !== undefined) {
        raw = await connectRaw();
        fate += 1;
      }
      raw.send(bytes.subarray(0, 4096));
      // One call at a time after each message, so the server's receives suffice.
      raw.send(shortCall(0xabcd));
      try {
        while ((await raw.next()).header.xid !== 0xabcd);
      } catch {
        expect(raw.ended).toBeDefined();
      }
    }
    expect(fate).toBeLessThan(400);
  });

  it('with a chunk of 16 segments is served; one with 1000 gets an error [NFSR-8267.6.4-01]', async () => {
    const raw = await connectRaw();
    const bytes = pattern(1600);
    const mr = await raw.channel.pd.regMR(bytes, Access.remoteRead);
    const { reduced, position } = storePayload(bytes);
    const readList = Array.from({ length: 16 }, (_, i) => ({
      position,
      ...segmentOf(mr, i * 100, 100),
    }));
    raw.send(messageBytes({ type: 'msg', xid: 1, credits: 1, ...NO_LISTS, readList }, reduced));
    const reply = await raw.next();
    expect(hexOf(reply.payload.subarray(24))).toBe(sumOf(bytes).toString(16).padStart(8, '0'));
    const many = Array.from({ length: 160 }, () => ({ position, ...segmentOf(mr, 0, 1) }));
    raw.send(messageBytes({ type: 'msg', xid: 2, credits: 1, ...NO_LISTS, readList: many }));
    expect((await raw.next()).header).toMatchObject({ ...ERROR_CHUNK, xid: 2 });
    await expectAlive(raw);
  });

  it('whose chunk is not as long as its count gets GARBAGE_ARGS [RPCR-3.4-07, RPCR2-4.5.2-02]', async () => {
    const raw = await connectRaw();
    const mr = await raw.channel.pd.regMR(pattern(200), Access.remoteRead);
    const { reduced, position } = storePayload(pattern(101));
    const statusFor = async (at: number, lengthBytes: number): Promise<string> => {
      const readList = [{ position: at, ...segmentOf(mr, 0, lengthBytes) }];
      raw.send(messageBytes({ type: 'msg', xid: 1, credits: 1, ...NO_LISTS, readList }, reduced));
      return hexOf((await raw.next()).payload.subarray(20, 24));
    };
    expect(await statusFor(position, 101)).toBe('00000000');
    expect(await statusFor(position, 104)).toBe('00000000');
    expect(await statusFor(position, 100)).toBe('00000004');
    expect(await statusFor(position, 105)).toBe('00000004');
    expect(await statusFor(position, 96)).toBe('00000004');
    expect(await statusFor(position + 4, 101)).toBe('00000004');
    // The name, which is not eligible.
    expect(await statusFor(44, 101)).toBe('00000004');
  });

  it('that names bytes beyond its region loses its connection [RPCR2-4.5.3-01]', async () => {
    const raw = await connectRaw();
    const mr = await raw.channel.pd.regMR(pattern(64), Access.remoteRead);
    const readList = [{ position: 0, ...segmentOf(mr, 0, 65) }];
    raw.send(messageBytes({ type: 'nomsg', xid: 1, credits: 1, ...NO_LISTS, readList }));
    expect(await raw.end()).not.toBe('');
  });

  it('that names an unknown STag loses its connection [RPCR2-4.5.3-01]', async () => {
    for (const lists of [
      { readList: [{ position: 0, handle: 0x1234_5600, lengthBytes: 64, offset: 0n }] },
      { writeList: [[{ handle: 0x1234_5600, lengthBytes: 8192, offset: 0n }]] },
    ]) {
      const raw = await connectRaw();
      const type = 'readList' in lists ? 'nomsg' : 'msg';
      const payload = callPayload(1, (writer) => writer.uint32(8192), 1);
      const header = { type, xid: 1, credits: 1, ...NO_LISTS, ...lists } as const;
      raw.send(type === 'msg' ? messageBytes(header, payload) : messageBytes(header));
      expect(await raw.end()).not.toBe('');
    }
  });

  it('that sends more than its credits gets its answers in order, and loses its connection', async () => {
    const raw = await connectRaw();
    for (let xid = 1; xid <= 60; xid++) raw.send(shortCall(xid));
    const answered: number[] = [];
    const answers = async (): Promise<void> => {
      while (answered.length < 60) answered.push((await raw.next()).header.xid);
    };
    await expect(answers()).rejects.toThrow('no buffer available');
    expect(answered).toEqual(answered.map((_, index) => index + 1));
  });

  it('that never reads its replies loses its connection in time', async () => {
    const peer = await TcpPeer.dial(server.address.port);
    peer.say(mpaRequest({ privateData: TERMS }));
    await expect.poll(() => peer.received.length).toBeGreaterThan(0);
    peer.stopReading();
    const lengthBytes = 4 << 20;
    const writeList = [[{ handle: 0x77, lengthBytes, offset: 0n }]];
    for (let xid = 1; xid <= 8; xid++) {
      const payload = callPayload(xid, (writer) => writer.uint32(lengthBytes), 1);
      const header = { type: 'msg', xid, credits: 8, ...NO_LISTS, writeList } as const;
      peer.say(emitFpdu(sendUlpdu(xid, messageBytes(header, payload))));
    }
    await expect.poll(() => server.connectionCount).toBe(2);
    await expect.poll(() => server.connectionCount).toBe(1);
    peer.reset();
  });

  it('that disconnects midway leaves nothing behind [RPCR-3.3-06]', async () => {
    for (let i = 0; i < 5; i++) {
      const raw = await connectRaw();
      const mr = await raw.channel.pd.regMR(pattern(100_000), Access.remoteRead);
      const readList = [{ position: 0, ...segmentOf(mr) }];
      for (let xid = 1; xid <= 8; xid++) {
        raw.send(messageBytes({ type: 'nomsg', xid, credits: 1, ...NO_LISTS, readList }));
      }
      await raw.close();
    }
    await expect.poll(() => server.connectionCount).toBe(1);
  });
});

describe.each(Object.entries(WORLDS))('a hostile server, %s provider', (_name, makeWorld) => {
  let world: World;
  let listener: RawServer;
  let client: RpcClient;
  let raw: RawPeer;

  beforeAll(async () => {
    world = await makeWorld();
  });
  afterAll(() => world.close());
  beforeEach(async () => {
    listener = await RawServer.listen(world.provider, TERMS);
    const accepting = listener.accept();
    client = await connectRpc(world.provider, {
      host: '127.0.0.1',
      port: listener.port,
      timeoutMs: patience(2000),
      requester: { connectsMax: 1, credits: 48 },
    });
    raw = await accepting;
  });
  afterEach(async () => {
    await listener.close();
    await client.close();
    await raw.close();
  });

  /** The raw server's memory to read into and write from. */
  async function ownMemory(): Promise<MR> {
    return await raw.channel.pd.allocMR(16_384, Access.localWrite);
  }

  type Reach = (
    segment: Segment,
  ) => readonly [kind: 'read' | 'write', offset: bigint, lengthBytes: number];

  const inside: readonly (readonly [string, Reach])[] = [
    ['one byte before', (s) => ['read', s.offset - 1n, 1]],
    ['one byte past the end', (s) => ['read', s.offset + BigInt(s.lengthBytes), 1]],
    ['across the end', (s) => ['read', s.offset, s.lengthBytes + 1]],
  ];
  // Peers access memory of `allocate`, and that of replies, through windows; other memory is registered.
  const chunkKinds = [
    ['read', 'registered'],
    ['write', 'registered'],
    ['read', 'windowed'],
    ['write', 'windowed'],
    ['reply', 'windowed'],
  ] as const;
  const cases = chunkKinds.flatMap(([chunk, memory]) => {
    const other: Reach = (s) => [chunk === 'read' ? 'write' : 'read', s.offset, 1];
    const ways = [...inside, ['in the other direction', other] as const];
    return ways.map(([where, reach]) => [memory, chunk, where, reach] as const);
  });

  /** 8000 bytes for a call. */
  async function memoryOf(memory: 'registered' | 'windowed'): Promise<Uint8Array> {
    if (memory === 'registered') return new Uint8Array(8000);
    // A window must not give access to the bytes on both sides.
    return (await client.allocate(10_000)).subarray(1000, 9000);
  }

  /** Makes a call that offers a chunk of this kind. */
  async function callWith(
    chunk: 'read' | 'write' | 'reply',
    memory: 'registered' | 'windowed',
  ): Promise<unknown> {
    const bytes = await memoryOf(memory);
    if (chunk === 'write') return await client.call(ECHO, 'FETCH', 8000, { bulkInto: [bytes] });
    bytes.set(pattern(8000));
    if (chunk === 'read') return await client.call(ECHO, 'STORE', { name: '', bytes, mode: 0 });
    return await client.call(ECHO, 'MIRROR', bytes);
  }

  function offeredOf(message: RawMessage, chunk: 'read' | 'write' | 'reply'): Segment {
    const { readList, writeList, replyChunk } = messageHeader(message);
    const segment = { read: readList[0], write: writeList[0]?.[0], reply: replyChunk?.[0] }[chunk];
    if (segment === undefined) throw new Error('the chunk was not offered');
    return segment;
  }

  function touch(kind: 'read' | 'write', to: Segment, offset: bigint, lengthBytes: number, mr: MR) {
    const done = new Promise<void>((resolve) => {
      raw.channel[kind]({ handle: to.handle, offset }, mr.sge(0, lengthBytes), resolve);
    });
    raw.channel.flush();
    return done;
  }

  it.each(cases)(
    'that accesses a %s %s chunk %s loses its connection [RPCR-3.4-12, RPCR-11-03]',
    async (memory, chunk, _where, reach) => {
      const mr = await ownMemory();
      const failing = codeOf(callWith(chunk, memory));
      const segment = offeredOf(await raw.next(), chunk);
      const [kind, offset, lengthBytes] = reach(segment);
      const way = chunk === 'read' || kind === 'read' ? kind : 'write';
      void touch(way, segment, offset, lengthBytes, mr);
      expect(await raw.end()).not.toBe('');
      await listener.close();
      expect(await failing).toBe('connectionLost');
    },
  );

  it.each([['registered'], ['windowed']] as const)(
    'that accesses a %s chunk after its reply loses its connection [RPCR-11-03, RPCR2-4.4.1-01]',
    async (memory) => {
      const mr = await ownMemory();
      const call = callWith('read', memory);
      const message = await raw.next();
      const segment = offeredOf(message, 'read');
      await touch('read', segment, segment.offset, segment.lengthBytes, mr);
      expect(Buffer.compare(mr.buffer.subarray(0, 8000), pattern(8000))).toBe(0);
      raw.send(Uint8Array.from([...shortReply(message.header.xid, 4), 0, 0, 0, 9]));
      expect(await call).toBe(9);
      void touch('read', segment, segment.offset, 1, mr);
      expect(await raw.end()).not.toBe('');
    },
  );

  it.each([['registered'], ['windowed']] as const)(
    'that uses a %s chunk of one connection on another loses that one [RPCR-11-04]',
    async (memory) => {
      const accepting = listener.accept();
      const second = await connectRpc(world.provider, { host: '127.0.0.1', port: listener.port });
      const other = await accepting;
      const mr = await other.channel.pd.allocMR(16_384, Access.localWrite);
      const call = callWith('read', memory);
      const message = await raw.next();
      const { handle, offset } = offeredOf(message, 'read');
      other.channel.read({ handle, offset }, mr.sge(0, 1), () => undefined);
      other.channel.flush();
      expect(await other.end()).not.toBe('');
      raw.send(Uint8Array.from([...shortReply(message.header.xid, 4), 0, 0, 0, 9]));
      expect(await call).toBe(9);
      await second.close();
      await other.close();
    },
  );

  it('that answers late finds the memory of an abandoned call closed [RPCR2-4.4.1-01, RPCR2-4.5.4-01]', async () => {
    const bytes = await memoryOf('windowed');
    const controller = new AbortController();
    const { signal } = controller;
    const call = codeOf(client.call(ECHO, 'FETCH', 8000, { bulkInto: [bytes], signal }));
    const segment = offeredOf(await raw.next(), 'write');
    controller.abort();
    expect(await call).toBe('aborted');
    const mr = await ownMemory();
    mr.buffer.fill(0xee);
    void touch('write', segment, segment.offset, 1, mr);
    expect(await raw.end()).not.toBe('');
    expect(bytes.every((byte) => byte === 0)).toBe(true);
  });

  it('that stops reading loses its connection when a call is abandoned [RPCR2-4.5.4-01]', async () => {
    const tcp = await RawListener.open();
    const connecting = connectRpc(world.provider, {
      host: '127.0.0.1',
      port: tcp.port,
      wire: { peerToPeer: false },
    });
    const peer = await tcp.peer();
    await peer.receive(32);
    const setUpBytes = peer.received.length;
    peer.say(mpaReply({ privateData: TERMS }));
    const stalled = await connecting;
    let receivedBytes = setUpBytes;
    const nextMessage = async (bytes: number) => {
      const fpdu = (await peer.receive(receivedBytes + bytes)).subarray(receivedBytes);
      receivedBytes = peer.received.length;
      const parsed = parseTransportHeader(fpdu.subarray(FPDU_SEND_HEADER_BYTES));
      if ('error' in parsed || parsed.header.type !== 'msg') throw new Error('no call');
      return parsed.header;
    };
    // With a credit left, cancelling a call does not end the connection.
    const first = stalled.call(ECHO, 'NULL', undefined);
    peer.sayFpdu(sendUlpdu(1, shortReply((await nextMessage(80)).xid, 8)));
    await first;
    const bytes = await stalled.allocate(16 << 20);
    const controller = new AbortController();
    const { signal } = controller;
    const call = codeOf(stalled.call(ECHO, 'STORE', { name: '', bytes, mode: 0 }, { signal }));
    const { readList } = await nextMessage(100);
    const [chunk] = readList;
    if (chunk === undefined) throw new Error('no chunk to read');
    peer.stopReading();
    // More than the sockets between us hold, so an invalidation is queued behind the Responses.
    for (let msn = 1; msn <= 6; msn++) {
      const { handle, offset, lengthBytes } = chunk;
      peer.sayFpdu(readRequestUlpdu(msn, handle, offset, lengthBytes));
    }
    await quiet(300);
    controller.abort();
    expect(await call).toBe('aborted');
    peer.resumeReading();
    await peer.overs();
    // The client has noticed, and makes another connection for the next call.
    const next = codeOf(stalled.call(ECHO, 'NULL', undefined));
    await tcp.peer();
    await stalled.close();
    expect(await next).toBe('closed');
    tcp.close();
  });

  it('that answers inline beside a write chunk fails only that call [RPCR2-6.1-02]', async () => {
    const call = codeOf(client.call(ECHO, 'FETCH', 8000));
    const message = await raw.next();
    const { xid, writeList } = messageHeader(message);
    const returned = writeList.map((chunk) => chunk.map((s) => ({ ...s, lengthBytes: 0 })));
    const inline = bytesOf(`${hexOf(shortReply(xid).subarray(28))} 00000001 00000004 61626364`);
    const payload = { stream: inline, items: [], lengthBytes: inline.length };
    const header = { type: 'msg', xid, credits: 4, ...NO_LISTS, writeList: returned } as const;
    raw.send(messageBytes(header, payload));
    expect(await call).toBe('badReply');
    const next = client.call(ECHO, 'NULL', undefined);
    raw.send(shortReply((await raw.next()).header.xid));
    await next;
  });

  it('that sends anything else gets no answer, and its calls continue [RPCR2-4.5-02, RPCR2-4.5-04]', async () => {
    const call = client.call(ECHO, 'NULL', undefined);
    const { header } = await raw.next();
    const { xid } = header;
    const bad = (xid >>> 0).toString(16).padStart(8, '0');
    const good = shortReply(xid);
    const garbage = [
      ...Array.from({ length: 28 }, (_, length) => good.subarray(0, length)),
      bytesOf(`${bad} 00000001 00000004 00000000 00000002 00*8 00*4`),
      bytesOf(`${bad} 00000001 00000004 00000009 00*12`),
      bytesOf(`${bad} 00000005 00000004 00000000 00*12`),
      bytesOf(`${bad} 00000001 00000004 00000004 00000077`),
      shortReply((xid + 1) >>> 0),
      shortCall(xid),
    ];
    for (const bytes of garbage) raw.send(bytes);
    raw.send(good);
    await call;
    expect(client.counters).toMatchObject({ discarded: garbage.length, connections: 1, sent: 1 });
  });

  it('that grants unlimited credits gets no more calls than requested, and all its replies are accepted', async () => {
    const first = client.call(ECHO, 'NULL', undefined);
    raw.send(shortReply((await raw.next()).header.xid, 0xffff_ffff));
    await first;
    const calls = Array.from({ length: 80 }, () => client.call(ECHO, 'NULL', undefined));
    const xids: number[] = [];
    for (let i = 0; i < 48; i++) xids.push((await raw.next()).header.xid);
    for (const xid of xids) raw.send(shortReply(xid, 0xffff_ffff));
    for (let i = 48; i < 80; i++) raw.send(shortReply((await raw.next()).header.xid));
    await Promise.all(calls);
    expect(client.counters.connections).toBe(1);
  });

  it('that sends RDMA_ERROR fails only that call', async () => {
    const call = codeOf(client.call(ECHO, 'NULL', undefined));
    const { xid } = (await raw.next()).header;
    const error = { code: 'chunk' } as const;
    raw.send(messageBytes({ type: 'error', xid, credits: 1, version: 1, error }));
    expect(await call).toBe('ERR_CHUNK');
  });
});

it('a client that takes no replies keeps as many as there are buffers, and is disconnected', async () => {
  const address = '127.0.72.38';
  const device = { name: 'roce0', transport: 'roce', addresses: [address] } as const;
  await using provider = await createEmbedded({ devices: [device] });
  const responder = { stallTimeoutMs: 300, credits: 8 };
  const { service } = echoService();
  const server = await listenRpc(provider, service, { host: address, port: 0, responder });
  const id = await provider.createId();
  await id.resolveAddr({ address, port: server.address.port });
  await id.resolveRoute();
  const context = await provider.open('roce0');
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: 1024 });
  const calls = 500;
  const depths = { maxSendWr: calls, maxRecvWr: 1 };
  const qp = await id.createQP(pd, { sendCQ: cq, recvCQ: cq, ...depths });
  const message = shortCall(1);
  const memory = await pd.allocMR(message.length, Access.localWrite);
  memory.buffer.set(message);
  await id.connect({ privateData: TERMS });
  const wr = { opcode: WROpcode.send, flags: SendFlag.signaled, sgList: [memory.sge()] };
  qp.postSend(Array.from({ length: calls }, () => wr));
  let taken = 0;
  let failed = false;
  while (!failed) {
    for (const { status } of await cq.wait()) {
      failed ||= status !== WCStatus.success;
      if (!failed) taken += 1;
    }
  }
  // Buffers of replies, those of receives, and receives whose calls were answered.
  expect(taken).toBeGreaterThan(96);
  expect(taken).toBeLessThanOrEqual(96 + 3 * responder.credits);
  await id.close();
  await server.close();
});
