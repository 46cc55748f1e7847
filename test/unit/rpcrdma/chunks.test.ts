import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  chunkLengthBytes,
  fillChunk,
  ReadChunkSource,
  readChunksOf,
  returnedLengthBytes,
  segmentsOf,
  unusedChunk,
  WriteChunkSource,
} from '../../../verbs-api/rpcrdma/core/chunks.ts';
import type { Segment } from '../../../verbs-api/rpcrdma/core/transport-header.ts';
import { XdrError, XdrReader } from '../../../verbs-api/rpcrdma/core/xdr-reader.ts';
import { octetsOf } from '../../support/hex.ts';

const LIMITS = { segmentsMax: 4, readBytesMax: 1000 };

function segment(lengthBytes: number, handle = 1): Segment {
  return { handle, lengthBytes, offset: 0n };
}

function read(...entries: readonly (readonly [position: number, lengthBytes: number])[]) {
  return readChunksOf(
    entries.map(([position, lengthBytes], i) => ({ position, ...segment(lengthBytes, i) })),
    LIMITS,
  );
}

describe('a read list', () => {
  it('RPCR-3.4-09, RPCR2-3.4.5-02, RPCR2-3.4.4-01: joins segments of one position in list order', () => {
    const chunks = read([96, 10], [96, 0], [96, 6], [120, 4]);
    if (typeof chunks === 'string') throw new Error(chunks);
    expect(chunks.map(({ position, lengthBytes }) => [position, lengthBytes])).toEqual([
      [96, 16],
      [120, 4],
    ]);
    expect(chunks[0]?.segments.map(({ handle }) => handle)).toEqual([0, 1, 2]);
  });

  it('RPCR2-3.4.5-01: has positions at multiples of 4', () => {
    for (const position of [1, 98, 99]) expect(read([position, 4])).toBeTypeOf('string');
    expect(read([100, 3])).not.toBeTypeOf('string');
  });

  it('goes forward: positions that are out of order, come back or overlap are refused', () => {
    const bad: readonly (readonly (readonly [number, number])[])[] = [
      [
        [100, 4],
        [96, 4],
      ],
      [
        [96, 4],
        [100, 4],
        [96, 4],
      ],
      [
        [96, 8],
        [100, 4],
      ],
      [
        [96, 9],
        [104, 4],
      ],
      [
        [96, 4],
        [0, 4],
      ],
      [
        [0, 4],
        [96, 4],
        [0, 4],
      ],
    ];
    for (const list of bad) expect(read(...list)).toBeTypeOf('string');
    expect(read([96, 8], [104, 4])).not.toBeTypeOf('string');
  });

  it('lets a position-zero chunk hold more than is before the next one', () => {
    expect(read([0, 500], [96, 4])).not.toBeTypeOf('string');
  });

  it('is bounded in segments and octets', () => {
    expect(read(...Array.from({ length: 4 }, () => [96, 1] as const))).not.toBeTypeOf('string');
    expect(read(...Array.from({ length: 5 }, () => [96, 1] as const))).toBeTypeOf('string');
    expect(read([96, 600], [1000, 400])).not.toBeTypeOf('string');
    expect(read([96, 600], [1000, 401])).toBeTypeOf('string');
    expect(read([96, 0xffff_ffff])).toBeTypeOf('string');
  });
});

describe('arguments in read chunks', () => {
  /** A count word at 96, then what follows the item. */
  function decode(count: number, moved: Uint8Array, rest = ''): { item: Uint8Array; end: number } {
    const stream = octetsOf(`${count.toString(16).padStart(8, '0')} ${rest}`);
    const source = new ReadChunkSource([{ position: 100, octets: moved }]);
    const reader = new XdrReader(stream, source, 96);
    const item = reader.bulk(1000);
    const end = reader.position;
    if (rest !== '') expect(reader.uint32()).toBe(7);
    reader.finish();
    return { item, end };
  }

  it('RPCR-3.4-07, RPCR-3.7-01, RPCR-3.7-04: are as long as the count, or rounded up', () => {
    const five = Uint8Array.of(1, 2, 3, 4, 5);
    expect(decode(5, five)).toEqual({ item: five, end: 108 });
    const rounded = Uint8Array.of(1, 2, 3, 4, 5, 0xff, 0xfe, 0xfd);
    expect([...decode(5, rounded).item]).toEqual([1, 2, 3, 4, 5]);
    for (const lengthBytes of [0, 4, 6, 7, 9, 12]) {
      expect(() => decode(5, new Uint8Array(lengthBytes))).toThrow(XdrError);
    }
  });

  it('RPCR-3.7-02: count roundup in the position of what follows, sent or not', () => {
    const chunks = [
      { position: 96, octets: Uint8Array.of(1, 2, 3, 4, 5) },
      { position: 104, octets: Uint8Array.of(9, 9, 9, 9) },
    ];
    const adjacent = new XdrReader(new Uint8Array(0), new ReadChunkSource(chunks), 96);
    expect([...adjacent.bulkFixed(5), ...adjacent.bulkFixed(4)]).toEqual([
      1, 2, 3, 4, 5, 9, 9, 9, 9,
    ]);
    adjacent.finish();
    const apart = [chunks[0], { position: 108, octets: Uint8Array.of(9) }];
    const source = new ReadChunkSource(apart.flatMap((chunk) => (chunk ? [chunk] : [])));
    const reader = new XdrReader(octetsOf('00000001'), source, 96);
    expect([...reader.bulkFixed(5), ...reader.bulk(4)]).toEqual([1, 2, 3, 4, 5, 9]);
    reader.finish();
  });

  it('are followed by the rest of the stream', () => {
    expect(decode(5, new Uint8Array(5), '00000007').end).toBe(108);
  });

  it('RPCR2-6.1-01: that no eligible item takes are an error', () => {
    const source = new ReadChunkSource([{ position: 4, octets: Uint8Array.of(0x61) }]);
    const name = new XdrReader(octetsOf('00000001 61000000'), source);
    expect(name.string(9)).toBe('a');
    expect(() => name.finish()).toThrow(XdrError);
    const limited = new XdrReader(octetsOf('00000001'), source);
    limited.limitBulk(0);
    expect(() => limited.bulk(9)).toThrow(XdrError);
  });
});

describe('data over a write chunk', () => {
  const chunk = [segment(4096, 1), segment(4096, 2), segment(4096, 3)];

  it('RPCR-3.6-02, RPCR-3.7-06, RPCR2-3.4.6-02, NFSR-5667.3-03: fills one segment after the other', () => {
    const lengthsOf = (lengthBytes: number): unknown =>
      fillChunk(chunk, lengthBytes)?.returned.map((each) => each.lengthBytes);
    expect(lengthsOf(5000)).toEqual([4096, 904, 0]);
    expect(lengthsOf(4097)).toEqual([4096, 1, 0]);
    expect(lengthsOf(4096)).toEqual([4096, 0, 0]);
    expect(lengthsOf(0)).toEqual([0, 0, 0]);
    expect(fillChunk(chunk, 5000)?.writes).toEqual([
      { handle: 1, offset: 0n, start: 0, lengthBytes: 4096 },
      { handle: 2, offset: 0n, start: 4096, lengthBytes: 904 },
    ]);
  });

  it('does not go past the end', () => {
    expect(fillChunk(chunk, 3 * 4096)).toBeDefined();
    expect(fillChunk(chunk, 3 * 4096 + 1)).toBeUndefined();
    expect(fillChunk([], 1)).toBeUndefined();
  });

  it('RPCR2-4.3.2.2-01: that has no result comes back with the same segments, all of length 0', () => {
    expect(unusedChunk(chunk)).toEqual(chunk.map((each) => ({ ...each, lengthBytes: 0 })));
  });

  it('is known again when it comes back', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(100), { minLength: 1, maxLength: 6 }),
        fc.nat(600),
        (lengths, dataBytes) => {
          const offered = lengths.map((lengthBytes, i) => segment(lengthBytes, i));
          const filled = fillChunk(offered, dataBytes);
          if (dataBytes > chunkLengthBytes(offered)) {
            expect(filled).toBeUndefined();
            return;
          }
          expect(returnedLengthBytes(offered, filled?.returned ?? [])).toBe(dataBytes);
        },
      ),
    );
  });

  it('is refused when it is not what was offered', () => {
    const lengths = (...each: readonly number[]): Segment[] =>
      each.map((lengthBytes, i) => segment(lengthBytes, i + 1));
    expect(returnedLengthBytes(chunk, lengths(4096, 4, 0))).toBe(4100);
    expect(returnedLengthBytes(chunk, lengths(4097, 0, 0))).toBeUndefined();
    expect(returnedLengthBytes(chunk, lengths(4096, 0))).toBeUndefined();
    expect(returnedLengthBytes(chunk, lengths(4095, 1, 0))).toBeUndefined();
    expect(returnedLengthBytes(chunk, [segment(1, 9), ...lengths(0, 0)])).toBeUndefined();
    const moved = [{ ...segment(1, 1), offset: 1n }, segment(0, 2), segment(0, 3)];
    expect(returnedLengthBytes(chunk, moved)).toBeUndefined();
  });
});

describe('results in write chunks', () => {
  const five = Uint8Array.of(1, 2, 3, 4, 5);

  it('RPCR-3.6-03: take one chunk each, in order', () => {
    const source = new WriteChunkSource([five, undefined, five.subarray(0, 1)]);
    const reader = new XdrReader(octetsOf('00000005 00000001 61000000 00000001'), source);
    expect([...reader.bulk(5)]).toEqual([...five]);
    expect([...reader.bulk(5)]).toEqual([0x61]);
    expect([...reader.bulk(5)]).toEqual([1]);
    reader.finish();
  });

  it('RPCR-3.6-05: are the memory that they were placed in', () => {
    const reader = new XdrReader(octetsOf('00000005'), new WriteChunkSource([five]));
    expect(reader.bulk(5).buffer).toBe(five.buffer);
  });

  it('RPCR-3.7-05, RPCR-3.4-11: are as long as the count or rounded up, and end there', () => {
    const eight = Uint8Array.of(1, 2, 3, 4, 5, 9, 9, 9);
    const reader = new XdrReader(octetsOf('00000005'), new WriteChunkSource([eight]));
    expect([...reader.bulk(5)]).toEqual([1, 2, 3, 4, 5]);
    for (const lengthBytes of [0, 4, 6, 9]) {
      const source = new WriteChunkSource([new Uint8Array(lengthBytes)]);
      expect(() => new XdrReader(octetsOf('00000005'), source).bulk(5)).toThrow(XdrError);
    }
  });

  it('RPCR2-6.1-02: that stayed inline beside their chunk, or moved without one, are an error', () => {
    const inline = new XdrReader(
      octetsOf('00000001 61000000'),
      new WriteChunkSource([new Uint8Array(0)]),
    );
    expect(() => inline.bulk(5)).toThrow(XdrError);
    const unasked = new XdrReader(octetsOf('00000001'), new WriteChunkSource([five]));
    unasked.uint32();
    expect(() => unasked.finish()).toThrow(XdrError);
  });
});

it('RPCR-3.4-08: memory is told in segments of any bound, each with handle, length and offset', () => {
  const memory = { handle: 7, lengthBytes: 10, offset: 0xffff_ffff_0000_0000n };
  expect(segmentsOf(memory, 4)).toEqual([
    { handle: 7, lengthBytes: 4, offset: 0xffff_ffff_0000_0000n },
    { handle: 7, lengthBytes: 4, offset: 0xffff_ffff_0000_0004n },
    { handle: 7, lengthBytes: 2, offset: 0xffff_ffff_0000_0008n },
  ]);
  expect(segmentsOf({ ...memory, lengthBytes: 0 }, 4)).toEqual([]);
});
