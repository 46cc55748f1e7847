import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import { messageBytes } from '#test/support/rpcrdma-rig';
import {
  headerSizeBytes,
  parseTransportHeader,
  type Segment,
  type TransportHeader,
} from '#verbs-api/rpcrdma/core/transport-header';

const NO_LISTS = { readList: [], writeList: [], replyChunk: undefined };
const WORDS = { xid: 0x1122_3344, credits: 32 };
const WORDS_HEX = '11223344 00000001 00000020';
/** handle, length, offset. */
const H1: Segment = { handle: 0xdead_beef, lengthBytes: 4096, offset: 0x1_0000_0000n };
const H1_HEX = 'deadbeef 00001000 0000000100000000';
const H2: Segment = { handle: 0xffff_ffff, lengthBytes: 1, offset: 0xffff_ffff_ffff_ffffn };
const H2_HEX = 'ffffffff 00000001 ffffffffffffffff';

/** Headers with their bytes, by hand from RFC 8166 §4 and RFC 5666 §4. */
const GOLDEN: readonly (readonly [string, TransportHeader, string])[] = [
  [
    'RDMA_MSG [RPCR-4.1-01, RPCR-4.1-04, RPCR-4.1-08]',
    { type: 'msg', ...WORDS, ...NO_LISTS },
    `${WORDS_HEX} 00000000 00000000 00000000 00000000`,
  ],
  [
    'a read list [RPCR-2-01, RPCR-4.3-01, RPCR-4.3-02, RPCR-4.3-03]',
    {
      type: 'msg',
      ...WORDS,
      ...NO_LISTS,
      readList: [
        { position: 96, ...H1 },
        { position: 96, ...H2 },
      ],
    },
    `${WORDS_HEX} 00000000 00000001 00000060 ${H1_HEX} 00000001 00000060 ${H2_HEX} 00000000 00000000 00000000`,
  ],
  [
    'a write list [RPCR-4.3-04, RPCR-4.3-05]',
    {
      type: 'msg',
      ...WORDS,
      ...NO_LISTS,
      writeList: [
        [H1, H2, H1],
        [H2, H1],
      ],
    },
    `${WORDS_HEX} 00000000 00000000 00000001 00000003 ${H1_HEX} ${H2_HEX} ${H1_HEX} 00000001 00000002 ${H2_HEX} ${H1_HEX} 00000000 00000000`,
  ],
  [
    'RDMA_NOMSG with a reply chunk [RPCR-4.3-06, RPCR-4.1-11]',
    { type: 'nomsg', ...WORDS, ...NO_LISTS, replyChunk: [H1] },
    `${WORDS_HEX} 00000001 00000000 00000000 00000001 00000001 ${H1_HEX}`,
  ],
  [
    'an empty write chunk and an empty reply chunk',
    { type: 'nomsg', ...WORDS, readList: [], writeList: [[]], replyChunk: [] },
    `${WORDS_HEX} 00000001 00000000 00000001 00000000 00000000 00000001 00000000`,
  ],
  [
    'RDMA_MSGP [RPCR-4.1-09]',
    { type: 'msgp', ...WORDS, alignBytes: 4096, thresholdBytes: 512, ...NO_LISTS },
    `${WORDS_HEX} 00000002 00001000 00000200 00000000 00000000 00000000`,
  ],
  ['RDMA_DONE [RPCR-4.1-12, RPCR-4.1-13]', { type: 'done', ...WORDS }, `${WORDS_HEX} 00000003`],
  [
    'RDMA_ERROR for a version [RPCR-4.3-07]',
    {
      type: 'error',
      xid: 0x1122_3344,
      credits: 32,
      version: 7,
      error: { code: 'version', low: 1, high: 1 },
    },
    '11223344 00000007 00000020 00000004 00000001 00000001 00000001',
  ],
  [
    'RDMA_ERROR for chunks',
    { type: 'error', ...WORDS, version: 1, error: { code: 'chunk' } },
    `${WORDS_HEX} 00000004 00000002`,
  ],
  [
    'RDMA_ERROR of a code that RFC 5666 leaves open',
    { type: 'error', ...WORDS, version: 1, error: { code: 'other', number: 9 } },
    `${WORDS_HEX} 00000004 00000009`,
  ],
];

describe('the transport header', () => {
  it.each(GOLDEN)('%s', (_name, header, hex) => {
    const bytes = bytesOf(hex);
    expect(hexOf(messageBytes(header))).toBe(hexOf(bytes));
    expect(parseTransportHeader(bytes)).toEqual({ header, headerBytes: bytes.length });
    const longer = parseTransportHeader(bytesOf(`${hex} 0a0b`));
    expect(longer).toEqual({ header, headerBytes: bytes.length });
  });

  it.each(GOLDEN)('%s: cut at any byte, is refused', (_name, _header, hex) => {
    const bytes = bytesOf(hex);
    for (let length = 0; length < bytes.length; length++) {
      expect(parseTransportHeader(bytes.subarray(0, length))).toHaveProperty('error');
    }
  });

  it('of fewer bytes than its type has is short, not malformed [RPCR2-4.5-01]', () => {
    const faultOf = (hex: string): unknown => {
      const parsed = parseTransportHeader(bytesOf(hex));
      return 'error' in parsed ? parsed.error : 'none';
    };
    expect(faultOf('')).toBe('short');
    expect(faultOf(`${WORDS_HEX} 000000`)).toBe('short');
    expect(faultOf(`${WORDS_HEX} 00000000 00*11`)).toBe('short');
    expect(faultOf(`${WORDS_HEX} 00000002 00*19`)).toBe('short');
    expect(faultOf(`${WORDS_HEX} 00000004 000000`)).toBe('short');
    expect(faultOf(`${WORDS_HEX} 00000005 00*11`)).toBe('short');
    expect(faultOf(`${WORDS_HEX} 00000005 00*12`)).toBe('malformed');
  });

  it('of another version yields XID and version, and nothing more [RPCR-4.1-05, RPCR-4.1-07]', () => {
    const bytes = bytesOf('11223344 00000007 00000020 00000000 ff*12');
    expect(parseTransportHeader(bytes)).toMatchObject({
      error: 'version',
      xid: 0x1122_3344,
      version: 7,
    });
    for (const version of ['00000000', '00000002', 'ffffffff']) {
      const parsed = parseTransportHeader(bytesOf(`11223344 ${version} 00000020 00000000 00*12`));
      expect(parsed).toMatchObject({ error: 'version' });
    }
  });

  it('of an unknown type is malformed [RPCR-4.1-06]', () => {
    for (const type of ['00000005', 'ffffffff']) {
      expect(parseTransportHeader(bytesOf(`${WORDS_HEX} ${type} 00*12`))).toMatchObject({
        error: 'malformed',
      });
    }
  });

  it('has flags that are 0 or 1, and counts that fit [RPCR-4.3-09]', () => {
    const bad = [
      '00000002 00000000 00000000',
      '00000000 00000002 00000000',
      '00000000 00000000 00000002',
      '00000000 00000001 10000000',
      '00000000 00000000 00000001 ffffffff',
      `00000000 00000001 00000002 ${H1_HEX} 00000000 00000000`,
    ];
    for (const lists of bad) {
      const parsed = parseTransportHeader(bytesOf(`${WORDS_HEX} 00000000 ${lists}`));
      expect(parsed).toMatchObject({ error: 'malformed', xid: 0x1122_3344 });
    }
  });
});

const segment = fc.record({
  handle: fc.nat(0xffff_ffff),
  lengthBytes: fc.nat(0xffff_ffff),
  offset: fc.bigInt({ min: 0n, max: 0xffff_ffff_ffff_ffffn }),
});
const words = { xid: fc.nat(0xffff_ffff), credits: fc.nat(0xffff_ffff) };
const lists = {
  readList: fc.array(
    fc
      .record({ position: fc.nat(0xffff_ffff) })
      .chain(({ position }) => segment.map((target) => ({ position, ...target }))),
    { maxLength: 5 },
  ),
  writeList: fc.array(fc.array(segment, { maxLength: 4 }), { maxLength: 4 }),
  replyChunk: fc.option(fc.array(segment, { maxLength: 4 }), { nil: undefined }),
};

/** Any header that can be written. */
const anyHeader: fc.Arbitrary<TransportHeader> = fc.oneof(
  fc.record({ type: fc.constantFrom('msg' as const, 'nomsg' as const), ...words, ...lists }),
  fc.record({
    type: fc.constant('msgp' as const),
    ...words,
    alignBytes: fc.nat(0xffff_ffff),
    thresholdBytes: fc.nat(0xffff_ffff),
    ...lists,
  }),
);

describe('any header', () => {
  it('survives encoding and decoding, and has the size of the formula [RPCR-4.3-08]', () => {
    fc.assert(
      fc.property(anyHeader, (header) => {
        const bytes = messageBytes(header);
        expect(bytes.length).toBe(headerSizeBytes(header));
        expect(parseTransportHeader(bytes)).toEqual({ header, headerBytes: bytes.length });
        if (header.type !== 'msg' && header.type !== 'nomsg') return;
        const writes = header.writeList.reduce((sum, chunk) => sum + 8 + 16 * chunk.length, 0);
        const reply = header.replyChunk === undefined ? 0 : 4 + 16 * header.replyChunk.length;
        expect(bytes.length).toBe(28 + 24 * header.readList.length + writes + reply);
      }),
    );
  });

  it('yields a header or an error, however its bytes are changed [RPCR-4.2-01]', () => {
    fc.assert(
      fc.property(
        anyHeader,
        fc.array(fc.record({ at: fc.nat(400), byte: fc.nat(255) }), { maxLength: 6 }),
        fc.nat(400),
        (header, changes, cutBytes) => {
          const bytes = messageBytes(header);
          for (const { at, byte } of changes) if (at < bytes.length) bytes[at] = byte;
          const parsed = parseTransportHeader(bytes.subarray(0, bytes.length - cutBytes));
          if ('error' in parsed) expect(parsed.text).not.toBe('');
          else expect(parsed.headerBytes).toBeLessThanOrEqual(bytes.length);
        },
      ),
    );
  });

  it('allocates for no more segments than there are bytes', () => {
    // 2^28 segments are claimed in 40 bytes.
    const bytes = bytesOf(`${WORDS_HEX} 00000000 00000000 00000001 10000000 00*12`);
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < 1000; i++) parseTransportHeader(bytes);
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 << 20);
  });
});
