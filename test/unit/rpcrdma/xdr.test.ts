import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import { roundup, XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { emitPayload, XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

function written(write: (writer: XdrWriter) => void): string {
  const writer = new XdrWriter();
  write(writer);
  return hexOf(writer.payload().stream);
}

function reader(hex: string): XdrReader {
  return new XdrReader(bytesOf(hex));
}

/** Values with their bytes, by hand from RFC 4506. */
const VALUES: readonly (readonly [
  type: string,
  bytes: string,
  value: unknown,
  write: (writer: XdrWriter) => void,
  read: (reader: XdrReader) => unknown,
])[] = [
  ['int', 'ff ff ff fe', -2, (w) => w.int32(-2), (r) => r.int32()],
  ['unsigned int', 'ff ff ff fe', 0xffff_fffe, (w) => w.uint32(0xffff_fffe), (r) => r.uint32()],
  ['bool', '00 00 00 01', true, (w) => w.bool(true), (r) => r.bool()],
  ['hyper', 'ff ff ff ff ff ff ff fd', -3n, (w) => w.int64(-3), (r) => r.int64()],
  [
    'unsigned hyper',
    '01 02 03 04 05 06 07 08',
    0x0102_0304_0506_0708n,
    (w) => w.uint64(0x0102_0304_0506_0708n),
    (r) => r.uint64(),
  ],
  ['float', '3f c0 00 00', 1.5, (w) => w.float32(1.5), (r) => r.float32()],
  ['double', 'c0 04 00 00 00 00 00 00', -2.5, (w) => w.float64(-2.5), (r) => r.float64()],
  [
    'opaque[5]',
    '01 02 03 04 05 00 00 00',
    Uint8Array.of(1, 2, 3, 4, 5),
    (w) => w.opaqueFixed(Uint8Array.of(1, 2, 3, 4, 5)),
    (r) => r.opaqueFixed(5),
  ],
  [
    'opaque<>',
    '00 00 00 03 0a 0b 0c 00',
    Uint8Array.of(10, 11, 12),
    (w) => w.opaque(Uint8Array.of(10, 11, 12)),
    (r) => r.opaque(3),
  ],
  ['string<>', '00 00 00 03 61 c3 a9 00', 'aé', (w) => w.string('aé'), (r) => r.string(3)],
  [
    'array<>',
    '00 00 00 02 00 00 00 07 00 00 00 08',
    [7, 8],
    (w) => w.array([7, 8], (each, element) => each.uint32(element)),
    (r) => r.array(2, (each) => each.uint32()),
  ],
  [
    'optional, present',
    '00 00 00 01 00 00 00 09',
    9,
    (w) => w.optional(9, (each, element) => each.uint32(element)),
    (r) => r.optional((each) => each.uint32()),
  ],
  [
    'optional, absent',
    '00 00 00 00',
    undefined,
    (w) => w.optional<number>(undefined, (each, element) => each.uint32(element)),
    (r) => r.optional((each) => each.uint32()),
  ],
  [
    'linked list',
    '00 00 00 01 00 00 00 05 00 00 00 01 00 00 00 06 00 00 00 00',
    [5, 6],
    (w) => w.chain([5, 6], (each, element) => each.uint32(element)),
    (r) => r.chain(2, (each) => each.uint32()),
  ],
];

describe('XDR', () => {
  it.each(VALUES)('writes and reads %s', (_type, bytes, value, write, read) => {
    expect(written(write)).toBe(bytes.replaceAll(' ', ''));
    const from = reader(bytes);
    expect(read(from)).toEqual(value);
    from.finish();
  });

  it.each(VALUES)('reports %s cut at any byte', (_type, bytes, _value, _write, read) => {
    const whole = bytesOf(bytes);
    for (let length = 0; length < whole.length; length++) {
      expect(() => read(new XdrReader(whole.subarray(0, length)))).toThrow(XdrError);
    }
  });

  it('accepts neither 2 for a boolean, nor counts above the limit, nor broken UTF-8', () => {
    expect(() => reader('00 00 00 02').bool()).toThrow(XdrError);
    expect(() => reader('00 00 00 04 00 00 00 00').opaque(3)).toThrow(XdrError);
    expect(() => reader('00 00 00 01 ff 00 00 00').string(9)).toThrow(XdrError);
    const endless = '00 00 00 01 00 00 00 01 00 00 00 01';
    expect(() => reader(endless).chain(2, () => 0)).toThrow(XdrError);
  });

  it('ignores the bytes of roundup, but not leftover bytes', () => {
    const from = reader('00 00 00 01 61 ff fe fd');
    expect(from.string(1)).toBe('a');
    from.finish();
    expect(() => reader('00 00 00 00').finish()).toThrow(XdrError);
  });

  it('reads without a copy', () => {
    const bytes = bytesOf('00 00 00 02 01 02 00 00');
    const view = new XdrReader(bytes).opaque(2);
    bytes[4] = 9;
    expect([...view]).toEqual([9, 2]);
  });

  it('restarts in the same memory, whatever it contained', () => {
    const writer = new XdrWriter();
    writer.opaqueFixed(new Uint8Array(2000).fill(0xff));
    writer.reset();
    writer.opaque(Uint8Array.of(1));
    expect(hexOf(writer.payload().stream)).toBe('0000000101000000');
  });
});

describe('bulk items', () => {
  const bytes = Uint8Array.of(1, 2, 3, 4, 5);

  it('leave the stream with their roundup, and keep their count in it [RPCR2-3.4.4.4-01]', () => {
    const writer = new XdrWriter();
    writer.uint32(0xaa);
    writer.bulk(bytes);
    writer.uint32(0xbb);
    const { stream, items, lengthBytes } = writer.payload();
    expect(hexOf(stream)).toBe('000000aa00000005000000bb');
    expect(items).toEqual([{ at: 8, position: 8, bytes }]);
    expect(lengthBytes).toBe(20);
  });

  it('have positions in the unreduced stream [RPCR2-3.4.5-01]', () => {
    const writer = new XdrWriter();
    writer.bulk(bytes);
    writer.bulk(bytes);
    // 4 of the count, 5 of the item, 3 of its roundup, 4 of the next count.
    expect(writer.payload().items.map(({ position }) => position)).toEqual([4, 16]);
    expect(writer.payload().items.map(({ at }) => at)).toEqual([4, 8]);
  });

  it('of an array are the elements, together with their own counts [RPCR2-3.4.4.1-01]', () => {
    const writer = new XdrWriter();
    writer.bulkArray([bytes, bytes.subarray(0, 1)], (each, element) => each.opaque(element));
    const { stream, items } = writer.payload();
    expect(hexOf(stream)).toBe('00000002');
    const [item] = items;
    expect(hexOf(item?.bytes ?? bytes)).toBe('000000050102030405000000' + '0000000101000000');
    const taken = new XdrReader(stream, {
      take: (position) => (position === 4 ? item?.bytes : undefined),
      finish: () => undefined,
    });
    expect(taken.bulkArray(2, (each) => [...each.opaque(5)])).toEqual([[1, 2, 3, 4, 5], [1]]);
    expect(taken.position).toBe(24);
  });

  it('that are optional leave their presence word [RPCR2-3.4.4.2-01]', () => {
    const optional = (value: Uint8Array | undefined): string =>
      written((writer) => writer.optional(value, (each, item) => each.bulkFixed(item)));
    expect(optional(bytes)).toBe('00000001');
    expect(optional(undefined)).toBe('00000000');
  });

  it('are bytes or arrays, so no union can be one, but an arm can [RPCR2-3.4.4.3-01]', () => {
    const writer = new XdrWriter();
    const arm = { status: 0, bytes };
    writer.uint32(arm.status);
    if (arm.status === 0) writer.bulk(arm.bytes);
    expect(hexOf(writer.payload().stream)).toBe('0000000000000005');
  });

  it('beyond those that the binding allows stay in the stream [RPCR-3.4-01]', () => {
    const writer = new XdrWriter();
    writer.limitBulk(1);
    writer.bulk(bytes);
    writer.bulk(bytes);
    const { stream, items } = writer.payload();
    expect(hexOf(stream)).toBe('00000005' + '000000050102030405000000');
    expect(items).toHaveLength(1);
  });

  it('go back into their places in the stream', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 20 })), (parts) => {
        const moved = new XdrWriter();
        const plain = new XdrWriter();
        for (const part of parts) {
          moved.bulk(part);
          moved.uint32(part.length);
          plain.opaque(part);
          plain.uint32(part.length);
        }
        const payload = moved.payload();
        const whole = new Uint8Array(payload.lengthBytes).fill(0xa5);
        emitPayload(payload, whole, 0);
        expect(hexOf(whole)).toBe(hexOf(plain.payload().stream));
      }),
    );
  });
});

describe('padding of RDMA_MSGP', () => {
  const bytes = Uint8Array.from({ length: 8 }, (_, i) => i);

  it('precedes opaque items that exceed the threshold, and is skipped [RPCR-3.9-02, RPCR-3.9-03]', () => {
    const padding = { alignBytes: 16, thresholdBytes: 4 };
    const writer = new XdrWriter();
    writer.pad(padding);
    writer.opaque(bytes.subarray(0, 3));
    writer.opaque(bytes);
    writer.opaque(bytes.subarray(0, 4));
    const { stream } = writer.payload();
    // The count of the second item ends at 12; its content starts at 16.
    expect(hexOf(stream)).toBe(
      '0000000300010200' + '0000000800000000' + '0001020304050607' + '0000000400010203',
    );
    const from = new XdrReader(stream);
    from.expectPadding(padding);
    expect([...from.opaque(8)]).toEqual([0, 1, 2]);
    expect([...from.opaque(8)]).toEqual([...bytes]);
    expect([...from.opaque(8)]).toEqual([0, 1, 2, 3]);
    from.finish();
  });

  it('is an error when it passes the end', () => {
    const from = new XdrReader(Uint8Array.of(0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8));
    from.expectPadding({ alignBytes: 4096, thresholdBytes: 4 });
    expect(() => from.opaque(8)).toThrow(XdrError);
  });

  it('comes back for every alignment and position [RPCR-3.9-04]', () => {
    fc.assert(
      fc.property(
        fc.nat(70),
        fc.nat(40),
        fc.nat(30),
        fc.array(fc.uint8Array({ maxLength: 40 })),
        (alignBytes, thresholdBytes, words, items) => {
          const padding = { alignBytes, thresholdBytes };
          const writer = new XdrWriter();
          writer.pad(padding);
          for (let i = 0; i < words; i++) writer.uint32(i);
          for (const item of items) writer.bulk(item);
          const { stream } = writer.payload();
          expect(writer.payload().items).toEqual([]);
          const from = new XdrReader(stream);
          from.expectPadding(padding);
          for (let i = 0; i < words; i++) from.uint32();
          for (const item of items) expect(from.bulk(40)).toEqual(item);
          from.finish();
        },
      ),
    );
  });
});

it('rounds up to a multiple of 4', () => {
  expect([0, 1, 3, 4, 5].map(roundup)).toEqual([0, 4, 4, 4, 8]);
});
