/** A real server of RPC over RDMA (RFC 5666, 8166, 8797) against a client of literal bytes. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import type { MR } from '#contract/verbs/provider';
import { connect } from '#verbs-api/connect';
import { defineProcedure, defineProgram } from '#verbs-api/rpcrdma/core/program';
import type { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import type { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';
import { listenRpc, type RpcServer, type RpcServerOptions } from '#verbs-api/rpcrdma/rpc-server';
import { RpcService } from '#verbs-api/rpcrdma/rpc-service';
import { hex32, hex64 } from '../support/consumer.ts';
import { ECHO } from '../support/echo-program.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { patience, quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { type EchoLog, echoService, RawPeer, WORLDS, type World } from '../support/rpc-world.ts';
import { callPayload } from '../support/rpcrdma-rig.ts';

let world: World;
let server: RpcServer;
let log: EchoLog;
let raw: RawPeer;
const opened: { close(): Promise<void> }[] = [];

beforeEach(async () => {
  world = await WORLDS.embedded();
  const echo = echoService();
  log = echo.log;
  server = await listenRpc(world.provider, echo.service, { host: '127.0.0.1', port: 0 });
  raw = await RawPeer.connect(world.provider, server.address.port);
});

afterEach(async () => {
  await raw.close();
  for (const each of opened.splice(0).reverse()) await each.close();
  await server.close();
  await world.close();
});

/** Another server of the echo program, and a raw client of it. */
async function another(options: RpcServerOptions, privateData?: Uint8Array): Promise<RawPeer> {
  const { service } = echoService();
  const made = await listenRpc(world.provider, service, { host: '127.0.0.1', port: 0, ...options });
  const parameters = privateData === undefined ? {} : { privateData };
  const peer = await RawPeer.connect(world.provider, made.address.port, parameters);
  opened.push(made, peer);
  return peer;
}

/** A call's transport header of type RDMA_MSG or RDMA_NOMSG with these lists, in hexadecimal. */
function head(xid: number, lists: string, type = 0): string {
  return `${hex32(xid)} 00000001 00000020 ${hex32(type)} ${lists}`;
}

const NO_LISTS = '00000000 00000000 00000000';
const { FETCH, STORE, MIRROR, SPLIT } = { FETCH: 1, STORE: 2, MIRROR: 3, SPLIT: 4 };

/** An RPC call of the echo program, whole, in hexadecimal. */
function rpc(xid: number, procedure: number, args = ''): string {
  return `${hexOf(callPayload(xid, () => undefined, procedure).stream)} ${args}`;
}

/** XDR of a counted opaque. */
function opaque(bytes: Uint8Array): string {
  const pad = '00'.repeat((4 - (bytes.length % 4)) % 4);
  return `${hex32(bytes.length)} ${hexOf(bytes)} ${pad}`;
}

/** A successful reply's RPC header. */
function accepted(xid: number): string {
  return `${hex32(xid)} 00000001 00000000 00000000 00000000 00000000`;
}

/** A segment of registered memory. */
function segment(mr: MR, at: number, length: number): string {
  return `${hex32(mr.rkey)} ${hex32(length)} ${hex64(mr.address + BigInt(at))}`;
}

/** Sends a message and returns the next one received, in hexadecimal. */
async function ask(message: string, peer = raw): Promise<string> {
  peer.send(bytesOf(message));
  return hexOf(await peer.nextBytes());
}

/** Splits an answer into the four words, and the rest. */
function words(answer: string): {
  xid: string;
  version: string;
  credits: number;
  type: string;
  rest: string;
} {
  return {
    xid: answer.slice(0, 8),
    version: answer.slice(8, 16),
    credits: Number.parseInt(answer.slice(16, 24), 16),
    type: answer.slice(24, 32),
    rest: answer.slice(32),
  };
}

async function memory(length: number): Promise<MR> {
  return await raw.channel.pd.allocMR(
    length,
    Access.localWrite | Access.remoteWrite | Access.remoteRead,
  );
}

describe('errors', () => {
  it('of a version name both bounds, with the call’s XID and version [RPCR-4.1-07, RPCR-4.2-04, RPCR2-4.5-03]', async () => {
    for (const version of ['00000000', '00000002', 'ffffffff']) {
      const call = `0000002a ${version} 00000001 00000000 ${NO_LISTS} ${rpc(0x2a, 0)}`;
      const { xid, version: copied, type, rest } = words(await ask(call));
      expect([xid, copied, type]).toEqual(['0000002a', version, '00000004']);
      expect(rest).toBe(compactHex('00000001 00000001 00000001'));
    }
  });

  it('in a header copy XID and version and report ERR_CHUNK [RPCR2-4.5-03, RPCR2-4.5.2-01]', async () => {
    for (const call of [
      head(7, NO_LISTS, 9),
      head(7, NO_LISTS, 1),
      `${head(7, NO_LISTS)} ${rpc(8, 0)}`,
    ]) {
      const { xid, version, type, rest } = words(await ask(call));
      expect([xid, version, type, rest]).toEqual(['00000007', '00000001', '00000004', '00000002']);
    }
  });

  it('for an RDMA_MSGP that was not negotiated are ERR_CHUNK [RPCR2-4.6.1-01]', async () => {
    const msgp = `0000000b 00000001 00000001 00000002 00000040 00000010 ${NO_LISTS} ${rpc(11, 0)}`;
    expect(words(await ask(msgp))).toMatchObject({ type: '00000004', rest: '00000002' });
  });

  it('are not sent for RDMA_DONE and RDMA_ERROR, whose receives are reposted [RPCR2-4.6.2-01, RPCR2-4.2.4-02]', async () => {
    for (let round = 0; round < 200; round++) {
      raw.send(
        bytesOf(`0000000c 00000001 00000001 ${round % 2 === 0 ? '00000003' : '00000004 00000002'}`),
      );
      // Waits for the server now and then: it has as many receives as credits.
      if (round % 8 === 7) {
        expect(words(await ask(`${head(round, NO_LISTS)} ${rpc(round, 0)}`))).toMatchObject({
          xid: hex32(round),
          type: '00000000',
        });
      }
    }
  });
});

describe('credits', () => {
  it('are granted in every reply, are never zero, and are backed by receives [RPCR-3.3-03, RPCR-3.3-07, RPCR2-3.3.1-01, RPCR2-3.3.1-03]', async () => {
    for (const credits of [1, 2, 16]) {
      const peer = await another({ responder: { credits } });
      for (let round = 0; round < 5; round++) {
        for (let i = 0; i < credits; i++) {
          const xid = round * credits + i;
          peer.send(bytesOf(`${head(xid, NO_LISTS)} ${rpc(xid, 0)}`));
        }
        for (let i = 0; i < credits; i++) {
          expect(words(hexOf(await peer.nextBytes())).credits).toBe(credits);
        }
      }
      // Errors grant too.
      expect(words(await ask(head(99, NO_LISTS, 9), peer)).credits).toBe(credits);
      expect(peer.ended).toBeUndefined();
    }
  });
});

describe('thresholds', () => {
  /** The type of the answer to a MIRROR of `length` bytes without any chunk. */
  async function mirrored(peer: RawPeer, length: number): Promise<string> {
    const call = `${head(1, NO_LISTS)} ${rpc(1, MIRROR, opaque(pattern(length)))}`;
    return words(await ask(call, peer)).type;
  }

  it('are 1024 bytes each way without private data that conforms [RPCR2-3.3.3-01, CMPD-5.1-01, CMPD-5.2-02]', async () => {
    for (const privateData of ['', '00*8', 'f6ab0e18 02 01 03 03', 'f6ab0e18 01 01 03']) {
      const peer = await another({}, bytesOf(privateData));
      // A call of 1024 bytes: 28 of header, 40 of RPC, 4 of count. Its reply is 16 bytes shorter.
      expect(await mirrored(peer, 1024 - 72)).toBe('00000000');
      expect(peer.ended).toBeUndefined();
      // A reply of exactly 1024 bytes, and one of 4 more, which has no chunk to go to.
      const fetch = `${head(2, NO_LISTS)} ${rpc(2, FETCH, hex32(1024 - 60))}`;
      expect(words(await ask(fetch, peer)).type).toBe('00000000');
      const longer = `${head(3, NO_LISTS)} ${rpc(3, FETCH, hex32(1024 - 56))}`;
      expect(words(await ask(longer, peer))).toMatchObject({ type: '00000004', rest: '00000002' });
    }
  });

  it('are those of private data, in which only R of the flags counts [CMPD-4-02]', async () => {
    const peer = await another({}, bytesOf('f6ab0e18 01 fe 03 03'));
    expect(await mirrored(peer, 4096 - 72)).toBe('00000000');
    const { port } = server.address;
    const established = await connect(world.provider, { host: '127.0.0.1', port });
    opened.push(established);
    expect(hexOf(established.established.privateData).slice(0, 12)).toMatch(/^f6ab0e18010[01]$/);
  });
});

describe('results in write chunks', () => {
  it('fill one segment after the other and are exact, with everything else inline [RPCR-2-01, RPCR2-3.4.4.1-01, RPCR2-3.4.4.2-01, RPCR2-3.4.4.3-01, RPCR2-3.4.4.4-01, RPCR2-3.4.6-02, RPCR2-3.4.6.2-01, RPCR2-4.3.1-01, RPCR2-4.3.2-01, NFSR-5667.3-03, NFSR-5667.3-04]', async () => {
    const mr = await memory(4096);
    const length = 161;
    const offered = [100, 50, 1000, 200];
    const at = (i: number): number => i * 1024;
    const list = (lengths: readonly number[]): string =>
      `00000001 00000004 ${lengths.map((bytes, i) => segment(mr, at(i), bytes)).join(' ')} 00000000`;
    mr.buffer.fill(0xee);
    const call = `${head(5, `00000000 ${list(offered)} 00000000`)} ${rpc(5, FETCH, hex32(length))}`;
    const { credits, rest } = words(await ask(call));
    expect(credits).toBeGreaterThan(0);
    // No read list; the chunk with its length used; no reply chunk; then "present" and the count.
    const returned = list([100, 50, 11, 0]);
    expect(rest).toBe(
      compactHex(`00000000 ${returned} 00000000 ${accepted(5)} 00000001 ${hex32(length)}`),
    );
    const expected = pattern(length);
    expect(mr.buffer.subarray(0, 100)).toEqual(expected.subarray(0, 100));
    expect(mr.buffer.subarray(1024, 1074)).toEqual(expected.subarray(100, 150));
    expect(mr.buffer.subarray(2048, 2059)).toEqual(expected.subarray(150));
    // Not a byte more, of roundup or otherwise.
    const untouched = [
      ...mr.buffer.subarray(100, 1024),
      ...mr.buffer.subarray(1074, 2048),
      ...mr.buffer.subarray(2059),
    ];
    expect(untouched.every((byte) => byte === 0xee)).toBe(true);
  });

  it('that no result uses come back with the same segments, all of length 0 [RPCR2-4.3.2.2-01, NFSR-5667.4-02]', async () => {
    const mr = await memory(64);
    const chunk = (a: number, b: number): string =>
      `00000001 00000002 ${segment(mr, 0, a)} ${segment(mr, 32, b)} 00000000`;
    const { rest } = words(
      await ask(`${head(6, `00000000 ${chunk(32, 32)} 00000000`)} ${rpc(6, 0)}`),
    );
    expect(rest).toBe(compactHex(`00000000 ${chunk(0, 0)} 00000000 ${accepted(6)}`));
  });

  it('hold one result each; a chunk without segments requests its result inline [RPCR2-4.3.2-01, RPCR2-4.3.2.3-01]', async () => {
    const mr = await memory(64);
    const bytes = pattern(30);
    const list = (length: number): string =>
      `00000001 00000000 00000001 00000001 ${segment(mr, 0, length)} 00000000`;
    const call = `${head(7, `00000000 ${list(64)} 00000000`)} ${rpc(7, SPLIT, `${opaque(bytes)} ${hex32(10)}`)}`;
    const { rest } = words(await ask(call));
    const inline = `${opaque(bytes.subarray(0, 10))} ${hex32(20)}`;
    expect(rest).toBe(compactHex(`00000000 ${list(20)} 00000000 ${accepted(7)} ${inline}`));
    expect(mr.buffer.subarray(0, 20)).toEqual(bytes.subarray(10));
  });

  it('that are too small get an error, and no byte is written beyond them [NFSR-5667.3-02]', async () => {
    const mr = await memory(256);
    mr.buffer.fill(0xee);
    const list = `00000001 00000001 ${segment(mr, 0, 100)} 00000000`;
    const call = `${head(8, `00000000 ${list} 00000000`)} ${rpc(8, FETCH, hex32(101))}`;
    expect(words(await ask(call)).type).toBe('00000004');
    expect(mr.buffer.subarray(100).every((byte) => byte === 0xee)).toBe(true);
  });
});

describe('long messages', () => {
  /** A call in a position-zero read chunk of two segments, with a reply chunk. */
  async function mirror(
    length: number,
    replyBytes: number,
  ): Promise<{ answer: ReturnType<typeof words>; reply: MR; lists: (used: number) => string }> {
    const xid = 0x77;
    const call = bytesOf(rpc(xid, MIRROR, opaque(pattern(length))));
    const source = await memory(call.length);
    source.buffer.set(call);
    const reply = await memory(replyBytes);
    reply.buffer.fill(0xee);
    const half = 100;
    const readList = [
      `00000001 00000000 ${segment(source, 0, half)}`,
      `00000001 00000000 ${segment(source, half, call.length - half)}`,
      '00000000',
    ].join(' ');
    const replyChunk = (used: number): string => `00000001 00000001 ${segment(reply, 0, used)}`;
    const header = head(xid, `${readList} 00000000 ${replyChunk(replyBytes)}`, 1);
    const answer = words(await ask(header));
    return { answer, reply, lists: (used) => `00000000 00000000 ${replyChunk(used)}` };
  }

  it('come back in the reply chunk when they do not fit inline, roundup included [RPCR2-3.5.3-03, RPCR2-3.5.3-04, RPCR2-4.2.4-01, RPCR2-4.3.3-02, RPCR2-4.3.1-01]', async () => {
    for (const length of [5000, 5001]) {
      const { answer, reply, lists } = await mirror(length, 8192);
      const whole = bytesOf(`${accepted(0x77)} ${opaque(pattern(length))}`);
      expect(answer.type).toBe('00000001');
      expect(answer.rest).toBe(compactHex(lists(whole.length)));
      expect(reply.buffer.subarray(0, whole.length)).toEqual(whole);
      expect(reply.buffer.subarray(whole.length).every((byte) => byte === 0xee)).toBe(true);
    }
  });

  it('whose replies fit come back inline, with an unused reply chunk [RPCR2-4.3.3-02]', async () => {
    const { answer, lists } = await mirror(200, 8192);
    expect(answer.type).toBe('00000000');
    expect(answer.rest).toBe(compactHex(`${lists(0)} ${accepted(0x77)} ${opaque(pattern(200))}`));
  });
});

describe('arguments in read chunks', () => {
  it('that are not eligible are not processed [RPCR-3.4-01, RPCR2-6.1-01]', async () => {
    const mr = await memory(64);
    const nameAt = 40 + 4;
    // The name's bytes are moved away, its count stays.
    const readList = `00000001 ${hex32(nameAt)} ${segment(mr, 0, 4)} 00000000`;
    const body = rpc(9, STORE, `00000004 ${opaque(pattern(4))} 00000003`);
    const { type, rest } = words(await ask(`${head(9, `${readList} 00000000 00000000`)} ${body}`));
    const garbageArgs = rest.slice(-8) === '00000004';
    expect(type === '00000004' || garbageArgs).toBe(true);
    expect(log.stored).toEqual([]);
  });

  it('of odd lengths have roundup that the next position shows [RPCR-3.7-02]', async () => {
    const codec = {
      encode: (writer: XdrWriter, [a, b]: readonly [Uint8Array, Uint8Array]) => {
        writer.bulk(a);
        writer.bulk(b);
      },
      decode: (reader: XdrReader) => [reader.bulk(64).slice(), reader.bulk(64).slice()] as const,
    };
    const seen: string[] = [];
    const TWO = defineProgram({
      name: 'two',
      number: ECHO.number,
      version: 1,
      procedures: {
        PUT: defineProcedure({
          number: 1,
          args: codec,
          result: { encode: () => undefined, decode: () => undefined },
          resultMaxBytes: () => 0,
          readChunksMax: 2,
        }),
      },
    });
    const service = new RpcService();
    service.register(TWO, { PUT: (items) => void seen.push(...items.map(hexOf)) });
    const made = await listenRpc(world.provider, service, { host: '127.0.0.1', port: 0 });
    const peer = await RawPeer.connect(world.provider, made.address.port);
    opened.push(made, peer);
    const mr = await peer.channel.pd.allocMR(64, Access.localWrite | Access.remoteRead);
    mr.buffer.set(bytesOf('414243 00 5152535455'));
    const first = 40 + 4;
    const second = first + 4 + 4;
    // Sent as 3 bytes, and as 4 with the roundup in the chunk.
    for (const bytes of [3, 4]) {
      const readList = [
        `00000001 ${hex32(first)} ${segment(mr, 0, bytes)}`,
        `00000001 ${hex32(second)} ${segment(mr, 4, 5)}`,
        '00000000',
      ].join(' ');
      const call = `${head(1, `${readList} 00000000 00000000`)} ${rpc(1, 1, '00000003 00000005')}`;
      expect(words(await ask(call, peer)).rest).toBe(compactHex(`${NO_LISTS} ${accepted(1)}`));
    }
    expect(seen).toEqual(['414243', '5152535455', '414243', '5152535455']);
  });
});

describe('the reverse direction', () => {
  it('is not used: a server sends only replies, of version 1 [RPCB-6-01]', async () => {
    for (let xid = 1; xid <= 50; xid++) {
      const {
        xid: copied,
        version,
        type,
        rest,
      } = words(await ask(`${head(xid, NO_LISTS)} ${rpc(xid, 0)}`));
      expect([copied, version, type]).toEqual([hex32(xid), '00000001', '00000000']);
      // RPC's msg_type after the lists and the XID: REPLY.
      expect(rest.slice(24 + 8, 24 + 16)).toBe('00000001');
    }
    await quiet(50);
    const more = raw.nextBytes();
    raw.send(bytesOf(`${head(99, NO_LISTS)} ${rpc(99, 0)}`));
    expect(hexOf(await more).slice(0, 8)).toBe(hex32(99));
  });
});

describe('requested features of RFC 5666 that RFC 8166 dropped', () => {
  /** Longer than all replies of a test take. */
  const doneTimeoutMs = patience(300);
  const OPTIONS = { readListReplies: true, doneTimeoutMs, undoneBytesMax: 20_000, credits: 2 };

  /** The type of the answer to a long MIRROR that has no reply chunk. */
  async function longReply(peer: RawPeer, xid: number): Promise<ReturnType<typeof words>> {
    const bytes = pattern(3900);
    return words(await ask(`${head(xid, NO_LISTS)} ${rpc(xid, MIRROR, opaque(bytes))}`, peer));
  }

  it('memory that no RDMA_DONE frees is bounded, is released in time, and uses no credit [RPCR-11-05, RPCR-11-06]', async () => {
    const peer = await another({ responder: OPTIONS }, bytesOf('f6ab0e18 01 00 03 00'));
    const types: string[] = [];
    for (let xid = 1; xid <= 8; xid++) {
      const { type, credits } = await longReply(peer, xid);
      types.push(type);
      expect(credits).toBe(2);
    }
    // RDMA_NOMSG while there is room for kept replies, then ERR_CHUNK.
    expect(types.indexOf('00000004')).toBeGreaterThan(0);
    expect(types.lastIndexOf('00000001')).toBeLessThan(types.indexOf('00000004'));
    await quiet(doneTimeoutMs + 200);
    expect((await longReply(peer, 20)).type).toBe('00000001');
  });

  it('RDMA_MSGP is decoded by its alignment and threshold [RPCR-3.9-03]', async () => {
    const peer = await another({ responder: OPTIONS });
    const bytes = pattern(100);
    // Counted from the RPC message on: 40 bytes of its header and 4 of count precede the item.
    for (const align of [64, 16]) {
      const pad = (align - (44 % align)) % align;
      const header = `0000000d 00000001 00000001 00000002 ${hex32(align)} 00000010 ${NO_LISTS}`;
      const body = `${rpc(13, MIRROR)} ${hex32(100)} ${'00'.repeat(pad)} ${hexOf(bytes)}`;
      const { rest } = words(await ask(`${header} ${body}`, peer));
      expect(rest).toBe(compactHex(`${NO_LISTS} ${accepted(13)} ${opaque(bytes)}`));
    }
  });
});
