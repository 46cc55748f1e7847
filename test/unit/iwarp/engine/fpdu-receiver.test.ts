import { describe, expect, it } from 'vitest';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import type { FpduReceiver } from '#daemon/iwarp/engine/fpdu-receiver';
import type { UlpduSink } from '#daemon/iwarp/engine/lower-layer';
import { markerPhase } from '#daemon/iwarp/wire/marker';
import {
  dirtyPool,
  type FpduVector,
  fillerTo,
  RecordingSink,
  receiverOf,
  streamOf,
} from '#test/support/fpdu-stream';
import { bytesOf, concat, hexOf } from '#test/support/hex';
import { pattern } from '#test/support/pattern';
import { readVectors } from '#test/support/vectors';

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
  return bytesOf(`002a 4143 00*4 00000000 00000002 00000000 ${marker} 00*24 ${crc}`);
}

function pushAll(receiver: FpduReceiver, bytes: Uint8Array, sink = new RecordingSink()) {
  return { error: receiver.push(bytes, 0, bytes.length, sink), sink };
}

/** A receiver of marked FPDUs at stream position `phase`. */
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

/** Compares long arrays, for which a diff would be no help. */
function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}

describe('FPDU receiver, golden', () => {
  it.each([...vectors.valid, ...vectors.tolerated])('$id: $source, whole and byte by byte', (v) => {
    const bytes = bytesOf(v.bytes);
    const whole = pushAll(receiverFor(v), bytes);
    expect(whole.error).toBeUndefined();
    expect(whole.sink.hex).toEqual([hexOf(bytesOf(v.ulpdu))]);
    const receiver = receiverFor(v);
    const sink = new RecordingSink();
    for (let at = 0; at < bytes.length; at++) {
      expect(sink.ulpdus).toHaveLength(0);
      expect(receiver.push(bytes, at, at + 1, sink)).toBeUndefined();
    }
    expect(sink.hex).toEqual(whole.sink.hex);
  });

  it.each(vectors.invalid)('$id: $source, error code $code and no delivery', (v) => {
    const bytes = bytesOf(v.bytes);
    const { error, sink } = pushAll(receiverFor(v), bytes);
    expect([error?.layer, error?.etype, error?.code]).toEqual([2, 0, v.code]);
    expect(sink.ulpdus).toHaveLength(0);
    const receiver = receiverFor(v);
    for (let at = 0; at < bytes.length; at++) receiver.push(bytes, at, at + 1, sink);
    expect(receiver.error?.code).toBe(v.code);
    expect(sink.ulpdus).toHaveLength(0);
  });
});

describe('FPDU receiver', () => {
  it('a validated FPDU is passed on once, with its length [MPA-3-09]', () => {
    const { sink } = pushAll(receiverOf(), bytesOf(figure5));
    expect(sink.ulpdus.map((ulpdu) => ulpdu.length)).toEqual([42, 42]);
    expect(sink.hex[0]?.startsWith('4143')).toBe(true);
  });

  it('delivers a whole FPDU in place, without a copy or a buffer', () => {
    const pool = dirtyPool();
    const bytes = bytesOf(`a5a5a5 ${figure5} a5`);
    const places: (Uint8Array | number)[] = [];
    const sink = {
      handleUlpdu(where: Uint8Array, start: number) {
        places.push(where, start);
        return undefined;
      },
    };
    expect(receiverOf({ pool }).push(bytes, 3, bytes.length - 1, sink)).toBeUndefined();
    expect(places).toEqual([bytes, 5, bytes, 53]);
    expect(pool.inUseCount).toBe(0);
  });

  it('a ULPDU of length 0 is passed up, and the stream advances by 8 bytes [MPA-3-07]', () => {
    const empty = streamOfRaw(bytesOf('0000 0000'));
    const { error, sink } = pushAll(receiverOf(), concat(empty, bytesOf(figure5)));
    expect(error).toBeUndefined();
    expect(sink.ulpdus.map((ulpdu) => ulpdu.length)).toEqual([0, 42, 42]);
  });

  it.each([
    [64768, false],
    [65535, false],
    [64769, true],
    [65535, true],
  ])('ULPDU_Length %i is delivered whole (markers: %s) [MPA-3-08]', (length, markers) => {
    const ulpdu = pattern(length);
    const bytes = markers ? markedByHand(ulpdu) : plainByHand(ulpdu);
    const sink = new RecordingSink();
    const receiver = receiverOf({ markers, crcEnabled: false });
    const cut = 40_001;
    expect(receiver.push(bytes, 0, cut, sink)).toBeUndefined();
    expect(receiver.push(bytes, cut, bytes.length, sink)).toBeUndefined();
    expect(sink.ulpdus).toHaveLength(1);
    expect(sink.ulpdus[0]).toEqual(ulpdu);
    expect(receiver.midFpdu).toBe(false);
  });

  it('with CRCs off the field may hold anything, and is still four bytes [MPA-4.1-06]', () => {
    const bytes = bytesOf(
      `002a 4143 00*4 00000000 00000001 00000000 00*24 deadbeef ${figure5.slice(0, 80)}`,
    );
    const { error, sink } = pushAll(receiverOf({ crcEnabled: false }), bytes);
    expect(error).toBeUndefined();
    expect(sink.ulpdus.map((ulpdu) => ulpdu.length)[0]).toBe(42);
  });

  it('with CRCs off the very first FPDU is taken with CRC 0 [MPA-4.4-06, MPA-7.1.1-09]', () => {
    const bytes = bytesOf('002a 4143 00*4 00000000 00000001 00000000 00*24 00000000');
    expect(pushAll(receiverOf({ crcEnabled: false }), bytes).sink.ulpdus).toHaveLength(1);
  });

  it('with CRCs on a flipped bit is caught after 1000 FPDUs too [MPA-4.4-05]', () => {
    const ulpdus = Array.from({ length: 1001 }, (_, i) => pattern(40, i));
    const bytes = streamOf(ulpdus, false);
    const last = bytes.length - 20;
    bytes[last] = (bytes[last] ?? 0) ^ 1;
    const { error, sink } = pushAll(receiverOf(), bytes);
    expect(error?.code).toBe(2);
    expect(sink.ulpdus).toHaveLength(1000);
  });

  it('any flipped bit of figure 5 but those of the length is code 2 [MPA-4.4-16, MPA-6-01]', () => {
    const good = bytesOf('00000000 002a 4143 00*4 00000000 00000001 00000000 00*24 52239983');
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

  it('a lowered ULPDU_Length ends the stream at that FPDU [MPA-6-02]', () => {
    const ulpdus = [pattern(40, 1), pattern(40, 2), pattern(40, 3)];
    const bytes = streamOf(ulpdus, false);
    bytes[49] = 36;
    const { error, sink } = pushAll(receiverOf(), bytes);
    expect(error?.code).toBe(2);
    expect(sink.ulpdus).toEqual(ulpdus.slice(0, 1));
  });

  it('a raised ULPDU_Length waits for that many bytes, then is code 2 [MPA-6-02]', () => {
    const bytes = streamOf([pattern(40, 1), pattern(40, 2)], false);
    bytes[1] = 60;
    const receiver = receiverOf();
    const sink = new RecordingSink();
    expect(receiver.push(bytes, 0, 67, sink)).toBeUndefined();
    expect(receiver.midFpdu).toBe(true);
    expect(receiver.push(bytes, 67, 68, sink)?.code).toBe(2);
    expect(sink.ulpdus).toHaveLength(0);
  });

  it.each([true, false])(
    'nothing is forwarded before the last CRC byte (CRC: %s) [MPA-6-03]',
    (crcEnabled) => {
      const bytes = bytesOf(figure5).subarray(0, 48);
      const receiver = receiverOf({ crcEnabled });
      const sink = new RecordingSink();
      expect(receiver.push(bytes, 0, 47, sink)).toBeUndefined();
      expect(sink.ulpdus).toHaveLength(0);
      expect(receiver.push(bytes, 47, 48, sink)).toBeUndefined();
      expect(sink.ulpdus).toHaveLength(1);
    },
  );

  it('cut at every byte offset, a stream gives the same ULPDUs [MPA-5.1-05]', () => {
    for (const markers of [false, true]) {
      const ulpdus = [1, 2, 3, 500, 1442].map((length) => pattern(length, length));
      const bytes = streamOf(ulpdus, markers);
      for (let cut = 0; cut <= bytes.length; cut++) {
        const receiver = receiverOf({ markers });
        const sink = new RecordingSink();
        receiver.push(bytes, 0, cut, sink);
        receiver.push(bytes, cut, bytes.length, sink);
        if (sink.ulpdus.length !== 5 || receiver.midFpdu) expect.fail(`cut at ${cut}`);
        expect(sink.hex).toEqual(ulpdus.map(hexOf));
      }
    }
  });

  it('keeps no reference to the pushed bytes: they may be overwritten between calls', () => {
    const ulpdus = [pattern(300, 1), pattern(300, 2)];
    const bytes = streamOf(ulpdus, true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    const shared = new Uint8Array(100);
    for (let at = 0; at < bytes.length; at += 100) {
      const size = Math.min(100, bytes.length - at);
      shared.fill(0xee);
      shared.set(bytes.subarray(at, at + size));
      expect(receiver.push(shared, 0, size, sink)).toBeUndefined();
    }
    expect(sink.ulpdus).toEqual(ulpdus);
  });

  it('does not modify the pushed bytes, markers included', () => {
    const bytes = streamOf([pattern(2000)], true);
    const before = hexOf(bytes);
    pushAll(receiverOf({ markers: true }), bytes);
    expect(hexOf(bytes)).toBe(before);
  });

  it('only ULPDU bytes come out of a marked stream [MPA-4.3-13]', () => {
    const ulpdus = [1, 2, 3, 500, 1442].map((length) => pattern(length, length));
    const { error, sink } = pushAll(receiverOf({ markers: true }), streamOf(ulpdus, true));
    expect(error).toBeUndefined();
    expect(sink.hex).toEqual(ulpdus.map(hexOf));
  });

  it('figure 6 comes out without its marker [MPA-4.3-13]', () => {
    const { sink } = pushAll(receiverAt(492), figure6('00000014', '84925898'));
    expect(sink.hex).toEqual([figure6Ulpdu]);
  });

  it('a lone marker at an FPDU boundary is an incomplete FPDU, not an error [MPA-4.3-14]', () => {
    const bytes = streamOf([pattern(502), pattern(42)], true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    expect(receiver.push(bytes, 0, 512, sink)).toBeUndefined();
    expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([1, false]);
    expect(receiver.push(bytes, 512, 516, sink)).toBeUndefined();
    expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([1, true]);
    expect(receiver.push(bytes, 516, bytes.length, sink)).toBeUndefined();
    expect([sink.ulpdus.length, receiver.midFpdu]).toEqual([2, false]);
  });

  it('marker checking can be turned off [MPA-5.2-01]', () => {
    const wrong = figure6('00000018', 'e996c154');
    expect(pushAll(receiverAt(492), wrong).error?.code).toBe(3);
    expect(pushAll(receiverAt(492, { markersChecked: false }), wrong).sink.hex).toEqual([
      figure6Ulpdu,
    ]);
  });

  it('after an error nothing is delivered, in the same push or a later one [MPA-8-07]', () => {
    const [a, b, c] = [pattern(40, 1), pattern(40, 2), pattern(40, 3)];
    const bytes = streamOf([a, b, c], false);
    bytes[60] = (bytes[60] ?? 0) ^ 1;
    const receiver = receiverOf();
    const sink = new RecordingSink();
    const first = receiver.push(bytes, 0, bytes.length, sink);
    expect(first?.code).toBe(2);
    expect(receiver.push(bytes, 96, 144, sink)).toBe(first);
    expect(receiver.error).toBe(first);
    expect(sink.ulpdus).toEqual([a]);
  });

  it.each([false, true])(
    'nor after a corrupt FPDU that came in two parts (markers: %s) [MPA-8-07]',
    (markers) => {
      const pool = dirtyPool();
      const bytes = streamOf([pattern(40, 1), pattern(40, 2), pattern(40, 3)], markers);
      bytes[20] = (bytes[20] ?? 0) ^ 1;
      const receiver = receiverOf({ pool, markers });
      const sink = new RecordingSink();
      receiver.push(bytes, 0, 30, sink);
      expect(receiver.push(bytes, 30, bytes.length - 3, sink)?.code).toBe(2);
      expect(sink.ulpdus).toHaveLength(0);
      expect([receiver.midFpdu, pool.inUseCount]).toEqual([false, 0]);
    },
  );

  it('nothing is held after a corrupt FPDU [MPA-8-07]', () => {
    const pool = dirtyPool();
    const bytes = streamOf([pattern(40, 1), pattern(40, 2)], false);
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    const receiver = receiverOf({ pool });
    const { error } = pushAll(receiver, bytes.subarray(0, 90));
    expect(error?.code).toBe(2);
    expect([receiver.midFpdu, pool.inUseCount]).toEqual([false, 0]);
  });

  it.each([false, true])(
    'an error of the sink ends the input likewise (markers: %s) [MPA-8-07]',
    (markers) => {
      const ulpdus = [pattern(40, 1), pattern(600, 2), pattern(40, 3)];
      const bytes = streamOf(ulpdus, markers);
      for (const step of [bytes.length, 7]) {
        const receiver = receiverOf({ markers });
        const sink = new RecordingSink(1);
        for (let at = 0; at < bytes.length; at += step) {
          receiver.push(bytes, at, Math.min(at + step, bytes.length), sink);
        }
        expect(receiver.error?.code).toBe(5);
        expect(sink.ulpdus).toEqual(ulpdus.slice(0, 2));
      }
    },
  );

  it('a partial or corrupt FPDU does not count as validated [MPA-7.1.2-12]', () => {
    const bytes = bytesOf(figure5);
    const receiver = receiverOf();
    const sink = new RecordingSink();
    receiver.push(bytes, 0, 47, sink);
    expect(receiver.validatedCount).toBe(0);
    receiver.push(bytes, 47, 48, sink);
    expect(receiver.validatedCount).toBe(1);
    bytes[95] = 0;
    receiver.push(bytes, 48, 96, sink);
    expect([receiver.validatedCount, receiver.error?.code]).toEqual([1, 2]);
  });

  it('the first FPDU counts while the sink handles it [MPA-7.1.2-12]', () => {
    const receiver = receiverOf();
    const counts: number[] = [];
    const sink = {
      handleUlpdu() {
        counts.push(receiver.validatedCount);
        return undefined;
      },
    };
    const bytes = bytesOf(figure5);
    receiver.push(bytes, 0, bytes.length, sink);
    expect(counts).toEqual([1, 2]);
  });

  it.each([false, true])('notifies before delivered bytes change (markers: %s)', (markers) => {
    const ulpdus = [700, 30, 1500, 64, 900, 5, 2000].map((length) => pattern(length, length));
    const bytes = streamOf(ulpdus, markers);
    for (const step of [1, 7, 100, 513, 1024, bytes.length]) {
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
            expect(sameBytes(view, copy)).toBe(true);
            checked += 1;
          }
        },
      };
      const receiver = receiverOf({ markers });
      for (let at = 0; at < bytes.length; at += step) {
        const part = bytes.subarray(at, at + step);
        input.set(part);
        receiver.push(input, 0, part.length, sink);
        expect(kept).toEqual([]);
      }
      expect(checked).toBe(ulpdus.length);
    }
  });

  it('a ULPDU of 128 bytes with a marker inside arrives a byte at a time [MPA-A.5.2-01]', () => {
    const ulpdus = [...fillerTo(400), pattern(128, 9)];
    const bytes = streamOf(ulpdus, true);
    const receiver = receiverOf({ markers: true });
    const sink = new RecordingSink();
    for (let at = 0; at < bytes.length; at++) receiver.push(bytes, at, at + 1, sink);
    expect(sink.ulpdus).toEqual(ulpdus);
  });

  it('reports whether a FIN now would cut an FPDU [MPA-8-02]', () => {
    const bytes = bytesOf(figure5);
    const receiver = receiverOf();
    const sink = new RecordingSink();
    expect(receiver.midFpdu).toBe(false);
    receiver.push(bytes, 0, 1, sink);
    expect(receiver.midFpdu).toBe(true);
    receiver.push(bytes, 1, 48, sink);
    expect(receiver.midFpdu).toBe(false);
    receiver.push(bytes, 48, 95, sink);
    expect(receiver.midFpdu).toBe(true);
  });

  it('holds a chunk of the pool only while an FPDU is incomplete', () => {
    for (const markers of [false, true]) {
      const pool = dirtyPool();
      const bytes = streamOf([pattern(30_000), pattern(30_000)], markers);
      const receiver = receiverOf({ pool, markers });
      const sink = new RecordingSink();
      receiver.push(bytes, 0, 55_000, sink);
      expect(pool.inUseCount).toBe(1);
      receiver.push(bytes, 55_000, bytes.length, sink);
      expect(pool.inUseCount).toBe(0);
      receiver.push(bytes, 0, 3, sink);
      receiver.release();
      expect(pool.inUseCount).toBe(0);
    }
  });

  it('takes the worst case in the smallest chunk: 65535 bytes and 130 markers', () => {
    const pool = dirtyPool(66_064);
    const ulpdu = pattern(65535);
    const filler = fillerTo(508);
    const bytes = concat(streamOf(filler, true, false), markedByHand(ulpdu, 508));
    const receiver = receiverOf({ pool, markers: true, crcEnabled: false });
    const sink = new RecordingSink();
    receiver.push(bytes, 0, bytes.length - 1, sink);
    expect(receiver.push(bytes, bytes.length - 1, bytes.length, sink)).toBeUndefined();
    expect(sink.ulpdus[1]).toEqual(ulpdu);
  });
});

/** An FPDU from its length field to PAD, with a CRC computed without the sender. */
function streamOfRaw(covered: Uint8Array): Uint8Array {
  return concat(covered, bytesOf('c74b6748'));
}

/** An FPDU without markers, CRC field 0. */
function plainByHand(ulpdu: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(((ulpdu.length + 5) & ~3) + 4);
  bytes[0] = ulpdu.length >> 8;
  bytes[1] = ulpdu.length & 0xff;
  bytes.set(ulpdu, 2);
  return bytes;
}

/** An FPDU with markers, built byte by byte. */
function markedByHand(ulpdu: Uint8Array, phase = 0): Uint8Array {
  const bytes: number[] = [];
  let header = -1;
  for (const byte of plainByHand(ulpdu)) {
    if ((phase + bytes.length) % 512 === 0) {
      const pointer = header < 0 ? 0 : bytes.length - header;
      bytes.push(0, 0, pointer >> 8, pointer & 0xff);
    }
    if (header < 0) header = bytes.length;
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

/** Keeps views of received bytes, as kept writes do, and checks them when the input ends. */
class KeepingSink implements UlpduSink {
  readonly hex: string[] = [];
  readonly #views: Uint8Array[] = [];

  handleUlpdu(bytes: Uint8Array, start: number, length: number): undefined {
    this.#views.push(bytes.subarray(start, start + length));
  }

  handleInputEnd(): void {
    this.hex.push(...this.#views.splice(0).map(hexOf));
  }
}

/** A pool that overwrites each chunk that it takes back. */
class PoisonPool extends ChunkPool {
  override release(chunk: Uint8Array): void {
    chunk.fill(0xdd);
    super.release(chunk);
  }
}

describe('the buffer of a partial FPDU', () => {
  it.each([false, true])(
    'is unchanged until the input ends, wherever it was cut (markers: %s) [MPA-5.1-05]',
    (markers) => {
      const ulpdus = [pattern(40_000, 1), pattern(300, 2), pattern(20_000, 3)];
      const bytes = streamOf(ulpdus, markers);
      for (const cut of [1, 2, 600, 17_000, 39_999, 40_100, 50_000, bytes.length - 1]) {
        const receiver = receiverOf({ markers, pool: new PoisonPool() });
        const sink = new KeepingSink();
        receiver.push(bytes.slice(0, cut), 0, cut, sink);
        receiver.push(bytes.slice(cut), 0, bytes.length - cut, sink);
        if (sink.hex.join() !== ulpdus.map(hexOf).join()) expect.fail(`cut at ${cut}`);
      }
    },
  );

  it('is small while little has arrived: silent peers do not pin chunks', () => {
    const pool = dirtyPool();
    const bytes = streamOf([pattern(60_000)], false);
    for (const count of [1, 2, 100, 16_000]) {
      const receiver = receiverOf({ pool });
      receiver.push(bytes, 0, count, new RecordingSink());
      expect([receiver.held.length, pool.inUseCount]).toEqual([count, 0]);
    }
    const receiver = receiverOf({ pool });
    const sink = new RecordingSink();
    for (let at = 0; at < bytes.length; at += 1000) {
      receiver.push(bytes, at, Math.min(at + 1000, bytes.length), sink);
    }
    expect(sink.ulpdus).toEqual([pattern(60_000)]);
    expect([receiver.held.length, pool.inUseCount]).toEqual([0, 0]);
  });
});
