/** XDR types composed of smaller ones: written, read and rejected values. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { bytesOf, hexOf } from '#test/support/hex';
import {
  array,
  bool,
  bulk,
  chain,
  enumeration,
  opaque,
  opaqueFixed,
  optional,
  struct,
  uint32,
  uint64,
} from '#verbs-api/rpcrdma/core/codecs';
import type { XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { XdrError, XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import { emitPayload, XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

function written<T>(type: XdrCodec<T>, value: T): Uint8Array {
  const writer = new XdrWriter();
  type.encode(writer, value);
  const payload = writer.payload();
  const bytes = new Uint8Array(payload.lengthBytes);
  emitPayload(payload, bytes, 0);
  return bytes;
}

function taken<T>(type: XdrCodec<T>, bytes: Uint8Array): T {
  const reader = new XdrReader(bytes);
  const value = type.decode(reader);
  reader.finish();
  return value;
}

interface Everything {
  readonly last: bigint;
  readonly flag: boolean;
  readonly kind: 3 | 7;
  readonly verifier: Uint8Array;
  readonly name: Uint8Array;
  readonly data: Uint8Array;
  readonly maybe: { readonly word: number } | undefined;
  readonly words: readonly number[];
  readonly names: readonly Uint8Array[];
}

const everything = struct<Everything>({
  flag: bool,
  kind: enumeration([3, 7], 'kind'),
  verifier: opaqueFixed(8),
  name: opaque(20),
  data: bulk(20),
  maybe: optional(struct<{ readonly word: number }>({ word: uint32 })),
  words: array(4, uint32),
  names: chain(4, opaque(5)),
  last: uint64,
});

const bytes = (maxLength: number) => fc.uint8Array({ maxLength });
const arbitrary: fc.Arbitrary<Everything> = fc.record({
  flag: fc.boolean(),
  kind: fc.constantFrom(3 as const, 7 as const),
  verifier: fc.uint8Array({ minLength: 8, maxLength: 8 }),
  name: bytes(20),
  data: bytes(20),
  maybe: fc.option(fc.record({ word: fc.nat() }), { nil: undefined }),
  words: fc.array(fc.nat(0xffff_ffff), { maxLength: 4 }),
  names: fc.array(bytes(5), { maxLength: 4 }),
  last: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
});

describe('a description', () => {
  it('writes its fields in the order of the description, whatever the order of the value', () => {
    const pair = struct<{ readonly first: number; readonly second: boolean }>({
      first: uint32,
      second: bool,
    });
    expect(hexOf(written(pair, { second: true, first: 5 }))).toBe('0000000500000001');
    expect(taken(pair, bytesOf('00000009 00000000'))).toEqual({ first: 9, second: false });
  });

  it('reads its own output', () => {
    fc.assert(
      fc.property(arbitrary, (value) => {
        const back = taken(everything, written(everything, value));
        // Views and arrays of bytes are compared by their content.
        expect(flatten(back)).toEqual(flatten(value));
      }),
    );
  });

  it('refuses truncated input', () => {
    fc.assert(
      fc.property(arbitrary, (value) => {
        const whole = written(everything, value);
        for (let length = 0; length < whole.length; length++) {
          expect(() => taken(everything, whole.subarray(0, length))).toThrow(XdrError);
        }
      }),
      { numRuns: 20 },
    );
  });

  it.each([
    ['a number that is no value', enumeration([3, 7], 'kind'), '00000004', '4 is not a kind'],
    ['more bytes than it takes', opaque(3), '00000004 61626364', 'exceeds 3'],
    ['more elements than it takes', array(1, uint32), '00000002 00*8', 'exceeds 1'],
    ['a longer list than it takes', chain(1, uint32), '00000001 00*4 00000001 00*4 00*4', 'than 1'],
  ] as const)('refuses %s', (_what, type, hex, text) => {
    expect(() => taken<unknown>(type, bytesOf(hex))).toThrow(text);
  });
});

function flatten(value: Everything): unknown {
  const { verifier, name, data, names } = value;
  return {
    ...value,
    verifier: hexOf(verifier),
    name: hexOf(name),
    data: hexOf(data),
    names: names.map((each) => hexOf(each)),
  };
}
