import { describe, expect, it } from 'vitest';
import type { FpduReceiver, UlpduSink } from '../../../daemon/engine/fpdu-receiver.ts';
import { markerPhase } from '../../../daemon/wire/marker.ts';
import {
  dirtyPool,
  fillerTo,
  patterned,
  RecordingSink,
  receiverOf,
  streamOf,
} from '../../support/fpdu-stream.ts';
import { concat, hexOf, octetsOf } from '../../support/hex.ts';
import { readVectors } from '../../support/vectors.ts';

interface FpduVector {
  readonly id: string;
  readonly source: string;
  readonly phase: number | null;
  readonly ulpdu: string;
  readonly octets: string;
}

const vectors = readVectors<{
  readonly valid: readonly FpduVector[];
  readonly tolerated: readonly FpduVector[];
  readonly invalid: readonly (FpduVector & { readonly code: number })[];
}>('mpa-fpdu.json');

const figure5 =
  '002a 4143 00*4 00000000 00000001 00000000 00*24 b7243ec3 002a 4143 00*4 00000000 00000002 00000000 00*24 290fbede';
const figure6Ulpdu = `4143${'00'.repeat(8)}0000000200000000${'00'.repeat(24)}`;

/** Figure 6, with its marker and CRC replaced. */
function figure6(marker: string, crc: string): Uint8Array {
  return octetsOf(`002a 4143 00*4 00000000 00000002 00000000 ${marker} 00*24 ${crc}`);
}

function pushAll(receiver: FpduReceiver, octets: Uint8Array, sink = new RecordingSink()) {
  return { error: receiver.push(octets, 0, octets.length, sink), sink };
}

/** A receiver of marked FPDUs that has come to stream position `phase`. */
function receiverAt(phase: number, options: { markersChecked?: boolean } = {}): FpduReceiver {
  const receiver = receiverOf({ markers: true, ...options });
  const filler = streamOf(fillerTo(phase), true);
  expect(markerPhase(filler.length)).toBe(phase);
  expect(pushAll(receiver, filler).error).toBeUndefined();
  return receiver;
}

function receiverFor(vector: FpduVector): FpduReceiver {
  return vector.phase === null ? receiverOf() : receiverAt(vector.phase);
}

/** For long ones, of which a diff would be no help. */
function sameOctets(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}

describe('FPDU receiver, golden', () => {
  it.each([...vectors.valid, ...vectors.tolerated])(
    '$id: $source, whole and octet by octet',
    (v) => {
      const octets = octetsOf(v.octets);
      const whole = pushAll(receiverFor(v), octets);
      expect(whole.error).toBeUndefined();
      expect(whole.sink.hex).toEqual([hexOf(octetsOf(v.ulpdu))]);
      const receiver = receiverFor(v);
      const sink = new RecordingSink();
      for (let at = 0; at < octets.length; at++) {
        expect(sink.ulpdus).toHaveLength(0);
        expect(receiver.push(octets, at, at + 1, sink)).toBeUndefined();
      }
      expect(sink.hex).toEqual(whole.sink.hex);
    },
  );

  it.each(vectors.invalid)('$id: $source, error code $code and no delivery', (v) => {
    const octets = octetsOf(v.octets);
    const { error, sink } = pushAll(receiverFor(v), octets);
    expect([error?.layer, error?.etype, error?.code]).toEqual([2, 0, v.code]);
    expect(sink.ulpdus).toHaveLength(0);
    const receiver = receiverFor(v);
    for (let at = 0; at < octets.length; at++) receiver.push(octets, at, at + 1, sink);
    expect(receiver.error?.code).toBe(v.code);
    expect(sink.ulpdus).toHaveLength(0);
  });
});

describe('FPDU receiver', () => {
  it('MPA-3-09: a validated FPDU is passed on once, with its length', () => {
    const { sink } = pushAll(receiverOf(), octetsOf(figure5));
    expect(sink.ulpdus.map((ulpdu) => ulpdu.length)).toEqual([42, 42]);
    expect(sink.hex[0]?.startsWith('4143')).toBe(true);
  });

  it('delivers a whole FPDU where it lies, without a copy or a buffer of its own', () => {
    const pool = dirtyPool();
    const octets = octetsOf(`a5a5a5 ${figure5} a5`);
    const places: (Uint8Array | number)[] = [];
    const sink = {
      handleUlpdu(where: Uint8Array, start: number) {
        places.push(where, start);
        return undefined;
      },
    };
    expect(receiverOf({ pool }).push(octets, 3, octets.length - 1, sink)).toBeUndefined();
    expect(places).toEqual([octets, 5, octets, 53]);
    expect(pool.inUseCount).toBe(0);
  });

  it('MPA-3-07: a ULPDU of length 0 is passed up, and the stream advances by 8 octets', () => {
    const empty = streamOfRaw(octetsOf('0000 0000'));
    const { error, sink } = pushAll(receiverOf(), concat(empty, octetsOf(figure5)));
    expect(error).toBeUndefined();
    expect(sink.ulpdus.map((ulpdu) => ulpdu.length)).toEqual([0, 42, 42]);
  });

  it.each([
    [64768, false],
    [65535, false],
    [64769, true],
    [65535, true],
  ])('MPA-3-08: ULPDU_Length %i is delivered whole (markers: %s)', (length, markers) => {
    const ulpdu = patterned(length);
    const octets = markers ? markedByHand(ulpdu) : plainByHand(ulpdu);
    const sink = new RecordingSink();
    const receiver = receiverOf({ markers, crcEnabled: false });
    const cut = 40_001;
    expect(receiver.push(octets, 0, cut, sink)).toBeUndefined();
    expect(receiver.push(octets, cut, octets.length, sink)).toBeUndefined();
    expect(sink.ulpdus).toHaveLength(1);
    expect(sink.ulpdus[0]).toEqual(ulpdu);
    expect(receiver.midFpdu).toBe(false);
  });

  it('MPA-4.1-06: with CRCs off the field may hold anything, and is still four octets', () => {
    const octets = octetsOf(
      `002a 4143 00*4 00000000 00000001 00000000 00*24 deadbeef ${figure5.slice(0, 80)}`,
    );
    const receiver = receiverOf({ crcEnabled: false });
    const { error, sink } = pushAll(receiver, octets);
    expect(error).toBeUndefined();
    expect(sink.ulpdus.map((ulpdu) => ulpdu.length)[0]).toBe(42);
  });

  it('MPA-4.4-06, MPA-7.1.1-09: with CRCs off the very first FPDU is taken with CRC 0', () => {
    const octets = octetsOf('002a 4143 00*4 00000000 00000001 00000000 00*24 00000000');
    expect(pushAll(receiverOf({ crcEnabled: false }), octets).sink.ulpdus).toHaveLength(1);
  });

  it('MPA-4.4-05: with CRCs on a flipped bit is caught after 1000 FPDUs too', () => {
    const ulpdus = Array.from({ length: 1001 }, (_, i) => patterned(40, i));
    const octets = streamOf(ulpdus, false);
    const last = octets.length - 20;
    octets[last] = (octets[last] ?? 0) ^ 1;
    const { error, sink } = pushAll(receiverOf(), octets);
    expect(error?.code).toBe(2);
    expect(sink.ulpdus).toHaveLength(1000);
  });

  it('MPA-4.4-16, MPA-6-01: any flipped bit of figure 5 but those of the length is code 2', () => {
    const good = octetsOf('00000000 002a 4143 00*4 00000000 00000001 00000000 00*24 52239983');
    for (let bit = 0; bit < good.length * 8; bit++) {
      const at = bit >> 3;
      if (at === 4 || at === 5) continue;
      const bad = good.slice();
      bad[at] = (bad[at] ?? 0) ^ (1 << (bit & 7));
      const { error, sink } = pushAll(receiverOf({ markers: true }), bad);
      expect(error?.code).toBe(2);
      expect(sink.ulpdus).toHaveLength(0);
    }
  });

  it('MPA-6-02: a lowered ULPDU_Length ends the stream at that FPDU', () => {
    const ulpdus = [patterned(40, 1), patterned(40, 2), patterned(40, 3)];
    const octets = streamOf(ulpdus, false);
    octets[49] = 36;
    const { error, sink } = pushAll(receiverOf(), octets);
    expect(error?.code).toBe(2);
    expect(sink.ulpdus).toEqual(ulpdus.slice(0, 1));
  });

  it('MPA-6-02: a raised ULPDU_Length waits for that many octets, then is code 2', () => {
    const octets = streamOf([patterned(40, 1), patterned(40, 2)], false);
    octets[1] = 60;
    const receiver = receiverOf();
    const sink = new RecordingSink();
    expect(receiver.push(octets, 0, 67, sink)).toBeUndefined();
    expect(receiver.midFpdu).toBe(true);
    expect(receiver.push(octets, 67, 68, sink)?.code).toBe(2);
    expect(sink.ulpdus).toHaveLength(0);
  });

  it.each([true, false])(
    'MPA-6-03: nothing is forwarded before the last CRC octet (CRC: %s)',
    (crcEnabled) => {
      const octets = octetsOf(figure5).subarray(0, 48);
      const receiver = receiverOf({ crcEnabled });
      const sink = new RecordingSink();
      expect(receiver.push(octets, 0, 47, sink)).toBeUndefined();
      expect(sink.ulpdus).toHaveLength(0);
      expect(receiver.push(octets, 47, 48, sink)).toBeUndefined();
      expect(sink.ulpdus).toHaveLength(1);
    },
  );

  it('MPA-5.1-05: cut at every octet offset, a stream gives the same ULPDUs', () => {
    for (const markers of [false, true]) {
      const ulpdus = [1, 2, 3, 500, 1442].map((length) => patterned(length, length));
      const octets = streamOf(ulpdus, markers);
      for (let cut = 0; cut <= octets.length; cut++) {
        const receiver = receiverOf({ markers });
        const sink = new RecordingSink();
        receiver.push(octets, 0, cut, sink);
        receiver.push(octets, cut, octets.length, sink);
        if (sink.ulpdus.length !== 5 || receiver.midFpdu) expect.fail(`cut at ${cut}`);
        expect(sink.hex).toEqual(ulpdus.map(hexOf));
      }
    }
  });

  it('keeps nothing of what was pushed: the octets may be overwritten between calls', () => {
    const ulpdus = [patterned(300, 1), patterned(300, 2)];
    const octets = streamOf(ulpdus, true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    const shared = new Uint8Array(100);
    for (let at = 0; at < octets.length; at += 100) {
      const size = Math.min(100, octets.length - at);
      shared.fill(0xee);
      shared.set(octets.subarray(at, at + size));
      expect(receiver.push(shared, 0, size, sink)).toBeUndefined();
    }
    expect(sink.ulpdus).toEqual(ulpdus);
  });

  it('leaves what was pushed as it was, markers included', () => {
    const octets = streamOf([patterned(2000)], true);
    const before = hexOf(octets);
    pushAll(receiverOf({ markers: true }), octets);
    expect(hexOf(octets)).toBe(before);
  });

  it('MPA-4.3-13: only ULPDU octets come out of a marked stream', () => {
    const ulpdus = [1, 2, 3, 500, 1442].map((length) => patterned(length, length));
    const { error, sink } = pushAll(receiverOf({ markers: true }), streamOf(ulpdus, true));
    expect(error).toBeUndefined();
    expect(sink.hex).toEqual(ulpdus.map(hexOf));
  });

  it('MPA-4.3-13: figure 6 comes out without its marker', () => {
    const { sink } = pushAll(receiverAt(492), figure6('00000014', '84925898'));
    expect(sink.hex).toEqual([figure6Ulpdu]);
  });

  it('MPA-4.3-14: a lone marker at an FPDU boundary is an incomplete FPDU, not an error', () => {
    const octets = streamOf([patterned(502), patterned(42)], true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    expect(receiver.push(octets, 0, 512, sink)).toBeUndefined();
    expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([1, false]);
    expect(receiver.push(octets, 512, 516, sink)).toBeUndefined();
    expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([1, true]);
    expect(receiver.push(octets, 516, octets.length, sink)).toBeUndefined();
    expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([2, false]);
  });

  it('MPA-5.2-01: marker checking can be turned off', () => {
    const wrong = figure6('00000018', 'e996c154');
    expect(pushAll(receiverAt(492), wrong).error?.code).toBe(3);
    expect(pushAll(receiverAt(492, { markersChecked: false }), wrong).sink.hex).toEqual([
      figure6Ulpdu,
    ]);
  });

  it('MPA-8-07: after an error nothing is delivered, in the same push or a later one', () => {
    const [a, b, c] = [patterned(40, 1), patterned(40, 2), patterned(40, 3)];
    const octets = streamOf([a, b, c], false);
    octets[60] = (octets[60] ?? 0) ^ 1;
    const receiver = receiverOf();
    const sink = new RecordingSink();
    const first = receiver.push(octets, 0, octets.length, sink);
    expect(first?.code).toBe(2);
    expect(receiver.push(octets, 96, 144, sink)).toBe(first);
    expect(receiver.error).toBe(first);
    expect(sink.ulpdus).toEqual([a]);
  });

  it.each([false, true])(
    'MPA-8-07: nor behind a corrupt FPDU that came in two parts (markers: %s)',
    (markers) => {
      const pool = dirtyPool();
      const octets = streamOf([patterned(40, 1), patterned(40, 2), patterned(40, 3)], markers);
      octets[20] = (octets[20] ?? 0) ^ 1;
      const receiver = receiverOf({ pool, markers });
      const sink = new RecordingSink();
      receiver.push(octets, 0, 30, sink);
      expect(receiver.push(octets, 30, octets.length - 3, sink)?.code).toBe(2);
      expect(sink.ulpdus).toHaveLength(0);
      expect([receiver.midFpdu, pool.inUseCount]).toEqual([false, 0]);
    },
  );

  it('MPA-8-07: nothing is held behind a corrupt FPDU', () => {
    const pool = dirtyPool();
    const octets = streamOf([patterned(40, 1), patterned(40, 2)], false);
    octets[20] = (octets[20] ?? 0) ^ 1;
    const receiver = receiverOf({ pool });
    const { error } = pushAll(receiver, octets.subarray(0, 90));
    expect(error?.code).toBe(2);
    expect([receiver.midFpdu, pool.inUseCount]).toEqual([false, 0]);
  });

  it.each([false, true])(
    'MPA-8-07: an error of the sink ends the input likewise (markers: %s)',
    (markers) => {
      const ulpdus = [patterned(40, 1), patterned(600, 2), patterned(40, 3)];
      const octets = streamOf(ulpdus, markers);
      for (const step of [octets.length, 7]) {
        const receiver = receiverOf({ markers });
        const sink = new RecordingSink(1);
        for (let at = 0; at < octets.length; at += step) {
          receiver.push(octets, at, Math.min(at + step, octets.length), sink);
        }
        expect(receiver.error?.code).toBe(5);
        expect(sink.ulpdus).toEqual(ulpdus.slice(0, 2));
      }
    },
  );

  it('MPA-7.1.2-12: a partial or corrupt FPDU does not count as validated', () => {
    const octets = octetsOf(figure5);
    const receiver = receiverOf();
    const sink = new RecordingSink();
    receiver.push(octets, 0, 47, sink);
    expect(receiver.validatedCount).toBe(0);
    receiver.push(octets, 47, 48, sink);
    expect(receiver.validatedCount).toBe(1);
    octets[95] = 0;
    receiver.push(octets, 48, 96, sink);
    expect([receiver.validatedCount, receiver.error?.code]).toEqual([1, 2]);
  });

  it('MPA-7.1.2-12: the first FPDU counts while the sink handles it', () => {
    const receiver = receiverOf();
    const counts: number[] = [];
    const sink = {
      handleUlpdu() {
        counts.push(receiver.validatedCount);
        return undefined;
      },
    };
    const octets = octetsOf(figure5);
    receiver.push(octets, 0, octets.length, sink);
    expect(counts).toEqual([1, 2]);
  });

  it.each([false, true])(
    'tells before octets that it handed over change (markers: %s)',
    (markers) => {
      const ulpdus = [700, 30, 1500, 64, 900, 5, 2000].map((length) => patterned(length, length));
      const octets = streamOf(ulpdus, markers);
      for (const step of [1, 7, 100, 513, 1024, octets.length]) {
        const input = new Uint8Array(step);
        const kept: { view: Uint8Array; copy: Uint8Array }[] = [];
        let checked = 0;
        const sink: UlpduSink = {
          handleUlpdu: (where, start, length) => {
            const view = where.subarray(start, start + length);
            kept.push({ view, copy: view.slice() });
            return undefined;
          },
          handleInputEnd: () => {
            for (const { view, copy } of kept.splice(0)) {
              expect(sameOctets(view, copy)).toBe(true);
              checked += 1;
            }
          },
        };
        const receiver = receiverOf({ markers });
        for (let at = 0; at < octets.length; at += step) {
          const part = octets.subarray(at, at + step);
          input.set(part);
          receiver.push(input, 0, part.length, sink);
          expect(kept).toEqual([]);
        }
        expect(checked).toBe(ulpdus.length);
      }
    },
  );

  it('MPA-A.5.2-01: a ULPDU of 128 octets with a marker inside arrives an octet at a time', () => {
    const ulpdus = [...fillerTo(400), patterned(128, 9)];
    const octets = streamOf(ulpdus, true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    for (let at = 0; at < octets.length; at++) receiver.push(octets, at, at + 1, sink);
    expect(sink.ulpdus).toEqual(ulpdus);
  });

  it('MPA-8-02: tells whether a FIN now would cut an FPDU', () => {
    const octets = octetsOf(figure5);
    const receiver = receiverOf();
    const sink = new RecordingSink();
    expect(receiver.midFpdu).toBe(false);
    receiver.push(octets, 0, 1, sink);
    expect(receiver.midFpdu).toBe(true);
    receiver.push(octets, 1, 48, sink);
    expect(receiver.midFpdu).toBe(false);
    receiver.push(octets, 48, 95, sink);
    expect(receiver.midFpdu).toBe(true);
  });

  it('holds a chunk of the pool only while an FPDU is incomplete', () => {
    for (const markers of [false, true]) {
      const pool = dirtyPool();
      const octets = streamOf([patterned(600), patterned(600)], markers);
      const receiver = receiverOf({ pool, markers });
      const sink = new RecordingSink();
      receiver.push(octets, 0, 700, sink);
      expect(pool.inUseCount).toBe(1);
      receiver.push(octets, 700, octets.length, sink);
      expect(pool.inUseCount).toBe(0);
      receiver.push(octets, 0, 3, sink);
      receiver.release();
      expect(pool.inUseCount).toBe(0);
    }
  });

  it('takes the worst case in the smallest chunk: 65535 octets and 130 markers', () => {
    const pool = dirtyPool(66_064);
    const ulpdu = patterned(65535);
    const filler = fillerTo(508);
    const octets = concat(streamOf(filler, true, false), markedByHand(ulpdu, 508));
    const receiver = receiverOf({ pool, markers: true, crcEnabled: false });
    const sink = new RecordingSink();
    receiver.push(octets, 0, octets.length - 1, sink);
    expect(receiver.push(octets, octets.length - 1, octets.length, sink)).toBeUndefined();
    expect(sink.ulpdus[1]).toEqual(ulpdu);
  });
});

/** An FPDU from its length field to PAD, with its CRC added by a sender-independent way. */
function streamOfRaw(covered: Uint8Array): Uint8Array {
  return concat(covered, octetsOf('c74b6748'));
}

/** An FPDU without markers, CRC field 0. */
function plainByHand(ulpdu: Uint8Array): Uint8Array {
  const octets = new Uint8Array(((ulpdu.length + 5) & ~3) + 4);
  octets[0] = ulpdu.length >> 8;
  octets[1] = ulpdu.length & 0xff;
  octets.set(ulpdu, 2);
  return octets;
}

/** The same with markers, one octet after the other. */
function markedByHand(ulpdu: Uint8Array, phase = 0): Uint8Array {
  const octets: number[] = [];
  let header = -1;
  for (const octet of plainByHand(ulpdu)) {
    if ((phase + octets.length) % 512 === 0) {
      const pointer = header < 0 ? 0 : octets.length - header;
      octets.push(0, 0, pointer >> 8, pointer & 0xff);
    }
    if (header < 0) header = octets.length;
    octets.push(octet);
  }
  return Uint8Array.from(octets);
}
