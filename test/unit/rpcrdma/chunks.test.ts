import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOf } from '#test/support/hex';
import {
  fillChunk,
  ReadChunkSource,
  readChunksOf,
  returnedLengthBytes,
  segmentsOf,
  unusedChunk,
  WriteChunkSource,
} from '#verbs-api/rpcrdma/core/chunks';
import type { Segment } from '#verbs-api/rpcrdma/core/transport-header';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';

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
  it('joins segments of one position in list order [RPCR-3.4-09, RPCR2-3.4.5-02, RPCR2-3.4.4-01]', () => {
    const chunks = read([96, 10], [96, 0], [96, 6], [120, 4]);
    if (typeof chunks === 'string') throw new Error(chunks);
    expect(chunks.map(({ position, lengthBytes }) => [position, lengthBytes])).toEqual([
      [96, 16],
      [120, 4],
    ]);
    expect(chunks[0]?.segments.map(({ handle }) => handle)).toEqual([0, 1, 2]);
  });

  it('has positions at multiples of 4 [RPCR2-3.4.5-01]', () => {
    for (const position of [1, 98, 99]) expect(read([position, 4])).toBeTypeOf('string');
    expect(read([100, 3])).not.toBeTypeOf('string');
  });

  it('goes forward: positions that are out of order, come back or overlap are refused', () => {
    expect(read([100, 4], [96, 4])).toBeTypeOf('string');
    expect(read([96, 4], [100, 4], [96, 4])).toBeTypeOf('string');
    expect(read([96, 8], [100, 4])).toBeTypeOf('string');
    expect(read([96, 9], [104, 4])).toBeTypeOf('string');
    expect(read([96, 4], [0, 4])).toBeTypeOf('string');
    expect(read([0, 4], [96, 4], [0, 4])).toBeTypeOf('string');
    expect(read([96, 8], [104, 4])).not.toBeTypeOf('string');
  });

  it('allows a position-zero chunk to hold more than precedes the next one', () => {
    expect(read([0, 500], [96, 4])).not.toBeTypeOf('string');
  });

  it('is limited in segments and bytes', () => {
    expect(read(...Array.from({ length: 4 }, () => [96, 1] as const))).not.toBeTypeOf('string');
    expect(read(...Array.from({ length: 5 }, () => [96, 1] as const))).toBeTypeOf('string');
    expect(read([96, 600], [1000, 400])).not.toBeTypeOf('string');
    expect(read([96, 600], [1000, 401])).toBeTypeOf('string');
    expect(read([96, 0xffff_ffff])).toBeTypeOf('string');
  });
});

describe('arguments in read chunks', () => {
  /** A count word at 96, then the bytes after the item. */
  function decode(count: number, moved: Uint8Array, rest = ''): { item: Uint8Array; end: number } {
    const stream = bytesOf(`${count.toString(16).padStart(8, '0')} ${rest}`);
    const source = new ReadChunkSource([{ position: 100, bytes: moved }]);
    const reader = new XdrReader(stream, source, 96);
    const item = reader.bulk(1000);
    const end = reader.position;
    if (rest !== '') expect(reader.uint32()).toBe(7);
    reader.finish();
    return { item, end };
  }

  it('are as long as the count, or rounded up [RPCR-3.4-07, RPCR-3.7-01, RPCR-3.7-04]', () => {
    const five = Uint8Array.of(1, 2, 3, 4, 5);
    expect(decode(5, five)).toEqual({ item: five, end: 108 });
    const rounded = Uint8Array.of(1, 2, 3, 4, 5, 0xff, 0xfe, 0xfd);
    expect([...decode(5, rounded).item]).toEqual([1, 2, 3, 4, 5]);
    for (const lengthBytes of [0, 4, 6, 7, 9, 12]) {
      expect(() => decode(5, new Uint8Array(lengthBytes))).toThrow(XdrError);
    }
  });

  it('count roundup in the position of what follows, sent or not [RPCR-3.7-02]', () => {
    const chunks = [
      { position: 96, bytes: Uint8Array.of(1, 2, 3, 4, 5) },
      { position: 104, bytes: Uint8Array.of(9, 9, 9, 9) },
    ];
    const adjacent = new XdrReader(new Uint8Array(0), new ReadChunkSource(chunks), 96);
    expect([...adjacent.bulkFixed(5), ...adjacent.bulkFixed(4)]).toEqual([
      1, 2, 3, 4, 5, 9, 9, 9, 9,
    ]);
    adjacent.finish();
    const apart = [chunks[0], { position: 108, bytes: Uint8Array.of(9) }];
    const source = new ReadChunkSource(apart.flatMap((chunk) => (chunk ? [chunk] : [])));
    const reader = new XdrReader(bytesOf('00000001'), source, 96);
    expect([...reader.bulkFixed(5), ...reader.bulk(4)]).toEqual([1, 2, 3, 4, 5, 9]);
    reader.finish();
  });

  it('are followed by the rest of the stream', () => {
    expect(decode(5, new Uint8Array(5), '00000007').end).toBe(108);
  });

  it('that no eligible item matches are an error [RPCR2-6.1-01]', () => {
    const source = new ReadChunkSource([{ position: 4, bytes: Uint8Array.of(0x61) }]);
    const name = new XdrReader(bytesOf('00000001 61000000'), source);
    expect(name.string(9)).toBe('a');
    expect(() => name.finish()).toThrow(XdrError);
    const limited = new XdrReader(bytesOf('00000001'), source);
    limited.limitBulk(0);
    expect(() => limited.bulk(9)).toThrow(XdrError);
  });
});

describe('data over a write chunk', () => {
  const chunk = [segment(4096, 1), segment(4096, 2), segment(4096, 3)];

  it('fills one segment after the other [RPCR-3.6-02, RPCR-3.7-06, RPCR2-3.4.6-02, NFSR-5667.3-03]', () => {
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

  it('that has no result comes back with the same segments, all of length 0 [RPCR2-4.3.2.2-01]', () => {
    expect(unusedChunk(chunk)).toEqual(chunk.map((each) => ({ ...each, lengthBytes: 0 })));
  });

  it('is recognised when it comes back', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(100), { minLength: 1, maxLength: 6 }),
        fc.nat(600),
        (lengths, dataBytes) => {
          const offered = lengths.map((lengthBytes, i) => segment(lengthBytes, i));
          const filled = fillChunk(offered, dataBytes);
          if (dataBytes > lengths.reduce((sum, length) => sum + length, 0)) {
            expect(filled).toBeUndefined();
            return;
          }
          expect(returnedLengthBytes(offered, filled?.returned ?? [])).toBe(dataBytes);
        },
      ),
    );
  });

  it('is refused when it differs from the offer', () => {
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

  it('take one chunk each, in order [RPCR-3.6-03]', () => {
    const source = new WriteChunkSource([five, undefined, five.subarray(0, 1)]);
    const reader = new XdrReader(bytesOf('00000005 00000001 61000000 00000001'), source);
    expect([...reader.bulk(5)]).toEqual([...five]);
    expect([...reader.bulk(5)]).toEqual([0x61]);
    expect([...reader.bulk(5)]).toEqual([1]);
    reader.finish();
  });

  it('are the memory that they were placed in [RPCR-3.6-05]', () => {
    const reader = new XdrReader(bytesOf('00000005'), new WriteChunkSource([five]));
    expect(reader.bulk(5).buffer).toBe(five.buffer);
  });

  it('are as long as the count or rounded up, and end there [RPCR-3.7-05, RPCR-3.4-11]', () => {
    const eight = Uint8Array.of(1, 2, 3, 4, 5, 9, 9, 9);
    const reader = new XdrReader(bytesOf('00000005'), new WriteChunkSource([eight]));
    expect([...reader.bulk(5)]).toEqual([1, 2, 3, 4, 5]);
    for (const lengthBytes of [0, 4, 6, 9]) {
      const source = new WriteChunkSource([new Uint8Array(lengthBytes)]);
      expect(() => new XdrReader(bytesOf('00000005'), source).bulk(5)).toThrow(XdrError);
    }
  });

  it('that stayed inline beside their chunk, or moved without one, are an error [RPCR2-6.1-02]', () => {
    const inline = new XdrReader(
      bytesOf('00000001 61000000'),
      new WriteChunkSource([new Uint8Array(0)]),
    );
    expect(() => inline.bulk(5)).toThrow(XdrError);
    const unasked = new XdrReader(bytesOf('00000001'), new WriteChunkSource([five]));
    unasked.uint32();
    expect(() => unasked.finish()).toThrow(XdrError);
  });
});

it('memory is listed in segments of any limit, each with handle, length and offset [RPCR-3.4-08]', () => {
  const memory = { handle: 7, lengthBytes: 10, offset: 0xffff_ffff_0000_0000n };
  expect(segmentsOf(memory, 4)).toEqual([
    { handle: 7, lengthBytes: 4, offset: 0xffff_ffff_0000_0000n },
    { handle: 7, lengthBytes: 4, offset: 0xffff_ffff_0000_0004n },
    { handle: 7, lengthBytes: 2, offset: 0xffff_ffff_0000_0008n },
  ]);
  expect(segmentsOf({ ...memory, lengthBytes: 0 }, 4)).toEqual([]);
});
