import { describe, expect, it } from 'vitest';
import { readUint16 } from '#base/checked-bytes';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { fpduSizeBytes } from '#daemon/iwarp/wire/fpdu';
import { markerPhase } from '#daemon/iwarp/wire/marker';
import {
  dirtyPool,
  drain,
  type FpduVector,
  fillerTo,
  post,
  RecordingSink,
  receiverOf,
  senderOf,
  streamOf,
} from '#test/support/fpdu-stream';
import { bytesOf, concat, hexOf } from '#test/support/hex';
import { pattern } from '#test/support/pattern';
import { readVectors } from '#test/support/vectors';

const vectors = readVectors<{ readonly valid: readonly FpduVector[] }>('mpa-fpdu.json');
const figure5 = bytesOf('4143 00*4 00000000 00000001 00000000 00*24');

function openSender(options: Parameters<typeof senderOf>[0] = {}, markers = false, crc = true) {
  const sender = senderOf(options);
  sender.enterFullOperation(crc, markers);
  return sender;
}

/** Drops 4 bytes and keeps 508, again and again. */
function withoutMarkers(stream: Uint8Array): Uint8Array {
  return stream.filter((_, position) => position % 512 >= 4);
}

describe('FPDU sender, golden', () => {
  it.each(vectors.valid)('$id: $source, into a buffer full of leftovers', (vector) => {
    const sender = openSender({}, vector.phase !== null);
    const filler = fillerTo(vector.phase ?? 0);
    for (const ulpdu of filler) post(sender, ulpdu);
    expect(markerPhase(drain(sender).length)).toBe(vector.phase ?? 0);
    post(sender, bytesOf(vector.ulpdu));
    expect(hexOf(drain(sender))).toBe(hexOf(bytesOf(vector.bytes)));
  });
});

describe('FPDU sender', () => {
  it('a checking receiver accepts exactly what it generates [MPA-4.4-01]', () => {
    const bytes = streamOf([...fillerTo(492), figure5], true);
    const good = receiverOf({ markers: true });
    expect(good.push(bytes, 0, bytes.length, new RecordingSink())).toBeUndefined();
    expect(good.validatedCount).toBe(2);
    bytes[500] = (bytes[500] ?? 0) ^ 0x10;
    const bad = receiverOf({ markers: true });
    expect(bad.push(bytes, 0, bytes.length, new RecordingSink())?.code).toBe(2);
    expect(bad.validatedCount).toBe(1);
  });

  it('each FPDU carries exactly one ULPDU [MPA-3-01]', () => {
    const ulpdus = [1, 2, 3, 14, 18, 500, 1442, 64768].map((length) => pattern(length));
    const bytes = streamOf(ulpdus, false);
    const lengths: number[] = [];
    for (let at = 0; at < bytes.length; at += fpduSizeBytes(readUint16(bytes, at))) {
      lengths.push(readUint16(bytes, at));
    }
    expect(lengths).toEqual([1, 2, 3, 14, 18, 500, 1442, 64768]);
  });

  it('0 and 64769 bytes are refused, and the sender continues [MPA-3-05, MPA-3-07]', () => {
    const sender = openSender();
    expect(() => sender.begin(0)).toThrow(RangeError);
    expect(() => sender.begin(64769)).toThrow(RangeError);
    expect(sender.pollTransmit()).toBeUndefined();
    expect(post(sender, pattern(64768))).toBe(true);
    expect(drain(sender)).toHaveLength(64776);
  });

  it('a ULPDU above MULPDU leaves as one well-formed FPDU [MPA-3-06]', () => {
    expect(streamOf([pattern(1443)], false)).toHaveLength(fpduSizeBytes(1443));
  });

  it('ULPDU_Length is the same with and without a marker inside [MPA-4.1-02]', () => {
    const filler = fillerTo(492);
    const marked = streamOf([...filler, figure5], true).subarray(492);
    expect(hexOf(marked.subarray(0, 2))).toBe('002a');
    expect(hexOf(streamOf([figure5], false).subarray(0, 2))).toBe('002a');
    expect(marked).toHaveLength(52);
  });

  it('PAD bytes are zero for ULPDUs of 1 to 4 bytes [MPA-4.1-03]', () => {
    for (const [length, pad] of [
      [1, '00'],
      [2, ''],
      [3, '000000'],
      [4, '0000'],
    ] as const) {
      const bytes = streamOf([pattern(length)], false);
      expect(hexOf(bytes.subarray(2 + length, bytes.length - 4))).toBe(pad);
    }
  });

  it('dropping 4 bytes and keeping 508 gives the FPDUs without markers [MPA-4.3-03]', () => {
    const ulpdus = Array.from({ length: 200 }, (_, i) => pattern(1 + ((i * 37) % 900), i));
    const marked = withoutMarkers(streamOf(ulpdus, true, false));
    expect(hexOf(marked)).toBe(hexOf(streamOf(ulpdus, false, false)));
  });

  it('every marker, at its place and nowhere else [MPA-4.2-02, MPA-4.2-04, MPA-4.3-07, MPA-4.3-11]', () => {
    const ulpdus = Array.from({ length: 300 }, (_, i) => pattern(10 + ((i * 61) % 1500), i));
    ulpdus.push(...Array.from({ length: 40 }, (_, i) => pattern(18 + (i % 28), i)));
    const bytes = streamOf(ulpdus, true);
    const starts = new Set<number>();
    // Walks the FPDUs only by length, and steps over the markers.
    let at = 0;
    const skip = (count: number) => {
      for (let i = 0; i < count; i++, at++) if (at % 512 === 0) at += 4;
    };
    while (at < bytes.length) {
      if (at % 512 === 0) at += 4;
      starts.add(at);
      skip(fpduSizeBytes(readUint16(bytes, at)));
    }
    expect(starts.size).toBe(ulpdus.length);
    for (let marker = 0; marker < bytes.length; marker += 512) {
      expect(readUint16(bytes, marker)).toBe(0);
      const pointer = readUint16(bytes, marker + 2);
      expect(pointer & 3).toBe(0);
      expect(starts).toContain(pointer === 0 ? marker + 4 : marker - pointer);
    }
  });

  it('no marker cuts a length or CRC field, for 10000 FPDUs of many sizes [MPA-4.1-07]', () => {
    const sender = openSender({ highWaterBytes: Number.POSITIVE_INFINITY }, true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    for (let i = 0; i < 10_000; i++) {
      post(sender, pattern(1 + ((i * 7919) % 1201), i));
      const bytes = drain(sender);
      if (bytes.length % 4 !== 0) expect.fail(`FPDU ${i} has ${bytes.length} bytes`);
      receiver.push(bytes, 0, bytes.length, sink);
    }
    expect(receiver.error).toBeUndefined();
    expect(sink.ulpdus).toHaveLength(10_000);
  });

  it('the marker count starts after our startup frame, whatever its length [MPA-4.3-09]', () => {
    const streams = [0, 37].map((privateData) => {
      const sender = senderOf();
      sender.sendStartupFrame(pattern(20 + privateData));
      sender.enterFullOperation(true, true);
      post(sender, figure5);
      post(sender, pattern(1000));
      const bytes = drain(sender);
      expect(bytes.subarray(0, 20 + privateData)).toEqual(pattern(20 + privateData));
      return hexOf(bytes.subarray(20 + privateData));
    });
    expect(streams[0]).toBe(streams[1]);
    expect(streams[0]).toBe(hexOf(streamOf([figure5, pattern(1000)], true)));
  });

  it('nothing is sent before there is an FPDU, not even a marker [MPA-7.1.2-14]', () => {
    const sender = openSender({}, true);
    expect(sender.pollTransmit()).toBeUndefined();
    post(sender, figure5);
    expect(hexOf(drain(sender).subarray(0, 6))).toBe('00000000002a');
    expect(sender.pollTransmit()).toBeUndefined();
    const plain = openSender();
    post(plain, figure5);
    expect(hexOf(drain(plain).subarray(0, 2))).toBe('002a');
  });

  it.each([false, true])(
    'with CRCs off the field is still there (markers: %s) [MPA-4.4-07, MPA-4.4-08]',
    (markers) => {
      const bytes = streamOf([figure5], markers, false);
      expect(bytes).toHaveLength(markers ? 52 : 48);
      expect(hexOf(bytes.subarray(-4))).toBe('00000000');
    },
  );

  it('FPDUs committed together are polled together [MPA-5.1-04]', () => {
    const sender = openSender();
    for (let i = 0; i < 10; i++) post(sender, pattern(18, i));
    expect(sender.pollTransmit()?.bytes).toHaveLength(240);
    expect(sender.pollTransmit()).toBeUndefined();
  });

  it.each([false, true])(
    'aligned, each poll gives one whole FPDU (markers: %s) [MPA-5.1-03]',
    (markers) => {
      const ulpdus = [18, 502, 42, 1400, 1, 2000].map((length) => pattern(length));
      const sender = senderOf({ alignSegments: true });
      sender.sendStartupFrame(pattern(24));
      sender.enterFullOperation(true, markers);
      for (const ulpdu of ulpdus) post(sender, ulpdu);
      expect(sender.pollTransmit()?.bytes).toEqual(pattern(24));
      const receiver = receiverOf({ markers });
      const sink = new RecordingSink();
      for (let i = 0; i < ulpdus.length; i++) {
        const part = sender.pollTransmit()?.bytes;
        if (part === undefined) expect.fail(`FPDU ${i} is missing`);
        expect(receiver.push(part, 0, part.length, sink)).toBeUndefined();
        expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([i + 1, false]);
      }
      expect(sender.pollTransmit()).toBeUndefined();
      expect(sink.ulpdus).toEqual(ulpdus);
    },
  );

  it('aligned, FPDUs that fit a segment share it, and none crosses its end [MPA-5.1-04]', () => {
    // FPDUs of 24 bytes in segments of 100: four, and four bytes stay unused.
    const sender = senderOf({ alignSegments: true, segmentBytes: 100 });
    sender.enterFullOperation(true, false);
    for (let i = 0; i < 10; i++) post(sender, pattern(18, i));
    expect(sender.pollTransmit()?.bytes).toHaveLength(96);
    expect(sender.pollTransmit()?.bytes).toHaveLength(96);
    expect(sender.pollTransmit()?.bytes).toHaveLength(48);
    // FPDUs that fill segments leave in one write: TCP cuts it between them.
    sender.setSegmentBytes(24);
    for (let i = 0; i < 10; i++) post(sender, pattern(18, i));
    expect(sender.pollTransmit()?.bytes).toHaveLength(240);
    // An FPDU longer than a segment is sent alone.
    post(sender, pattern(18));
    post(sender, pattern(46));
    post(sender, pattern(18));
    expect([1, 2, 3].map(() => sender.pollTransmit()?.bytes.length)).toEqual([24, 52, 24]);
  });

  it('all FPDUs of a chunk leave at once while nothing sees segments, after the startup frame', () => {
    const sender = senderOf({ alignSegments: true, segmentBytes: 100 });
    sender.sendStartupFrame(pattern(24));
    sender.enterFullOperation(true, true);
    for (let i = 0; i < 5; i++) post(sender, pattern(90, i));
    const waiting = sender.queuedBytes;
    expect(sender.pollTransmit(true)?.bytes).toHaveLength(24);
    const first = sender.pollTransmit()?.bytes.length ?? 0;
    expect(sender.pollTransmit(true)?.bytes).toHaveLength(waiting - 24 - first);
    const before = sender.queuedBytes;
    for (let i = 0; i < 5; i++) post(sender, pattern(90));
    // Aligned again, markers included.
    let polled = 0;
    for (let part = sender.pollTransmit(); part; part = sender.pollTransmit()) {
      // One FPDU of 96 bytes and at most a marker, or two that end with their segment.
      expect([96, 100, 196, 200]).toContain(part.bytes.length);
      polled += part.bytes.length;
    }
    expect(polled).toBe(sender.queuedBytes - before);
  });

  it('a ULPDU is cut to fill a partly used segment when much of it is left [MPA-4.5-05, MPA-4.5-07]', () => {
    const pool = new ChunkPool();
    const sender = senderOf({ pool, alignSegments: true, segmentBytes: 65_483 });
    sender.enterFullOperation(true, false);
    expect(sender.ulpduRoomBytes(64_768)).toBe(64_768);
    post(sender, pattern(64_768));
    // Less than a quarter of the segment is left: the next full one counts.
    expect(sender.ulpduRoomBytes(64_768)).toBe(64_768);
    post(sender, pattern(794));
    const room = sender.ulpduRoomBytes(64_768);
    expect(room).toBe(65_480 - 800 - 6);
    expect(sender.ulpduRoomBytes(1442)).toBe(1442);
    post(sender, pattern(room));
    post(sender, pattern(50_000));
    expect(sender.ulpduRoomBytes(64_768)).toBe(64_768);
    const segments = [1, 2, 3].map(() => sender.pollTransmit()?.bytes.length);
    expect(segments).toEqual([64_776, 65_480, 50_008]);
    // Nothing waits any more, so a new segment begins.
    expect(sender.ulpduRoomBytes(64_768)).toBe(64_768);
  });

  it.each([
    ['markers', true, true],
    ['no CRC', false, false],
  ])('with %s, ULPDUs are cut for a full segment [MPA-4.5-05]', (_, crc, markers) => {
    const pool = new ChunkPool();
    const sender = senderOf({ pool, alignSegments: true, segmentBytes: 65_483 });
    sender.enterFullOperation(crc, markers);
    post(sender, pattern(800));
    expect(sender.ulpduRoomBytes(64_768)).toBe(64_768);
  });

  it('without CRCs no alignment is needed [MPA-5.1-03]', () => {
    const sender = senderOf({ alignSegments: true, segmentBytes: 100 });
    sender.enterFullOperation(false, false);
    for (let i = 0; i < 10; i++) post(sender, pattern(18, i));
    expect(sender.pollTransmit()?.bytes).toHaveLength(240);
  });

  it('accepts FPDUs up to its high-water mark and again when bytes are flushed', () => {
    const sender = openSender({ highWaterBytes: 200_000 });
    let posted = 0;
    while (posted < 10 && post(sender, pattern(60_000))) posted++;
    expect(posted).toBe(4);
    expect(sender.queuedBytes).toBe(4 * fpduSizeBytes(60_000));
    const first = sender.pollTransmit()?.bytes;
    expect(sender.begin(1)).toBe(false);
    sender.flushed(first?.length ?? 0);
    expect(post(sender, pattern(1))).toBe(true);
  });

  it('returns chunks as they are flushed, and holds none when idle', () => {
    const pool = dirtyPool();
    const sender = openSender({ pool });
    expect(pool.inUseCount).toBe(0);
    for (let i = 0; i < 4; i++) post(sender, pattern(60_000));
    expect(pool.inUseCount).toBe(4);
    let polled = sender.pollTransmit();
    for (let left = 3; left >= 0; left--) {
      sender.flushed(polled?.bytes.length ?? 0);
      expect(pool.inUseCount).toBe(left);
      if (left > 0) polled = sender.pollTransmit();
    }
    expect([sender.queuedBytes, sender.drained]).toEqual([0, true]);
    expect([sender.bytes.length, polled?.bytes.length]).toEqual([0, 0]);
  });

  it('allows the socket to flush in any portions', () => {
    const ulpdus = Array.from({ length: 30 }, (_, i) => pattern(9_000, i));
    const expected = streamOf(ulpdus, false);
    const sender = openSender({ highWaterBytes: Number.POSITIVE_INFINITY });
    const parts: Uint8Array[] = [];
    for (const ulpdu of ulpdus) {
      post(sender, ulpdu);
      const part = sender.pollTransmit()?.bytes;
      if (part !== undefined) parts.push(part);
    }
    const stream = concat(...parts);
    for (let left = stream.length; left > 0; left -= 7_001) sender.flushed(Math.min(left, 7_001));
    expect(sender.queuedBytes).toBe(0);
    expect(hexOf(stream)).toBe(hexOf(expected));
  });

  it('does not change polled bytes that are not flushed yet', () => {
    const sender = openSender({ highWaterBytes: 1_000_000 });
    const polled: { view: Uint8Array; copy: Uint8Array }[] = [];
    for (let i = 0; i < 50; i++) {
      post(sender, pattern(5_000, i));
      const view = sender.pollTransmit()?.bytes;
      if (view !== undefined) polled.push({ view, copy: view.slice() });
    }
    for (const { view, copy } of polled) expect(view).toEqual(copy);
  });

  it('keeps the room reserved while all that was sent before is flushed', () => {
    const pool = dirtyPool();
    const sender = openSender({ pool });
    post(sender, pattern(100));
    const part = sender.pollTransmit()?.bytes;
    sender.begin(50);
    sender.flushed(part?.length ?? 0);
    expect(pool.inUseCount).toBe(1);
    sender.bytes.set(pattern(50), sender.ulpduStart);
    sender.commit();
    expect(hexOf(drain(sender))).toBe(hexOf(streamOf([pattern(50)], false)));
    expect(pool.inUseCount).toBe(0);
  });

  it('drops a reservation when another begins that does not fit the chunk', () => {
    const pool = dirtyPool();
    const sender = openSender({ pool });
    post(sender, pattern(20_000));
    const part = sender.pollTransmit()?.bytes;
    sender.begin(40_000);
    sender.flushed(part?.length ?? 0);
    post(sender, pattern(64_768));
    expect(hexOf(drain(sender))).toBe(hexOf(streamOf([pattern(64_768)], false)));
    expect([sender.queuedBytes, pool.inUseCount]).toEqual([0, 0]);
  });

  it('releases everything at the end of the socket', () => {
    const pool = dirtyPool();
    const sender = openSender({ pool });
    post(sender, pattern(60_000));
    post(sender, pattern(60_000));
    sender.pollTransmit();
    sender.release();
    expect([pool.inUseCount, sender.queuedBytes]).toEqual([0, 0]);
    expect(sender.pollTransmit()).toBeUndefined();
  });

  it('asserts its order of calls', () => {
    expect(() => senderOf().begin(10)).toThrow('Full Operation');
    const sender = openSender();
    expect(() => sender.commit()).toThrow('commit without begin');
    expect(() => sender.sendStartupFrame(pattern(20))).toThrow(
      'startup frame after Full Operation',
    );
    post(sender, pattern(10));
    expect(() => sender.flushed(1)).toThrow('flushed more than was polled');
  });
});
