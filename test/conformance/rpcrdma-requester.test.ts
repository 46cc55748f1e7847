/** A real client of RPC over RDMA (RFC 5666, 8166, 8167) against a server of literal bytes. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Access } from '#contract/verbs/enums';
import type { MR } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { defineProgram } from '#verbs-api/rpcrdma/core/program';
import { connectRpc } from '#verbs-api/rpcrdma/rpc-client';
import type { RpcClient, RpcClientOptions } from '#verbs-api/rpcrdma/rpc-client-types';
import { hex32, hex64 } from '../support/consumer.ts';
import { ECHO, sumOf } from '../support/echo-program.ts';
import { bytesOf, compactHex, hexOf } from '../support/hex.ts';
import { patience, quiet } from '../support/patience.ts';
import { pattern } from '../support/pattern.ts';
import { codeOf, type RawPeer, RawServer, WORLDS, type World } from '../support/rpc-world.ts';

/** Version 1, no remote invalidation, 4096 bytes each way. */
const TERMS = bytesOf('f6ab0e18 01 00 03 03');
const HEADER_BYTES = 28;
const CALL_BYTES = 40;

let world: World;
const opened: { close(): Promise<void> }[] = [];

beforeEach(async () => {
  world = await WORLDS.embedded();
});

afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
  await world.close();
});

/** A client connected to a raw server. */
async function facing(
  options: { readonly privateData?: Uint8Array; readonly client?: Partial<RpcClientOptions> } = {},
): Promise<{ client: RpcClient; raw: RawPeer }> {
  const listener = await RawServer.listen(world.provider, options.privateData ?? TERMS);
  const accepting = listener.accept();
  const client = await connectRpc(world.provider, {
    host: '127.0.0.1',
    port: listener.port,
    timeoutMs: patience(3000),
    requester: { connectsMax: 1 },
    ...options.client,
  });
  const raw = await accepting;
  opened.push(raw, client, listener);
  return { client, raw };
}

interface Segment {
  readonly handle: number;
  readonly length: number;
  readonly offset: bigint;
}

/** A call as encoded in its Send, parsed by hand. */
async function nextCall(raw: RawPeer) {
  const bytes = Buffer.from(await raw.nextBytes());
  let at = 0;
  const word = (): number => {
    at += 4;
    return bytes.readUInt32BE(at - 4);
  };
  const segment = (): Segment => {
    const [handle, length] = [word(), word()];
    at += 8;
    return { handle, length, offset: bytes.readBigUInt64BE(at - 8) };
  };
  const [xid, version, credits, type] = [word(), word(), word(), word()];
  expect(version).toBe(1);
  const reads = [];
  while (word() === 1) reads.push({ position: word(), ...segment() });
  const writes = [];
  while (word() === 1) writes.push(Array.from({ length: word() }, segment));
  const reply = word() === 1 ? Array.from({ length: word() }, segment) : undefined;
  return {
    xid,
    credits,
    type,
    reads,
    writes,
    reply,
    body: bytes.subarray(at),
    bytes: bytes.length,
  };
}

/** A short, successful reply that grants `credits`, with `result` in hexadecimal. */
function reply(
  xid: number,
  credits = 8,
  result = '',
  lists = '00000000 00000000 00000000',
): Uint8Array {
  return bytesOf(
    `${hex32(xid)} 00000001 ${hex32(credits)} 00000000 ${lists} ` +
      `${hex32(xid)} 00000001 00000000 00000000 00000000 00000000 ${result}`,
  );
}

/** The bytes of segments of the client, read over RDMA. */
async function pull(raw: RawPeer, segments: readonly Segment[]): Promise<Buffer> {
  const total = segments.reduce((sum, { length }) => sum + length, 0);
  const mr = await raw.channel.pd.allocMR(Math.max(total, 1), Access.localWrite);
  let at = 0;
  for (const { handle, length, offset } of segments) {
    const start = at;
    await new Promise<void>((resolve) => {
      raw.channel.read({ handle, offset }, mr.sge(start, length), resolve);
      raw.channel.flush();
    });
    at += length;
  }
  return Buffer.from(mr.buffer.subarray(0, total));
}

async function push(raw: RawPeer, { handle, offset }: Segment, bytes: Uint8Array): Promise<void> {
  const mr: MR = await raw.channel.pd.allocMR(bytes.length, Access.localWrite);
  mr.buffer.set(bytes);
  await new Promise<void>((resolve) => {
    raw.channel.write({ handle, offset }, mr.sge(0, bytes.length), resolve);
    raw.channel.flush();
  });
}

/** True when the client sends something within a short time. */
async function says(raw: RawPeer): Promise<boolean> {
  const silent = Symbol('silent');
  const first = await Promise.race([
    raw.nextBytes(),
    new Promise((resolve) => setTimeout(() => resolve(silent), 100)),
  ]);
  return first !== silent;
}

/** XDR of a counted opaque. */
function opaque(bytes: Uint8Array): string {
  return `${hex32(bytes.length)} ${hexOf(bytes)} ${'00'.repeat((4 - (bytes.length % 4)) % 4)}`;
}

describe('credits', () => {
  it('are one before the first reply, and then as many as it grants [RPCR-6.1-02, RPCR-6.1-03, RPCR-3.3-05]', async () => {
    const { client, raw } = await facing({ client: { requester: { credits: 8, connectsMax: 1 } } });
    const calls = Promise.all(
      Array.from({ length: 6 }, () => client.call(ECHO, 'NULL', undefined)),
    );
    const first = await nextCall(raw);
    expect(first.credits).toBe(8);
    await quiet(100);
    expect(client.counters.sent).toBe(1);
    raw.send(reply(first.xid, 3));
    const three = [await nextCall(raw), await nextCall(raw), await nextCall(raw)];
    await quiet(100);
    expect(client.counters.sent).toBe(4);
    for (const { xid } of three) raw.send(reply(xid, 3));
    for (let i = 0; i < 2; i++) raw.send(reply((await nextCall(raw)).xid, 3));
    await calls;
  });

  it('in a message that may not be a reply are ignored [RPCB-4.1-02]', async () => {
    const { client, raw } = await facing({ client: { requester: { credits: 8, connectsMax: 1 } } });
    const calls = Promise.all(
      Array.from({ length: 6 }, () => client.call(ECHO, 'NULL', undefined)),
    );
    const first = await nextCall(raw);
    raw.send(reply(first.xid, 2));
    const two = [await nextCall(raw), await nextCall(raw)];
    // A long message whose payload has not been seen; a call; a reply to nothing.
    const nomsg = `00000900 00000001 00000008 00000001 00000001 00000000 00000001 00000028 ${hex64(0)} 00000000 00000000 00000000`;
    const reverse = `00000901 00000001 00000008 00000000 00000000 00000000 00000000 00000901 00000000 00000002 20000001 00000001 00000000 00*16`;
    raw.send(bytesOf(nomsg));
    raw.send(bytesOf(reverse));
    raw.send(reply(0x902, 8));
    await quiet(100);
    expect(client.counters.sent).toBe(3);
    for (const { xid } of two) raw.send(reply(xid, 2));
    for (let i = 0; i < 3; i++) raw.send(reply((await nextCall(raw)).xid, 2));
    await calls;
    expect(client.counters.discarded).toBe(3);
  });
});

describe('a call', () => {
  it('goes inline up to the threshold of the server, and as a long message beyond [RPCR-6.2-05, RPCR2-3.3.3-01, CMPD-5.1-01]', async () => {
    for (const [privateData, threshold] of [
      [new Uint8Array(0), 1024],
      [bytesOf('00*8'), 1024],
      [TERMS, 4096],
    ] as const) {
      const { client, raw } = await facing({ privateData });
      const fits = threshold - HEADER_BYTES - CALL_BYTES - 4;
      for (const [bytes, type, sent] of [
        [fits, 0, threshold],
        // Only the header, with one read segment.
        [fits + 1, 1, HEADER_BYTES + 24],
      ] as const) {
        const mirrored = codeOf(client.call(ECHO, 'MIRROR', pattern(bytes)));
        const call = await nextCall(raw);
        expect([call.type, call.bytes, call.reply]).toEqual([type, sent, undefined]);
        raw.send(bytesOf(`${hex32(call.xid)} 00000001 00000008 00000004 00000002`));
        expect(await mirrored).toBe('ERR_CHUNK');
      }
      // STORE's reply is small, so its call has no reply chunk.
      const args = { name: '', bytes: pattern(fits - 4 - 4), mode: 0 };
      const stored = client.call(ECHO, 'STORE', args);
      const call = await nextCall(raw);
      expect([call.type, call.reply, call.reads]).toEqual([0, undefined, []]);
      expect(call.bytes).toBeLessThanOrEqual(threshold);
      raw.send(reply(call.xid, 8, hex32(7)));
      expect(await stored).toBe(7);
    }
  });

  it('that is long has all of its stream at position zero [RPCR2-3.5.3-02, RPCR2-3.5.3-04, RPCR2-4.2.4-01]', async () => {
    const { client, raw } = await facing({
      client: { requester: { segmentBytesMax: 2000, connectsMax: 1 } },
    });
    for (const count of [5000, 5001]) {
      const bytes = pattern(count);
      const mirrored = client.call(ECHO, 'MIRROR', bytes);
      const call = await nextCall(raw);
      expect([call.type, call.body.length]).toEqual([1, 0]);
      expect(call.reads.length).toBeGreaterThan(1);
      expect(call.reads.every(({ position }) => position === 0)).toBe(true);
      const stream = await pull(raw, call.reads);
      expect(stream.readUInt32BE(0)).toBe(call.xid);
      expect(hexOf(stream.subarray(CALL_BYTES))).toBe(compactHex(opaque(bytes)));
      raw.send(bytesOf(`${hex32(call.xid)} 00000001 00000008 00000004 00000002`));
      expect(await codeOf(mirrored)).toBe('ERR_CHUNK');
    }
  });

  it('moves only eligible items, without their roundup, and leaves counts and the rest inline [RPCR2-3.4.2-01, RPCR2-3.4.4.1-01, RPCR2-3.4.4.4-01, RPCR2-3.4.5-01, RPCR-2-01]', async () => {
    const { client, raw } = await facing();
    for (const [name, count] of [
      ['abcde', 5001],
      ['abcd', 6000],
    ] as const) {
      const bytes = pattern(count);
      const stored = client.call(ECHO, 'STORE', { name, bytes, mode: 0x1a4 });
      const { xid, type, reads, body } = await nextCall(raw);
      const encodedName = opaque(Buffer.from(name));
      expect(type).toBe(0);
      expect(hexOf(body.subarray(CALL_BYTES))).toBe(
        compactHex(`${encodedName} ${hex32(count)} 000001a4`),
      );
      // Where the item would begin in the unreduced stream.
      const position = CALL_BYTES + compactHex(encodedName).length / 2 + 4;
      expect(position % 4).toBe(0);
      expect(reads.every((segment) => segment.position === position)).toBe(true);
      expect(hexOf(await pull(raw, reads))).toBe(hexOf(bytes));
      raw.send(reply(xid, 8, hex32(sumOf(bytes))));
      expect(await stored).toBe(sumOf(bytes));
    }
  });

  it('never moves part of the RPC header into a chunk, whatever its credential [RPCR2-8.2.2-01]', async () => {
    const { client, raw } = await facing();
    const credential = {
      flavor: 'sys',
      stamp: 1,
      machineName: 'h'.repeat(255),
      uid: 7,
      gid: 8,
      gids: Array.from({ length: 16 }, (_, i) => i),
    } as const;
    const bytes = pattern(9000);
    const stored = client.call(ECHO, 'STORE', { name: 'x', bytes, mode: 0 }, { credential });
    const { xid, type, reads, body } = await nextCall(raw);
    const credentialBytes = body.readUInt32BE(28);
    const headerBytes = 24 + 8 + credentialBytes + 8;
    expect(credentialBytes).toBeGreaterThan(255 + 16 * 4);
    // The whole header is inline; the first chunk follows it.
    expect([type, body.subarray(32).includes('h'.repeat(255))]).toEqual([0, true]);
    expect(Math.min(...reads.map(({ position }) => position))).toBeGreaterThan(headerBytes);
    raw.send(reply(xid, 8, hex32(1)));
    expect(await stored).toBe(1);
  });

  it('offers a reply chunk if, and only if, the largest reply does not fit inline [RPCR2-4.3.3-01]', async () => {
    const { client, raw } = await facing();
    const sized = (bytes: number): typeof ECHO =>
      defineProgram({
        ...ECHO,
        procedures: {
          ...ECHO.procedures,
          NULL: { ...ECHO.procedures.NULL, resultMaxBytes: () => bytes },
        },
      });
    // 28 of transport header and 24 of reply header go before the result.
    const fits = 4096 - 28 - 24;
    for (const [bytes, offered] of [
      [0, undefined],
      [fits, undefined],
      [fits + 1, fits + 25],
      [20_000, 20_024],
    ] as const) {
      const called = client.call(sized(bytes), 'NULL', undefined);
      const call = await nextCall(raw);
      const length = call.reply?.reduce((sum, segment) => sum + segment.length, 0);
      if (offered === undefined) expect(length).toBeUndefined();
      else expect(length).toBeGreaterThanOrEqual(offered);
      const lists =
        call.reply === undefined
          ? undefined
          : `00000000 00000000 00000001 ${hex32(call.reply.length)} ${call.reply
              .map(({ handle, offset }) => `${hex32(handle)} 00000000 ${hex64(offset)}`)
              .join(' ')}`;
      raw.send(reply(call.xid, 8, '', lists));
      await called;
    }
  });

  it('that needs a Read is not sent to a server that cannot Read [RPCR-6.2-08]', async () => {
    await world.close();
    // A device that serves no Reads: the peers learn that from MPA's depths.
    const profile = { irdMax: 0 };
    const provider = await createEmbedded({ devices: [{ name: 'a', addresses: [], profile }] });
    world = { provider, close: () => provider.close() };
    const { client, raw } = await facing();
    const bytes = pattern(20_000);
    expect(await codeOf(client.call(ECHO, 'STORE', { name: '', bytes, mode: 0 }))).toBe('unfit');
    expect(await codeOf(client.call(ECHO, 'MIRROR', bytes))).toBe('unfit');
    expect(client.counters.sent).toBe(0);
    const small = client.call(ECHO, 'NULL', undefined);
    raw.send(reply((await nextCall(raw)).xid));
    await small;
  });

  it('is RDMA_MSG or RDMA_NOMSG, never RDMA_MSGP, RDMA_DONE or RDMA_ERROR [RPCR2-4.2.4-02, RPCR2-4.6.1-01, RPCR2-4.6.2-01]', async () => {
    const { client, raw } = await facing();
    const types: number[] = [];
    const answer = async (): Promise<void> => {
      const { xid, type } = await nextCall(raw);
      types.push(type);
      raw.send(bytesOf(`${hex32(xid)} 00000001 00000008 00000004 00000002`));
    };
    for (const count of [4, 500, 5000, 50_000]) {
      const bytes = pattern(count);
      const calls = [
        codeOf(client.call(ECHO, 'MIRROR', bytes)),
        codeOf(client.call(ECHO, 'STORE', { name: '', bytes, mode: 0 })),
      ];
      await answer();
      await answer();
      expect(await Promise.all(calls)).toEqual(['ERR_CHUNK', 'ERR_CHUNK']);
    }
    expect([...new Set(types)].sort()).toEqual([0, 1]);
    // A responder answers these messages with RDMA_ERROR, a requester not at all.
    for (const bad of [
      '00000001 00000002 00000001 00000000 00*12',
      '00000001 00000001 00000001 00000009 00*12',
    ]) {
      raw.send(bytesOf(bad));
    }
    expect(await says(raw)).toBe(false);
  });
});

describe('a result in a write chunk', () => {
  it('is as long as the server wrote; bytes after it are not part of it [RPCR-3.4-11, RPCR-3.4-10]', async () => {
    const { client, raw } = await facing();
    const into = new Uint8Array(8000).fill(0xee);
    const fetched = client.call(ECHO, 'FETCH', 8000, { bulkInto: [into] });
    const { xid, writes } = await nextCall(raw);
    const [segment] = writes[0] ?? [];
    if (segment === undefined) throw new Error('no write chunk was offered');
    // Writes past the length that it then reports, which is allowed.
    await push(
      raw,
      segment,
      Uint8Array.from({ length: 16 }, (_, i) => i + 1),
    );
    const lists = `00000000 00000001 00000001 ${hex32(segment.handle)} 0000000a ${hex64(segment.offset)} 00000000 00000000`;
    raw.send(reply(xid, 8, '00000001 0000000a', lists));
    expect([...(await fetched)]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });
});

describe('requested features of RFC 5666 that RFC 8166 dropped', () => {
  it('RDMA_DONE counts as in flight and uses no credit that a call needs [RPCR-3.8-06, RPCR-3.8-07]', async () => {
    const { client, raw } = await facing({
      client: { requester: { readListReplies: true, connectsMax: 1 } },
    });
    const calls = Promise.all([1, 2, 3].map(() => codeOf(client.call(ECHO, 'NULL', undefined))));
    const first = await nextCall(raw);
    // The reply, in the server's memory, for the client to read.
    const whole = reply(first.xid).subarray(HEADER_BYTES);
    const mr = await raw.channel.pd.allocMR(whole.length, Access.localWrite | Access.remoteRead);
    mr.buffer.set(whole);
    raw.send(
      bytesOf(
        `${hex32(first.xid)} 00000001 00000002 00000001 00000001 00000000 ` +
          `${hex32(mr.rkey)} ${hex32(whole.length)} ${hex64(mr.address)} 00000000 00000000 00000000`,
      ),
    );
    // Of two credits one is a call's, and one the RDMA_DONE's.
    const received = [hexOf(await raw.nextBytes()), hexOf(await raw.nextBytes())];
    const done = `${hex32(first.xid)}00000001`;
    expect(received.filter((bytes) => bytes.startsWith(done) && bytes.length === 32)).toHaveLength(
      1,
    );
    const second = received.find((bytes) => bytes.length > 32) ?? '';
    expect(await says(raw)).toBe(false);
    raw.send(reply(Number.parseInt(second.slice(0, 8), 16), 2));
    raw.send(reply((await nextCall(raw)).xid, 2));
    expect(await calls).toEqual(['none', 'none', 'none']);
  });
});
