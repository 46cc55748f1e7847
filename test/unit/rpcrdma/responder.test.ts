import { beforeEach, describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import {
  callPayload,
  FakeMemory,
  messageBytes,
  messageHeader,
  NOTHING,
  ResponderRig,
  replyPayload,
  type Sent,
  shortCall,
  shortReply,
  THRESHOLDS,
  wholeOf,
} from '#test/support/rpcrdma-rig';
import type { ChunkLists } from '#verbs-api/rpcrdma/core/transport-header';
import { XdrError } from '#verbs-api/rpcrdma/core/xdr-reader';
import type { Payload, XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

const NO_LISTS: ChunkLists = { readList: [], writeList: [], replyChunk: undefined };
const BULK = Uint8Array.from({ length: 5001 }, (_, i) => i);

/** A segment of a read list that names no memory. */
const at = (position: number, lengthBytes = 4) => {
  return { position, handle: 1, lengthBytes, offset: 0n };
};

/** A call of type `msg` with these chunks. */
function callWith(xid: number, lists: Partial<ChunkLists>, payload = callPayload(xid)): Uint8Array {
  return messageBytes({ type: 'msg', xid, credits: 8, ...NO_LISTS, ...lists }, payload);
}

/** Registers memory and returns it as segments of these lengths. */
function chunkIn(memory: FakeMemory, ...lengths: readonly number[]) {
  const bytes = new Uint8Array(lengths.reduce((sum, length) => sum + length, 0));
  const { handle, offset } = memory.register(bytes);
  let at = 0;
  const segments = lengths.map((lengthBytes) => {
    const segment = { handle, lengthBytes, offset: offset + BigInt(at) };
    at += lengthBytes;
    return segment;
  });
  return { bytes, segments };
}

/** A read chunk that holds `bytes`, in pieces of at most `pieceBytes`. */
function readChunk(memory: FakeMemory, position: number, bytes: Uint8Array, pieceBytes = 1e9) {
  const { handle, offset } = memory.register(bytes);
  const list = [];
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const lengthBytes = Math.min(pieceBytes, bytes.length - at);
    list.push({ position, handle, lengthBytes, offset: offset + BigInt(at) });
  }
  return list;
}

/** A reply with an eligible item of these bytes after its count. */
function bulkReply(xid: number, ...items: readonly Uint8Array[]): Payload {
  return replyPayload(xid, (writer) => {
    for (const item of items) writer.bulk(item);
  });
}

function lengthsOf(sent: Sent): readonly (readonly number[])[] {
  return messageHeader(sent).writeList.map((chunk) => chunk.map((s) => s.lengthBytes));
}

const ERROR_CHUNK = { type: 'error', error: { code: 'chunk' } };

let rig: ResponderRig;

beforeEach(() => {
  rig = new ResponderRig();
});

describe('a call', () => {
  it('is dispatched with its message, and answered with its XID', () => {
    const rig = new ResponderRig({ credits: 8 });
    rig.handle(
      shortCall(
        7,
        callPayload(7, (writer) => writer.uint32(42)),
      ),
    );
    const { reader } = rig.lastDispatched;
    expect(reader.uint32()).toBe(7);
    expect(reader.remainingBytes).toBe(40);
    rig.reply(rig.lastDispatched);
    expect(hexOf(rig.last.bytes)).toBe(hexOf(shortReply(7, 8)));
    expect(rig.released).toHaveLength(1);
  });

  it('has its receive posted again before its reply is sent [RPCR-3.3-01, RPCR-3.3-07, RPCR2-3.3.1-03, RPCR-6-01]', () => {
    const receive = rig.handle(shortCall(7));
    expect(rig.reposted).toEqual([]);
    rig.reply(rig.lastDispatched);
    // A `transmit` effect is: put together, post the receive, send.
    expect(rig.reposted).toEqual([receive]);
  });

  it('is never answered with a grant of 0, not even an error [RPCR-3.3-03, RPCR2-3.3.1-01]', () => {
    const rig = new ResponderRig({ credits: 1 });
    rig.handle(shortCall(1));
    rig.reply(rig.lastDispatched);
    rig.handle(bytesOf('00000002 00000001 00000000 00000009 00*12'));
    rig.handle(bytesOf('00000003 00000009 00000000 00000000 00*12'));
    expect(rig.sent.map(({ header }) => header.credits)).toEqual([1, 1, 1]);
  });

  it('is answered while others wait [RPCR-3.3-10]', () => {
    const rig = new ResponderRig({ credits: 4 });
    for (let xid = 1; xid <= 4; xid++) rig.handle(shortCall(xid));
    const [, second] = rig.dispatched;
    if (second) rig.reply(second);
    expect(rig.last.header.xid).toBe(2);
    expect(rig.responder.callCount).toBe(3);
  });

  it('with the XID of another running call is a separate call', () => {
    rig.handle(shortCall(1));
    rig.handle(shortCall(1));
    for (const each of rig.dispatched) rig.reply(each);
    expect(rig.sent).toHaveLength(2);
  });
});

describe('a message that is not a call', () => {
  it('is ignored when it is too short to be trusted [RPCR2-4.5-01]', () => {
    const good = shortCall(1);
    for (let length = 0; length < 28; length++) rig.handle(good.subarray(0, length));
    expect(rig.sent).toEqual([]);
    expect(rig.dispatched).toEqual([]);
    expect(rig.reposted).toHaveLength(28);
    expect(rig.responder.callCount).toBe(0);
  });

  it('is ignored when it is RDMA_DONE, RDMA_ERROR or a reply [RPCR2-4.6.2-01, RPCR2-4.2.4-02]', () => {
    rig.handle(bytesOf('00000001 00000001 00000004 00000003'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000003 00*12'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000004 00000002'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000004 00000001 00000001 00000001'));
    rig.handle(shortReply(1));
    expect(rig.sent).toEqual([]);
    expect(rig.reposted).toHaveLength(5);
    expect(rig.responder.counters.discarded).toBe(5);
  });

  it('gets its XID and the versions back if its version differs [RPCR-4.2-03, RPCR-4.2-04, RPCR2-4.5-03]', () => {
    for (const version of ['00000002', '00000009', '00000000', 'ffffffff']) {
      rig.handle(bytesOf(`aabbccdd ${version} 00000004 00000000 00*12`));
      expect(hexOf(rig.last.bytes)).toBe(
        `aabbccdd${version}0000002000000004000000010000000100000001`,
      );
    }
    expect(rig.reposted).toHaveLength(4);
  });

  const readList = [at(96)];
  const many = Array.from({ length: 65 }, () => ({ handle: 1, lengthBytes: 4, offset: 0n }));
  const bad: readonly (readonly [string, Uint8Array])[] = [
    ['a type that there is not', bytesOf('00000007 00000001 00000004 00000005 00*12')],
    ['a flag of 2', bytesOf('00000007 00000001 00000004 00000000 00000002 00*8 00*4')],
    [
      'a count beyond the end',
      bytesOf('00000007 00000001 00000004 00000000 00*4 00000001 10000000'),
    ],
    ['RDMA_MSG without a message', messageBytes({ type: 'msg', xid: 7, credits: 1, ...NO_LISTS })],
    ['RDMA_MSG of another XID', callWith(7, {}, callPayload(8))],
    ['RDMA_MSG with a position-zero chunk', callWith(7, { readList: [at(0, 40)] })],
    ['RDMA_NOMSG without chunks', messageBytes({ type: 'nomsg', xid: 7, credits: 1, ...NO_LISTS })],
    [
      'RDMA_NOMSG without a position-zero chunk',
      messageBytes({ type: 'nomsg', xid: 7, credits: 1, ...NO_LISTS, readList }),
    ],
    [
      'RDMA_MSGP',
      messageBytes(
        { type: 'msgp', xid: 7, credits: 1, alignBytes: 4, thresholdBytes: 4, ...NO_LISTS },
        callPayload(7),
      ),
    ],
    ['a position that is not a multiple of 4', callWith(7, { readList: [at(98)] })],
    ['positions out of order', callWith(7, { readList: [...readList, at(92)] })],
    ['a chunk beyond the limit', callWith(7, { readList: [at(96, 0xffff_ffff)] })],
    ['a write chunk of too many segments', callWith(7, { writeList: [many] })],
    ['a reply chunk of too many segments', callWith(7, { replyChunk: many })],
    [
      'a message of another type',
      (() => {
        const call = shortCall(7);
        call[28 + 7] = 2;
        return call;
      })(),
    ],
  ];

  it.each(bad)(
    '%s gets one ERR_CHUNK [RPCR-4.2-01, RPCR-4.2-02, RPCR-4.2-05, RPCR2-4.5.2-01, RPCR2-4.2.4-01]',
    (_name, bytes) => {
      const rig = new ResponderRig();
      const receive = rig.handle(bytes);
      expect(rig.sent).toHaveLength(1);
      expect(hexOf(rig.last.bytes)).toBe('0000000700000001000000200000000400000002');
      expect(rig.dispatched).toEqual([]);
      expect(rig.order).not.toContain('pull');
      expect(rig.reposted).toEqual([receive]);
      rig.handle(shortCall(8));
      rig.reply(rig.lastDispatched);
      expect(rig.last.header).toMatchObject({ type: 'msg', xid: 8 });
    },
  );

  it('gets ERR_CHUNK, too, when the service finds no call in it [RPCR-4.2-05]', () => {
    rig.handle(shortCall(7));
    rig.responder.refuse(rig.lastDispatched.call, 0);
    rig.drain();
    expect(rig.last.header).toMatchObject(ERROR_CHUNK);
  });
});

describe('read chunks', () => {
  it('are read before the call is carried out [RPCR-3.5-01, RPCR-3.5-02, RPCR-3.8-02, RPCR2-3.4.4-01]', () => {
    rig.holdPulls = true;
    const payload = callPayload(1, (writer) => {
      writer.bulk(BULK);
      writer.uint32(7);
    });
    const readList = readChunk(rig.memory, 44, BULK, 1000);
    rig.handle(
      callWith(1, { readList }, { ...payload, items: [], lengthBytes: payload.stream.length }),
    );
    expect(rig.dispatched).toEqual([]);
    const [pull] = rig.effects;
    if (pull?.type !== 'pull') throw new Error('no pull');
    rig.pull(pull);
    const { reader } = rig.lastDispatched;
    reader.opaqueFixed(40);
    expect(reader.bulk(9000)).toEqual(Buffer.from(BULK));
    expect(reader.uint32()).toBe(7);
    reader.finish();
  });

  it('at position 0 are the call itself, beside others [RPCR-5.1-02, RPCR-5.1-03]', () => {
    const payload = callPayload(1, (writer) => {
      writer.opaque(new Uint8Array(2000).fill(5));
      writer.bulk(BULK);
    });
    const readList = [
      ...readChunk(rig.memory, 0, payload.stream, 600),
      ...readChunk(rig.memory, 40 + 2004 + 4, BULK),
    ];
    rig.handle(messageBytes({ type: 'nomsg', xid: 1, credits: 1, ...NO_LISTS, readList }));
    const { reader } = rig.lastDispatched;
    reader.opaqueFixed(40);
    expect(reader.opaque(2000)).toHaveLength(2000);
    expect(reader.bulk(9000)).toEqual(Buffer.from(BULK));
    reader.finish();
    rig.reply(rig.lastDispatched);
    expect(rig.responder.pulledBytes).toBe(0);
  });

  it('that hold another call, or none, get ERR_CHUNK', () => {
    for (const stream of [callPayload(2).stream, replyPayload(1).stream, new Uint8Array(4)]) {
      const rig = new ResponderRig();
      const readList = readChunk(rig.memory, 0, stream);
      rig.handle(messageBytes({ type: 'nomsg', xid: 1, credits: 1, ...NO_LISTS, readList }));
      expect(rig.last.header).toMatchObject(ERROR_CHUNK);
      expect(rig.responder.pulledBytes).toBe(0);
    }
  });

  it('of items that are not eligible do not decode [RPCR2-6.1-01]', () => {
    const payload = callPayload(1, (writer) => writer.bulk(Uint8Array.of(0x61)));
    const readList = readChunk(rig.memory, 44, Uint8Array.of(0x61));
    rig.handle(
      callWith(1, { readList }, { ...payload, items: [], lengthBytes: payload.stream.length }),
    );
    const { reader } = rig.lastDispatched;
    reader.opaqueFixed(40);
    expect(() => {
      reader.string(9);
      reader.finish();
    }).toThrow(XdrError);
  });

  it('wait for memory: concurrent reads are limited', () => {
    const rig = new ResponderRig({ pulledBytesMax: 1000 });
    rig.holdPulls = true;
    for (let xid = 1; xid <= 5; xid++) {
      const readList = readChunk(rig.memory, 44, new Uint8Array(400));
      rig.handle(callWith(xid, { readList }));
    }
    expect(rig.effects).toHaveLength(2);
    expect(rig.responder.pulledBytes).toBe(800);
    const [first] = rig.effects;
    if (first?.type !== 'pull') throw new Error('no pull');
    rig.pull(first);
    expect(rig.effects).toHaveLength(2);
    rig.reply(rig.lastDispatched);
    expect(rig.effects).toHaveLength(3);
    expect(rig.responder.pulledBytes).toBe(800);
  });

  it('larger than the limit are read alone', () => {
    const rig = new ResponderRig({ pulledBytesMax: 100 });
    const readList = readChunk(rig.memory, 44, new Uint8Array(400));
    rig.handle(callWith(1, { readList }));
    expect(rig.dispatched).toHaveLength(1);
  });

  it('are refused if no Reads were negotiated [RPCR-6.2-08]', () => {
    const rig = new ResponderRig({}, new FakeMemory(), THRESHOLDS, false);
    rig.handle(callWith(1, { readList: readChunk(rig.memory, 44, BULK) }));
    expect(rig.last.header).toMatchObject(ERROR_CHUNK);
  });

  it('that never arrive end the connection', () => {
    const rig = new ResponderRig({ stallTimeoutMs: 1000 });
    rig.holdPulls = true;
    rig.handle(callWith(1, { readList: readChunk(rig.memory, 44, BULK) }));
    expect(rig.responder.nextDeadlineMs).toBe(1000);
    rig.advanceTo(999);
    expect(rig.effects).toHaveLength(1);
    rig.advanceTo(1000);
    expect(rig.effects.at(-1)?.type).toBe('disconnect');
  });
});

describe('a reply', () => {
  /** Dispatches a call with these lists and answers it. */
  function answered(
    lists: (memory: FakeMemory) => Partial<ChunkLists>,
    payload: Payload,
  ): ResponderRig {
    const rig = new ResponderRig();
    rig.handle(callWith(1, lists(rig.memory)));
    rig.reply(rig.lastDispatched, payload);
    return rig;
  }

  it('writes its item before its Send, and not inline [RPCR-2-03, RPCR-3.6-01, RPCR-3.6-02, RPCR2-4.3.2-01, NFSR-5667.3-03, NFSR-5667.3-04]', () => {
    const { bytes, segments } = chunkIn(rig.memory, 4096, 4096, 4096);
    rig.handle(callWith(1, { writeList: [segments] }));
    rig.reply(rig.lastDispatched, bulkReply(1, BULK.subarray(0, 5000)));
    expect(rig.order).toEqual(['dispatch', 'push', 'transmit', 'release']);
    expect(lengthsOf(rig.last)).toEqual([[4096, 904, 0]]);
    expect(hexOf(rig.last.payload.subarray(24))).toBe('00001388');
    expect(bytes.subarray(0, 5000)).toEqual(BULK.subarray(0, 5000));
    const returned = messageHeader(rig.last).writeList[0] ?? [];
    expect(returned.map(({ handle, offset }) => [handle, offset])).toEqual(
      segments.map(({ handle, offset }) => [handle, offset]),
    );
  });

  it('has exact lengths, without roundup [RPCR2-3.4.6.2-01, RPCR2-3.4.6-02, RPCR-3.7-05]', () => {
    const { bytes, segments } = chunkIn(rig.memory, 8, 8);
    bytes.fill(0xa5);
    rig.handle(callWith(1, { writeList: [segments] }));
    rig.reply(rig.lastDispatched, bulkReply(1, BULK.subarray(0, 5)));
    expect(lengthsOf(rig.last)).toEqual([[5, 0]]);
    expect(hexOf(bytes)).toBe('0001020304a5a5a5a5a5a5a5a5a5a5a5');
  });

  it('puts one item in each chunk until the chunks run out [RPCR2-4.3.2-01]', () => {
    const rig = answered(
      (memory) => ({ writeList: [chunkIn(memory, 100).segments] }),
      bulkReply(1, BULK.subarray(0, 9), BULK.subarray(9, 14)),
    );
    expect(lengthsOf(rig.last)).toEqual([[9]]);
    expect(hexOf(rig.last.payload.subarray(24))).toBe('00000009' + '00000005' + '090a0b0c0d000000');
  });

  it('returns chunks without an item as unused [RPCR2-4.3.2.2-01, NFSR-5667.4-02, NFSR-5667.3-05]', () => {
    const rig = answered(
      (memory) => ({
        writeList: [chunkIn(memory, 100, 100).segments, chunkIn(memory, 8).segments],
      }),
      replyPayload(1, (writer) => writer.uint32(70)),
    );
    expect(lengthsOf(rig.last)).toEqual([[0, 0], [0]]);
    expect(rig.order).not.toContain('push');
    expect(rig.last.header.type).toBe('msg');
  });

  it('keeps an item inline for a chunk of no segments [RPCR2-4.3.2.3-01]', () => {
    const rig = answered(
      (memory) => ({ writeList: [[], chunkIn(memory, 4096).segments] }),
      bulkReply(1, BULK.subarray(0, 4), BULK.subarray(4, 12)),
    );
    expect(lengthsOf(rig.last)).toEqual([[], [8]]);
    expect(hexOf(rig.last.payload.subarray(24))).toBe('00000004' + '00010203' + '00000008');
  });

  it('that is longer than its chunk is an error, and nothing is written [NFSR-5667.3-02, NFSR-8267.3-02]', () => {
    const rig = answered(
      (memory) => ({ writeList: [chunkIn(memory, 4096).segments] }),
      bulkReply(1, BULK),
    );
    expect(rig.last.header).toMatchObject(ERROR_CHUNK);
    expect(rig.order).not.toContain('push');
    rig.handle(shortCall(2));
    rig.reply(rig.lastDispatched);
    expect(rig.last.header.type).toBe('msg');
  });

  it('that is too long for inline goes to the reply chunk [RPCR-5.2-02, RPCR2-3.5.3-03, RPCR2-4.2.4-01]', () => {
    const { bytes, segments } = chunkIn(rig.memory, 124, 4096, 4);
    const payload = replyPayload(1, (writer) => writer.opaqueFixed(BULK.subarray(0, 2976)));
    rig.handle(callWith(1, { replyChunk: segments }));
    rig.reply(rig.lastDispatched, payload);
    expect(rig.last.header.type).toBe('nomsg');
    expect(rig.last.payload).toHaveLength(0);
    expect(messageHeader(rig.last).replyChunk?.map((s) => s.lengthBytes)).toEqual([124, 2876, 0]);
    expect(hexOf(bytes.subarray(0, 3000))).toBe(hexOf(payload.stream));
  });

  it('goes to write chunks first, and the rest inline if that fits [RPCR2-3.5.3-03]', () => {
    const lists = (memory: FakeMemory) => ({
      writeList: [chunkIn(memory, 8192).segments],
      replyChunk: chunkIn(memory, 8192).segments,
    });
    const short = answered(lists, bulkReply(1, BULK));
    expect(short.last.header.type).toBe('msg');
    expect(messageHeader(short.last).replyChunk?.map((s) => s.lengthBytes)).toEqual([0]);
    const writeRest = (writer: XdrWriter): void => {
      writer.bulk(BULK);
      writer.opaqueFixed(new Uint8Array(1000));
    };
    const long = answered(lists, replyPayload(1, writeRest));
    expect(long.last.header.type).toBe('nomsg');
    expect(lengthsOf(long.last)).toEqual([[5001]]);
    expect(messageHeader(long.last).replyChunk?.map((s) => s.lengthBytes)).toEqual([1028]);
  });

  it('that fits leaves the reply chunk as unused [RPCR2-4.3.3-02]', () => {
    const rig = answered(
      (memory) => ({ replyChunk: chunkIn(memory, 100, 4000).segments }),
      replyPayload(1),
    );
    expect(rig.last.header.type).toBe('msg');
    expect(messageHeader(rig.last).replyChunk?.map((s) => s.lengthBytes)).toEqual([0, 0]);
  });

  it('that fits nowhere is an error, never a longer Send [RPCR-3.4-05, RPCR-5.2-03, RPCR-6.2-06]', () => {
    for (const resultBytes of [960, 972, 976, 5000]) {
      const payload = replyPayload(1, (writer) => writer.opaqueFixed(new Uint8Array(resultBytes)));
      const rig = answered(() => ({}), payload);
      const type = 28 + 24 + resultBytes <= 1024 ? 'msg' : 'error';
      expect([resultBytes, rig.last.header.type]).toEqual([resultBytes, type]);
      expect(rig.last.bytes.length).toBeLessThanOrEqual(1024);
    }
    const small = answered(
      (memory) => ({ replyChunk: chunkIn(memory, 999).segments }),
      replyPayload(1, (writer) => writer.opaqueFixed(new Uint8Array(976))),
    );
    expect(small.last.header).toMatchObject(ERROR_CHUNK);
    expect(small.order).not.toContain('push');
  });

  it('never has a read list, and exposes nothing [RPCR2-4.3.1-01, RPCR2-3.4.3-01, RPCR-3.4-03, RPCR-3.8-04]', () => {
    const rig = answered(() => ({}), bulkReply(1, BULK));
    expect(rig.last.header).toMatchObject(ERROR_CHUNK);
    expect(rig.order).not.toContain('expose');
    const inline = answered(() => ({}), bulkReply(1, BULK.subarray(0, 100)));
    expect(messageHeader(inline.last).readList).toEqual([]);
    expect(hexOf(inline.last.payload)).toBe(hexOf(wholeOf(bulkReply(1, BULK.subarray(0, 100)))));
  });

  it('that the client does not receive ends the connection', () => {
    const rig = new ResponderRig({ stallTimeoutMs: 500 });
    rig.holdSent = true;
    rig.handle(shortCall(1));
    rig.reply(rig.lastDispatched);
    rig.advanceTo(500);
    expect(rig.effects.at(-1)?.type).toBe('disconnect');
  });

  it('is all that a responder sends: no calls [RPCB-5.1-01, RPCB-6-01]', () => {
    for (let xid = 1; xid <= 9; xid++) {
      rig.handle(shortCall(xid));
      rig.reply(rig.lastDispatched);
    }
    for (const { payload, header } of rig.sent) {
      expect(header.type).toBe('msg');
      expect(hexOf(payload.subarray(4, 8))).toBe('00000001');
    }
    expect(rig.sent).toHaveLength(9);
  });
});

describe('RFC 5666, on request', () => {
  const OPTIONS = { readListReplies: true, doneTimeoutMs: 100, undoneBytesMax: 20_000 };
  const done = (xid: number): Uint8Array =>
    messageBytes({ type: 'done', xid, credits: 1 }, NOTHING);

  function longReply(rig: ResponderRig, xid: number): void {
    rig.handle(shortCall(xid));
    rig.reply(rig.lastDispatched, bulkReply(xid, BULK));
  }

  it('a reply without room stays in a read list until its RDMA_DONE [RPCR-4.1-13, RPCR-5.1-04]', () => {
    const rig = new ResponderRig(OPTIONS);
    longReply(rig, 1);
    longReply(rig, 2);
    const { type, readList } = messageHeader(rig.last);
    expect([type, readList.length, readList[0]?.position]).toEqual(['nomsg', 1, 0]);
    expect(rig.own.read(readList)).toEqual(Buffer.from(wholeOf(bulkReply(2, BULK))));
    rig.handle(done(3));
    expect(rig.own.regions.size).toBe(2);
    rig.handle(done(2));
    expect(rig.own.regions.size).toBe(1);
    expect(() => rig.own.read(readList)).toThrow();
    rig.handle(done(1));
    expect(rig.own.regions.size).toBe(0);
    expect(rig.reposted).toHaveLength(5);
  });

  it('memory that no RDMA_DONE frees is limited, and closed in time [RPCR-3.8-03, RPCR-11-05]', () => {
    const rig = new ResponderRig(OPTIONS);
    for (let xid = 1; xid <= 1000; xid++) longReply(rig, xid);
    expect(rig.own.regions.size).toBe(3);
    expect(rig.last.header).toMatchObject(ERROR_CHUNK);
    rig.advanceTo(99);
    expect(rig.own.regions.size).toBe(3);
    rig.advanceTo(100);
    expect(rig.own.regions.size).toBe(0);
    longReply(rig, 2000);
    expect(rig.own.regions.size).toBe(1);
  });

  it('replies that wait for RDMA_DONE use no credit, so the grant stays [RPCR-11-06]', () => {
    const rig = new ResponderRig({ ...OPTIONS, credits: 2 });
    for (let xid = 1; xid <= 3; xid++) longReply(rig, xid);
    expect(rig.sent.map(({ header }) => header.credits)).toEqual([2, 2, 2]);
    expect(rig.reposted).toHaveLength(3);
  });

  it('accepts RDMA_MSGP [RPCR-3.9-03]', () => {
    const rig = new ResponderRig(OPTIONS);
    const padding = { alignBytes: 64, thresholdBytes: 16 };
    const payload = callPayload(1, (writer) => {
      writer.pad(padding);
      writer.opaque(BULK.subarray(0, 100));
    });
    const header = { type: 'msgp', xid: 1, credits: 1, ...padding, ...NO_LISTS } as const;
    rig.handle(messageBytes(header, payload));
    const { reader } = rig.lastDispatched;
    reader.opaqueFixed(40);
    expect(reader.opaque(100)).toEqual(BULK.subarray(0, 100));
    reader.finish();
  });
});
