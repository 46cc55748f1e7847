import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { writeUint32LE } from '#base/checked-bytes';
import { answerRequest, concludeReply, requestParameters } from '#daemon/iwarp/engine/negotiation';
import { crc32c, tableCrc32c } from '#daemon/iwarp/wire/crc32c';
import { fpduSizeBytes } from '#daemon/iwarp/wire/fpdu';
import {
  emitStartupFrame,
  parseStartupFrame,
  type StartupFrame,
  type StartupFrameKind,
  startupFrameBytesNeeded,
  startupFrameSizeBytes,
} from '#daemon/iwarp/wire/startup-frame';
import {
  drain,
  post,
  RecordingSink,
  receiverOf,
  senderOf,
  streamOf,
} from '../support/fpdu-stream.ts';
import { concat, hexOf, NO_BYTES } from '../support/hex.ts';
import { effects, responder } from '../support/startup-dialogue.ts';

/** ULPDUs, mostly small, some that span several markers. */
const ulpdus = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: fc.uint8Array({ minLength: 1, maxLength: 80 }) },
    { weight: 2, arbitrary: fc.uint8Array({ minLength: 480, maxLength: 530 }) },
    { weight: 1, arbitrary: fc.uint8Array({ minLength: 900, maxLength: 3000 }) },
  ),
  { minLength: 1, maxLength: 12 },
);

/** The stream as RFC 5044 §4 describes it, built byte by byte. */
function streamByTheLetter(list: readonly Uint8Array[], markers: boolean): Uint8Array {
  const stream: number[] = [];
  for (const ulpdu of list) {
    const covered = stream.length;
    let header = -1;
    const put = (byte: number) => {
      if (markers && stream.length % 512 === 0) {
        const pointer = header < 0 ? 0 : stream.length - header;
        stream.push(0, 0, pointer >> 8, pointer & 0xff);
      }
      if (header < 0) header = stream.length;
      stream.push(byte);
    };
    put(ulpdu.length >> 8);
    put(ulpdu.length & 0xff);
    for (const byte of ulpdu) put(byte);
    for (let at = ulpdu.length + 2; at % 4 !== 0; at++) put(0);
    // A marker that is due between PAD and CRC belongs to the covered bytes.
    if (markers && stream.length % 512 === 0) {
      const pointer = stream.length - header;
      stream.push(0, 0, pointer >> 8, pointer & 0xff);
    }
    const field = new Uint8Array(4);
    writeUint32LE(field, 0, crc32c(Uint8Array.from(stream.slice(covered))));
    stream.push(...field);
  }
  return Uint8Array.from(stream);
}

describe('FPDU streams', () => {
  it('match the text of the RFC [MPA-4.3-07, MPA-4.3-10, MPA-4.4-11, MPA-4.4-12, MPA-4.4-13]', () => {
    fc.assert(
      fc.property(ulpdus, fc.boolean(), (list, markers) => {
        expect(hexOf(streamOf(list, markers))).toBe(hexOf(streamByTheLetter(list, markers)));
      }),
    );
  });

  it('any split of the input yields the same ULPDUs [MPA-5.1-05]', () => {
    fc.assert(
      fc.property(
        ulpdus,
        fc.boolean(),
        fc.boolean(),
        fc.array(fc.integer({ min: 1, max: 700 }), { minLength: 1, maxLength: 40 }),
        (list, markers, crcEnabled, cuts) => {
          const bytes = streamOf(list, markers, crcEnabled);
          const receiver = receiverOf({ markers, crcEnabled });
          const sink = new RecordingSink();
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const end = Math.min(at + (cuts[i % cuts.length] ?? 1), bytes.length);
            expect(receiver.push(bytes, at, end, sink)).toBeUndefined();
            at = end;
          }
          expect(receiver.midFpdu).toBe(false);
          expect(sink.hex).toEqual(list.map(hexOf));
        },
      ),
    );
  });

  it('neither polling nor flushing changes the sent bytes [MPA-3-01]', () => {
    fc.assert(
      fc.property(ulpdus, fc.boolean(), fc.infiniteStream(fc.nat(3)), (list, markers, choices) => {
        const sender = senderOf({ alignSegments: true, highWaterBytes: 1_000_000 });
        sender.enterFullOperation(true, markers);
        const parts: Uint8Array[] = [];
        let sending = 0;
        for (const ulpdu of list) {
          post(sender, ulpdu);
          const choice = choices.next().value ?? 0;
          const part = choice > 0 ? sender.pollTransmit()?.bytes : undefined;
          if (part !== undefined) {
            parts.push(part.slice());
            sending += part.length;
          }
          if (choice > 1) {
            sender.flushed(Math.ceil(sending / 2));
            sending -= Math.ceil(sending / 2);
          }
        }
        sender.flushed(sending);
        parts.push(drain(sender));
        expect(hexOf(concat(...parts))).toBe(hexOf(streamOf(list, markers)));
        expect(sender.queuedBytes).toBe(0);
      }),
    );
  });

  it('no input makes it throw, and an error persists [MPA-8-07]', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 2000 }),
        fc.boolean(),
        fc.boolean(),
        (bytes, markers, crcEnabled) => {
          const receiver = receiverOf({ markers, crcEnabled });
          const sink = new RecordingSink();
          const half = bytes.length >> 1;
          const first = receiver.push(bytes, 0, half, sink);
          const delivered = sink.ulpdus.length;
          const second = receiver.push(bytes, half, bytes.length, sink);
          if (first !== undefined) {
            expect(second).toBe(first);
            expect(sink.ulpdus.length).toBe(delivered);
          }
          const taken = sink.ulpdus.reduce((sum, u) => sum + fpduSizeBytes(u.length), 0);
          expect(taken).toBeLessThanOrEqual(bytes.length);
        },
      ),
    );
  });

  it('a CRC can be continued from any cut [MPA-4.4-09]', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), fc.nat(), (bytes, where) => {
        const cut = where % (bytes.length + 1);
        const head = tableCrc32c(bytes, 0, cut);
        expect(tableCrc32c(bytes, cut, bytes.length, head)).toBe(crc32c(bytes));
      }),
    );
  });
});

const depth = fc.oneof(fc.integer({ min: 0, max: 200 }), fc.constantFrom(0x3ffe, 0x3fff));
const rtr = fc.record({ send: fc.boolean(), write: fc.boolean(), read: fc.boolean() });
const enhanced = fc.record({ peerToPeer: fc.boolean(), rtr, ird: depth, ord: depth });

const startupFrame: fc.Arbitrary<StartupFrame> = fc
  .record({
    kind: fc.constantFrom<StartupFrameKind>('request', 'reply'),
    markers: fc.boolean(),
    crc: fc.boolean(),
    rejected: fc.boolean(),
    revision: fc.constantFrom(1, 2),
    enhanced: fc.option(enhanced, { nil: undefined }),
    privateData: fc.uint8Array({ maxLength: 508 }),
  })
  .map((frame) => ({
    ...frame,
    rejected: frame.kind === 'reply' && frame.rejected,
    enhanced: frame.revision === 2 ? frame.enhanced : undefined,
  }));

describe('startup frames', () => {
  it('decoding an encoded frame returns the same frame [MPA-7.1.1-01, MPA-7.1.1-13, EMPA-6-01, EMPA-6-04]', () => {
    fc.assert(
      fc.property(startupFrame, (frame) => {
        const bytes = new Uint8Array(startupFrameSizeBytes(frame)).fill(0xa5);
        emitStartupFrame(frame, bytes);
        expect((bytes[16] ?? 0) & (frame.enhanced === undefined ? 0x1f : 0x0f)).toBe(0);
        // EMPA-9.2-14: the flags that do not count without A are not kept.
        const cleared = { send: false, write: false, read: false };
        const expected =
          frame.enhanced === undefined || frame.enhanced.peerToPeer
            ? frame
            : { ...frame, enhanced: { ...frame.enhanced, rtr: cleared } };
        expect(parseStartupFrame(bytes, frame.kind)).toEqual(expected);
        for (let length = 0; length < bytes.length; length++) {
          expect(startupFrameBytesNeeded(bytes, length, frame.kind)).toBeGreaterThan(length);
        }
      }),
    );
  });

  it('random bytes never throw, and never ask for more than a frame [MPA-7.1.2-17]', () => {
    const key = new Uint8Array(Array.from('MPA ID Req Frame', (c) => c.charCodeAt(0)));
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), fc.boolean(), (random, keyed) => {
        const bytes = keyed ? concat(key, random) : random;
        const needed = startupFrameBytesNeeded(bytes, bytes.length, 'request');
        if (typeof needed === 'number') {
          expect(needed).toBeGreaterThanOrEqual(20);
          expect(needed).toBeLessThanOrEqual(532);
        }
        const startup = responder();
        startup.handleBytes(bytes, 0, bytes.length);
        startup.handlePeerClosed();
        const [first, ...rest] = effects(startup).map((effect) => effect.type);
        expect(first).toMatch(/^(request|failed)$/);
        expect(rest.every((type) => type === 'failed')).toBe(true);
      }),
    );
  });
});

describe('negotiation', () => {
  it('both ends agree on depths that fit, and on an RTR if one is due [EMPA-9.1-02, EMPA-9.2-10]', () => {
    const side = fc.record({
      ird: fc.nat(200),
      ord: fc.nat(200),
      irdMax: fc.nat(200),
      ordMax: fc.nat(200),
      peerToPeer: fc.boolean(),
      rtrKinds: rtr,
    });
    fc.assert(
      fc.property(side, side, (initiator, responderSide) => {
        const request = requestParameters(initiator);
        const { reply, depths } = answerRequest(request, responderSide, responderSide);
        const outcome = concludeReply(request, reply, initiator);
        expect(reply.peerToPeer).toBe(request.peerToPeer);
        if (outcome.error !== undefined) {
          expect([6, 7]).toContain(outcome.error.code);
          return;
        }
        expect(outcome.ord).toBeLessThanOrEqual(depths.ird);
        expect(depths.ord).toBeLessThanOrEqual(outcome.ird);
        expect(outcome.ird).toBeLessThanOrEqual(initiator.irdMax);
        expect(outcome.rtr !== undefined).toBe(initiator.peerToPeer);
        if (outcome.rtr !== undefined) expect(reply.rtr[outcome.rtr]).toBe(true);
      }),
    );
  });

  it('a responder answers nothing but a valid Request [MPA-7.1.2-02]', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 600 }), (bytes) => {
        const startup = responder();
        startup.handleBytes(bytes, 0, bytes.length);
        startup.handleDeadline(Number.MAX_SAFE_INTEGER);
        if (startup.stateName === 'awaiting-consumer') startup.reject(NO_BYTES);
        else expect(effects(startup).map((effect) => effect.type)).toEqual(['failed']);
      }),
    );
  });
});
