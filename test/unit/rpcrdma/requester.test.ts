import { beforeEach, describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import {
  callPayload,
  messageBytes,
  messageHeader,
  NOTHING,
  payloadOf,
  RequesterRig,
  replyPayload,
  shortReply,
  THRESHOLDS,
  wholeOf,
} from '#test/support/rpcrdma-rig';
import type { CallOutcome } from '#verbs-api/rpcrdma/core/requester-types';
import { readReplyHeader } from '#verbs-api/rpcrdma/core/rpc-message';
import type { MessageHeader } from '#verbs-api/rpcrdma/core/transport-header';
import { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';

const NO_LISTS = { readList: [], writeList: [], replyChunk: undefined };
const BULK = Uint8Array.from({ length: 5001 }, (_, i) => i);

/** A call with one eligible item after a count word, and one word after the item. */
function bulkPayload(xid: number, bytes = BULK) {
  return callPayload(xid, (writer) => {
    writer.bulk(bytes);
    writer.uint32(7);
  });
}

function failureOf(outcome: CallOutcome | undefined): unknown {
  return outcome?.type === 'failure' ? [outcome.failure, outcome.outcomeUnknown] : outcome?.type;
}

function errorMessage(xid: number, error: 'chunk' | 'version', version = 1): Uint8Array {
  const detail =
    error === 'chunk' ? ({ code: error } as const) : ({ code: error, low: 1, high: 1 } as const);
  return messageBytes({ type: 'error', xid, credits: 4, version, error: detail });
}

let rig: RequesterRig;

beforeEach(() => {
  rig = new RequesterRig();
});

describe('a short call', () => {
  it('is one Send of header and message [RPCR-3-01, RPCR-3.1-01, RPCR-3-02, RPCR-3.3-02]', () => {
    const rig = new RequesterRig({ credits: 8 });
    rig.call(0x1122_3344);
    expect(rig.last.bytes).toHaveLength(68);
    const hex = hexOf(rig.last.bytes);
    expect(hex.slice(0, 56)).toBe('112233440000000100000008000000000000000000000000' + '00000000');
    expect(hex.slice(56)).toBe(hexOf(callPayload(0x1122_3344).stream));
    rig.handle(shortReply(0x1122_3344));
    rig.requester.requestCredits(32);
    rig.call(2);
    expect(rig.last.header.credits).toBe(32);
  });

  it('has the XID of its message in its header [RPCR-4.1-02, RPCR-4.1-10]', () => {
    rig.call(77);
    expect(hexOf(rig.last.bytes.subarray(0, 4))).toBe(hexOf(rig.last.payload.subarray(0, 4)));
  });

  it('completes with the reply of its XID', () => {
    rig.call(5);
    rig.handle(
      shortReply(
        5,
        8,
        replyPayload(5, (writer) => writer.uint32(42)),
      ),
    );
    const outcome = rig.outcomes.get(5);
    if (outcome?.type !== 'reply') throw new Error('no reply');
    const reader = new XdrReader(outcome.bytes, outcome.bulk);
    expect(readReplyHeader(reader)).toMatchObject({ xid: 5, outcome: { status: 'success' } });
    expect(reader.uint32()).toBe(42);
    reader.finish();
    expect(rig.requester.callCount).toBe(0);
  });
});

describe('credits', () => {
  it('start at one, until the first reply grants more [RPCR-6.1-02, RPCR-6.1-03]', () => {
    const rig = new RequesterRig({ credits: 32 });
    for (let xid = 1; xid <= 10; xid++) rig.call(xid);
    expect(rig.xids).toEqual([1]);
    rig.handle(shortReply(1, 6));
    expect(rig.xids).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  it('limit the calls in flight to the smaller of request and grant [RPCR-3.3-05, RPCR-3.3-08, RPCR2-3.3.1-02]', () => {
    const rig = new RequesterRig({ credits: 4 });
    for (let xid = 1; xid <= 50; xid++) rig.call(xid);
    let peak = 0;
    for (let xid = 1; xid <= 50; xid++) {
      peak = Math.max(peak, rig.requester.inFlight);
      rig.handle(shortReply(xid, 64));
    }
    expect(peak).toBe(4);
    expect(rig.outcomes.size).toBe(50);
  });

  it('rise and fall with each reply [RPCR-3.3-04, RPCR-3.3-09]', () => {
    for (let xid = 1; xid <= 20; xid++) rig.call(xid);
    rig.handle(shortReply(1, 8));
    expect(rig.requester.inFlight).toBe(8);
    rig.handle(shortReply(2, 2));
    for (let xid = 3; xid <= 7; xid++) {
      expect(rig.sent).toHaveLength(9);
      rig.handle(shortReply(xid, 2));
    }
    // Two in flight, and the window is two; the next reply leaves room for one.
    rig.handle(shortReply(8, 2));
    expect(rig.requester.inFlight).toBe(2);
    rig.handle(shortReply(9, 16));
    expect(rig.requester.inFlight).toBe(11);
  });

  it('of a grant of 0 are 1 [RPCR2-3.3.1-01]', () => {
    for (let xid = 1; xid <= 3; xid++) rig.call(xid);
    rig.handle(shortReply(1, 0));
    expect(rig.xids).toEqual([1, 2]);
  });

  it('of an absurd grant are limited to the requested number', () => {
    const rig = new RequesterRig({ credits: 4 });
    for (let xid = 1; xid <= 20; xid++) rig.call(xid);
    rig.handle(shortReply(1, 0xffff_ffff));
    expect(rig.requester.inFlight).toBe(4);
  });

  it('in a message that may not be a reply are ignored [RPCB-4.1-02]', () => {
    for (let xid = 1; xid <= 20; xid++) rig.call(xid);
    rig.handle(shortReply(1, 4));
    rig.handle(messageBytes({ type: 'msg', xid: 2, credits: 1, ...NO_LISTS }, callPayload(2)));
    const readList = [{ position: 0, handle: 1, lengthBytes: 40, offset: 0n }];
    rig.handle(messageBytes({ type: 'nomsg', xid: 900, credits: 1, ...NO_LISTS, readList }));
    rig.handle(messageBytes({ type: 'msg', xid: 900, credits: 1, ...NO_LISTS }, replyPayload(900)));
    rig.handle(shortReply(2, 4));
    expect(rig.requester.inFlight).toBe(4);
    expect(rig.requester.counters.discarded).toBe(3);
  });
});

describe('how a call travels', () => {
  it('inline up to 1024 bytes with its header, long beyond [RPCR-6.1-01, RPCR2-3.3.2-01, RPCR2-3.3.3-01, RPCR2-3.5.3-01, RPCR-6.2-05]', () => {
    for (let argBytes = 900; argBytes <= 1000; argBytes += 4) {
      const rig = new RequesterRig();
      rig.call(1, { payload: callPayload(1, (w) => w.opaqueFixed(new Uint8Array(argBytes))) });
      const type = 28 + 40 + argBytes <= 1024 ? 'msg' : 'nomsg';
      expect([argBytes, rig.last.header.type]).toEqual([argBytes, type]);
      expect(rig.last.bytes.length).toBeLessThanOrEqual(1024);
    }
  });

  it('as a long call at position 0 [RPCR-5.1-01, RPCR2-3.5.3-02, RPCR2-3.5.3-04, RPCR2-4.2.4-01, RPCR-4.1-11]', () => {
    const rig = new RequesterRig({ segmentBytesMax: 500 });
    const payload = callPayload(1, (writer) => writer.opaque(new Uint8Array(1801).fill(7)));
    rig.call(1, { payload });
    const { type, readList } = messageHeader(rig.last);
    expect(type).toBe('nomsg');
    expect(rig.last.payload).toHaveLength(0);
    expect(readList.map(({ position }) => position)).toEqual([0, 0, 0, 0]);
    const message = rig.memory.read(readList);
    expect(message.length % 4).toBe(0);
    expect(hexOf(message)).toBe(hexOf(payload.stream));
  });

  it('with an item as a read chunk [RPCR-3.4-06, RPCR-3.7-01, RPCR-3.7-03, RPCR2-3.4.5-01, RPCR2-3.4.5.2-01]', () => {
    rig.call(1, { payload: bulkPayload(1) });
    const { type, readList } = messageHeader(rig.last);
    expect(type).toBe('msg');
    expect(readList).toHaveLength(1);
    expect(readList[0]).toMatchObject({ position: 44, lengthBytes: 5001 });
    // The count, and the word after the item.
    expect(hexOf(rig.last.payload.subarray(40))).toBe('0000138900000007');
    expect(rig.memory.read(readList)).toEqual(Buffer.from(BULK));
  });

  it('inline with its item when all of it fits', () => {
    const payload = bulkPayload(1, BULK.subarray(0, 101));
    rig.call(1, { payload });
    expect(messageHeader(rig.last).readList).toEqual([]);
    expect(hexOf(rig.last.payload)).toBe(hexOf(wholeOf(payload)));
  });

  it('as a long call with read, write and reply chunks at once [RPCR-5.1-03, RPCR-3.8-01]', () => {
    const payload = callPayload(1, (writer) => {
      writer.opaque(new Uint8Array(2000));
      writer.bulk(BULK);
    });
    rig.call(1, { payload, resultBytes: [9000], replyMaxBytes: 3000 });
    const header = messageHeader(rig.last);
    expect(header.type).toBe('nomsg');
    expect(header.readList.map(({ position }) => position)).toEqual([0, 40 + 4 + 2000 + 4]);
    expect(header.writeList.map((chunk) => chunk.map((s) => s.lengthBytes))).toEqual([[9000]]);
    expect(header.replyChunk?.map((s) => s.lengthBytes)).toEqual([3000]);
  });

  it('never with an item that is not eligible as a separate chunk [RPCR2-3.4.2-01]', () => {
    rig.call(1, { payload: callPayload(1, (writer) => writer.opaque(BULK)) });
    const { type, readList } = messageHeader(rig.last);
    expect(type).toBe('nomsg');
    expect(readList.every(({ position }) => position === 0)).toBe(true);
  });

  it('never with a part of the RPC header as a chunk [RPCR2-8.2.2-01, RPCR2-8.2.2.3-01]', () => {
    rig.call(1, { payload: bulkPayload(1) });
    for (const { position } of messageHeader(rig.last).readList) {
      expect(position).toBeGreaterThanOrEqual(40);
    }
  });

  it('with a reply chunk if, and only if, the largest reply does not fit inline [RPCR2-4.3.3-01]', () => {
    for (const replyMaxBytes of [24, 992, 996, 1000, 5000]) {
      const rig = new RequesterRig();
      rig.call(1, { replyMaxBytes });
      const offered = messageHeader(rig.last).replyChunk !== undefined;
      expect([replyMaxBytes, offered]).toEqual([replyMaxBytes, 28 + replyMaxBytes > 1024]);
    }
    // A write chunk takes 24 bytes of the header.
    for (const replyMaxBytes of [972, 976]) {
      const rig = new RequesterRig();
      rig.call(1, { replyMaxBytes, resultBytes: [4096] });
      const offered = messageHeader(rig.last).replyChunk !== undefined;
      expect([replyMaxBytes, offered]).toEqual([replyMaxBytes, 52 + replyMaxBytes > 1024]);
    }
  });

  it('with a write chunk as long as the largest result [RPCR2-3.4.6-01, RPCR-3.4-04]', () => {
    rig.call(1, { resultBytes: [5001], replyMaxBytes: 32 });
    expect(messageHeader(rig.last).writeList[0]).toMatchObject([{ lengthBytes: 5001 }]);
    rig.handle(shortReply(1));
    rig.call(2, { resultBytes: [500], replyMaxBytes: 32 });
    expect(messageHeader(rig.last).writeList).toEqual([]);
  });

  it('not at all when it needs a Read that the peer does not support [RPCR-6.2-08]', () => {
    const rig = new RequesterRig({}, 'unconnected');
    rig.call(1, { payload: bulkPayload(1) });
    rig.connect(THRESHOLDS, false);
    expect(failureOf(rig.outcomes.get(1))).toEqual(['unfit', false]);
    expect(rig.sent).toEqual([]);
    rig.call(2, { resultBytes: [5000] });
    expect(rig.xids).toEqual([2]);
  });

  it('never as RDMA_MSGP unless requested, and without RDMA_DONE [RPCR2-4.6.1-01, RPCR2-4.6.2-01]', () => {
    for (let xid = 1; xid < 20; xid++) {
      rig.call(xid, { payload: bulkPayload(xid, BULK.subarray(0, xid * 200)) });
      rig.handle(shortReply(xid));
    }
    const types = new Set(rig.sent.map(({ header }) => header.type));
    expect([...types].sort()).toEqual(['msg']);
    expect(rig.memory.regions.size).toBe(0);
  });

  it('as RDMA_MSGP when requested and it fits [RPCR-3.9-01, RPCR-6.2-09]', () => {
    const padding = { alignBytes: 64, thresholdBytes: 16 };
    const padded = (xid: number, lengthBytes: number) =>
      payloadOf((writer) => {
        writer.pad(padding);
        writer.opaqueFixed(callPayload(xid).stream);
        writer.bulk(BULK.subarray(0, lengthBytes));
      });
    const rig = new RequesterRig();
    rig.call(1, { padded: { padding, payload: padded(1, 100) } });
    expect(rig.last.header).toMatchObject({ type: 'msgp', ...padding });
    expect(hexOf(rig.last.payload.subarray(64, 68))).toBe('00010203');
    rig.handle(shortReply(1));
    rig.call(2, { padded: { padding, payload: padded(2, 2000) }, payload: bulkPayload(2) });
    expect(rig.last.header.type).toBe('msg');
  });
});

describe('a reply', () => {
  it('is found in the reply chunk [RPCR-5.2-01, RPCR-5.2-02]', () => {
    rig.call(1, { replyMaxBytes: 4000 });
    const [chunk] = messageHeader(rig.last).replyChunk ?? [];
    if (chunk === undefined) throw new Error('no reply chunk');
    const reply = replyPayload(1, (writer) => writer.opaqueFixed(new Uint8Array(2976).fill(9)));
    rig.memory.view(chunk.handle, chunk.offset, 3000).set(reply.stream);
    const replyChunk = [{ ...chunk, lengthBytes: 3000 }];
    rig.handle(messageBytes({ type: 'nomsg', xid: 1, credits: 4, ...NO_LISTS, replyChunk }));
    const outcome = rig.outcomes.get(1);
    expect(outcome?.type === 'reply' && hexOf(outcome.bytes)).toBe(hexOf(reply.stream));
  });

  it('completes when the peer no longer has access [RPCR-3.4-10, RPCR-3.5-03, RPCR2-4.4.1-01, RPCR-7-01]', () => {
    rig.holdWithdrawals = true;
    rig.call(1, { payload: bulkPayload(1), resultBytes: [9000], replyMaxBytes: 32 });
    const { writeList } = messageHeader(rig.last);
    const returned = writeList.map((chunk) => chunk.map((s) => ({ ...s, lengthBytes: 10 })));
    const lists = { ...NO_LISTS, writeList: returned };
    const reply = replyPayload(1, (writer) => writer.uint32(10));
    rig.handle(messageBytes({ type: 'msg', xid: 1, credits: 4, ...lists }, reply));
    expect(rig.outcomes.size).toBe(0);
    expect(rig.take('withdraw')).toEqual([{ type: 'withdraw', xid: 1 }]);
    rig.withdraw(1);
    expect(rig.memory.regions.size).toBe(0);
    const outcome = rig.outcomes.get(1);
    if (outcome?.type !== 'reply') throw new Error('no reply');
    const reader = new XdrReader(outcome.bytes, outcome.bulk);
    readReplyHeader(reader);
    expect(reader.bulk(9000)).toHaveLength(10);
  });

  it('ends the connection first when the access cannot be revoked [RPCR2-4.5.4-01]', () => {
    rig.holdWithdrawals = true;
    rig.call(1, { payload: bulkPayload(1) });
    rig.handle(shortReply(1));
    rig.requester.withdrawFailed(1, 'no');
    const effects = [rig.requester.pollEffect(), rig.requester.pollEffect()];
    expect(effects.map((effect) => effect?.type)).toEqual(['disconnect', 'complete']);
  });

  it('that is unreadable changes nothing [RPCR2-4.5-02, RPCR2-4.5-04, RPCR2-4.3.1-01]', () => {
    rig.call(1);
    const good = shortReply(1);
    for (let length = 0; length < 28; length++) rig.handle(good.subarray(0, length));
    rig.handle(bytesOf('00000001 00000001 00000004 00000000 00000002 00*8'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000005 00*12'));
    rig.handle(bytesOf('00000001 00000002 00000004 00000000 00*12'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000003'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000004 00000009'));
    rig.handle(bytesOf('00000001 00000001 00000004 00000004 00000001 00000001'));
    rig.handle(shortReply(2));
    rig.handle(errorMessage(2, 'chunk'));
    const padded = { alignBytes: 0, thresholdBytes: 0, ...NO_LISTS };
    rig.handle(messageBytes({ type: 'msgp', xid: 1, credits: 4, ...padded }, replyPayload(1)));
    expect(rig.outcomes.size).toBe(0);
    expect(rig.sent).toHaveLength(1);
    rig.handle(good);
    expect(rig.outcomes.get(1)?.type).toBe('reply');
  });

  it('with a read list cannot be used [RPCR2-4.3.1-01, RPCR-5.1-04]', () => {
    rig.call(1);
    const readList = [{ position: 0, handle: 1, lengthBytes: 40, offset: 0n }];
    rig.handle(messageBytes({ type: 'nomsg', xid: 1, credits: 4, ...NO_LISTS, readList }));
    expect(failureOf(rig.outcomes.get(1))).toEqual(['badReply', true]);
    expect(rig.take('pull')).toEqual([]);
  });

  it('with chunks that were not offered cannot be used', () => {
    const segment = { handle: 9, lengthBytes: 4, offset: 0n };
    const bad: readonly Partial<MessageHeader>[] = [
      { writeList: [[segment]] },
      { type: 'nomsg', replyChunk: [segment] },
      { type: 'nomsg' },
    ];
    for (const [i, lists] of bad.entries()) {
      const rig = new RequesterRig();
      rig.call(i);
      const header = { type: 'msg', xid: i, credits: 4, ...NO_LISTS, ...lists } as const;
      rig.handle(messageBytes(header, header.type === 'msg' ? replyPayload(i) : NOTHING));
      // A long reply without its chunk cannot be recognised.
      expect(failureOf(rig.outcomes.get(i))).toEqual(['badReply', true]);
    }
  });

  it('RDMA_ERROR ends its call and no other [RPCR-4.2-06, RPCR-4.2-04, RPCR2-4.5-04]', () => {
    for (let xid = 1; xid <= 6; xid++) rig.call(xid);
    rig.handle(shortReply(1, 3));
    rig.handle(errorMessage(3, 'chunk'));
    rig.handle(errorMessage(2, 'version', 2));
    expect(failureOf(rig.outcomes.get(3))).toEqual(['ERR_CHUNK', true]);
    expect(failureOf(rig.outcomes.get(2))).toEqual(['ERR_VERS', false]);
    expect(rig.outcomes.has(4)).toBe(false);
    // Their credit words count as those of replies.
    expect(rig.requester.inFlight).toBe(3);
    expect(rig.xids).toEqual([1, 2, 3, 4, 5, 6]);
  });
});

describe('time', () => {
  it('ends a call without a reply; its late reply only returns the credit', () => {
    rig.call(1);
    rig.handle(shortReply(1, 2));
    rig.call(2);
    rig.call(3, { deadlineMs: 5000 });
    rig.call(4, { deadlineMs: 5000 });
    expect(rig.requester.nextDeadlineMs).toBe(1000);
    rig.advanceTo(999);
    expect(rig.outcomes.has(2)).toBe(false);
    rig.advanceTo(1000);
    expect(failureOf(rig.outcomes.get(2))).toEqual(['timeout', true]);
    expect(rig.requester.uses(2)).toBe(true);
    expect(rig.xids).toEqual([1, 2, 3]);
    rig.handle(shortReply(2, 2));
    expect(rig.xids).toEqual([1, 2, 3, 4]);
    expect(rig.requester.uses(2)).toBe(false);
  });

  it('ends the connection when timed-out calls hold every credit', () => {
    rig.call(1);
    rig.advanceTo(1000);
    expect(failureOf(rig.outcomes.get(1))).toEqual(['timeout', true]);
    expect(rig.take('disconnect')).toHaveLength(1);
    rig.lose();
    rig.call(2);
    expect(rig.take('connect')).toHaveLength(1);
  });

  it('reports whether a timed-out or aborted call may have run', () => {
    rig.call(1);
    rig.call(2, { deadlineMs: 10 });
    rig.advanceTo(10);
    expect(failureOf(rig.outcomes.get(2))).toEqual(['timeout', false]);
    rig.requester.abort(1, 'enough');
    rig.drain();
    expect(failureOf(rig.outcomes.get(1))).toEqual(['aborted', true]);
  });
});

describe('a lost connection', () => {
  it('resends idempotent calls, with the same XID and new memory [RPCR-8-01]', () => {
    rig.call(1, { payload: bulkPayload(1), idempotent: true });
    const before = messageHeader(rig.last).readList[0]?.handle;
    rig.lose();
    expect(rig.memory.regions.size).toBe(0);
    expect(rig.take('connect')).toHaveLength(1);
    rig.connect();
    expect(rig.xids).toEqual([1, 1]);
    expect(messageHeader(rig.last).readList[0]?.handle).not.toBe(before);
    rig.handle(shortReply(1));
    expect(rig.outcomes.get(1)?.type).toBe('reply');
  });

  it('fails other calls, unless they were never sent', () => {
    rig.call(1);
    rig.call(2);
    rig.lose();
    expect(failureOf(rig.outcomes.get(1))).toEqual(['connectionLost', true]);
    rig.connect();
    expect(rig.xids).toEqual([1, 2]);
  });

  it('is reopened for one call a limited number of times [RPCR2-4.5.3-01]', () => {
    const rig = new RequesterRig({ sendsMax: 3 });
    rig.call(1, { idempotent: true });
    for (let i = 0; i < 3; i++) {
      expect(rig.outcomes.size).toBe(0);
      rig.lose();
      rig.connect();
    }
    expect(rig.xids).toEqual([1, 1, 1]);
    expect(failureOf(rig.outcomes.get(1))).toEqual(['connectionLost', true]);
  });

  it('starts again with one credit', () => {
    rig.call(1);
    rig.handle(shortReply(1, 16));
    for (let xid = 2; xid <= 9; xid++) rig.call(xid, { idempotent: true });
    rig.lose();
    rig.connect();
    expect(rig.requester.inFlight).toBe(1);
    // In the order in which they were made.
    expect(rig.xids.slice(9)).toEqual([2]);
  });

  it('is retried with growing waits, and then calls fail', () => {
    const rig = new RequesterRig({ connectsMax: 3, reconnectDelayMs: 10 }, 'unconnected');
    rig.call(1, { deadlineMs: 1e6 });
    const tries: number[] = [];
    while (rig.outcomes.size === 0) {
      if (rig.take('connect').length > 0) {
        tries.push(rig.nowMs);
        rig.lose('refused');
      } else {
        rig.advanceTo(rig.requester.nextDeadlineMs);
      }
    }
    expect(tries).toEqual([0, 10, 30]);
    expect(failureOf(rig.outcomes.get(1))).toEqual(['connectionLost', false]);
    rig.call(2);
    expect(rig.take('connect')).toHaveLength(1);
  });

  it('does not prevent revoking memory that was still being registered', () => {
    rig.holdExposures = true;
    rig.holdWithdrawals = true;
    rig.call(1, { payload: bulkPayload(1) });
    const [expose] = rig.take('expose');
    rig.lose();
    expect(rig.take('withdraw')).toHaveLength(1);
    if (expose) rig.expose(expose);
    expect(rig.sent).toEqual([]);
    rig.withdraw(1);
    rig.connect();
    expect(rig.take('expose')).toHaveLength(1);
  });
});

describe('memory', () => {
  it('that cannot be allocated fails the call, and nothing is sent [RPCR2-6.2-01]', () => {
    rig.holdExposures = true;
    rig.call(1, { resultBytes: [5000] });
    rig.requester.exposeFailed(1, 'ENOMEM');
    rig.drain();
    expect(failureOf(rig.outcomes.get(1))).toEqual(['unfit', false]);
    expect(rig.sent).toEqual([]);
    rig.call(2);
    expect(rig.xids).toEqual([2]);
  });

  it('is registered only with a credit, so no peer gets access early', () => {
    rig.call(1);
    rig.call(2, { resultBytes: [5000] });
    expect(rig.memory.regions.size).toBe(0);
    rig.handle(shortReply(1));
    expect(rig.memory.regions.size).toBe(1);
  });
});

describe('an end by the program', () => {
  it('fails every call, and every later one', () => {
    rig.call(1, { payload: bulkPayload(1) });
    rig.call(2);
    rig.requester.close();
    rig.drain();
    rig.call(3);
    expect([1, 2, 3].map((xid) => failureOf(rig.outcomes.get(xid)))).toEqual([
      ['closed', true],
      ['closed', false],
      ['closed', false],
    ]);
    expect(rig.take('disconnect')).toHaveLength(1);
    expect(rig.memory.regions.size).toBe(0);
  });
});

describe('RFC 5666, on request', () => {
  const readList = [{ position: 0, handle: 1, lengthBytes: 40, offset: 0n }];

  function longReply(xid: number, credits = 4): Uint8Array {
    return messageBytes({ type: 'nomsg', xid, credits, ...NO_LISTS, readList });
  }

  it('a reply in a read list is read, and then RDMA_DONE sent [RPCR-3.5-04, RPCR-4.1-13]', () => {
    const rig = new RequesterRig({ readListReplies: true });
    rig.call(1);
    rig.handle(longReply(1));
    const [pull] = rig.take('pull');
    expect(pull).toMatchObject({ xid: 1, chunks: [{ position: 0, lengthBytes: 40 }] });
    expect(rig.sent).toHaveLength(1);
    const reply = replyPayload(1, (writer) => writer.opaqueFixed(new Uint8Array(16)));
    rig.requester.pulled(1, [reply.stream]);
    rig.drain();
    expect(rig.last.bytes).toHaveLength(16);
    expect(rig.last.header).toMatchObject({ type: 'done', xid: 1 });
    expect(rig.outcomes.get(1)?.type).toBe('reply');
  });

  it('RDMA_DONE counts as in flight until a later call has its reply [RPCR-3.8-06, RPCR-3.8-07]', () => {
    const rig = new RequesterRig({ readListReplies: true });
    rig.call(1);
    rig.handle(longReply(1, 2));
    rig.call(2);
    rig.call(3);
    // One credit is reserved for the RDMA_DONE to send.
    expect(rig.xids).toEqual([1, 2]);
    rig.requester.pulled(1, [replyPayload(1).stream]);
    rig.drain();
    expect(rig.xids).toEqual([1, 2, 1]);
    rig.handle(shortReply(2, 2));
    expect(rig.xids).toEqual([1, 2, 1, 3]);
    rig.call(4);
    // The reply to 2, which was sent before the RDMA_DONE, proves nothing about it.
    expect(rig.xids).toEqual([1, 2, 1, 3]);
    rig.handle(shortReply(3, 2));
    rig.call(5);
    expect(rig.xids).toEqual([1, 2, 1, 3, 4, 5]);
  });

  it('a hundred such replies in a row do not stall under two credits', () => {
    const rig = new RequesterRig({ readListReplies: true });
    for (let xid = 1; xid <= 100; xid++) {
      rig.call(xid);
      expect(rig.last.header.xid).toBe(xid);
      rig.handle(longReply(xid, 2));
      rig.requester.pulled(xid, [replyPayload(xid).stream]);
      rig.drain();
      expect(rig.outcomes.get(xid)?.type).toBe('reply');
    }
  });
});
