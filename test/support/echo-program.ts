/** A program with every kind of argument and result, for tests of RPC over RDMA. */
import { defineProcedure, defineProgram, voidCodec } from '#verbs-api/rpcrdma/core/program';
import type { XdrReader } from '#verbs-api/rpcrdma/core/xdr-reader';
import type { XdrWriter } from '#verbs-api/rpcrdma/core/xdr-writer';

/** Maximum bytes of an item. */
export const BULK_MAX_BYTES = 4 << 20;

const countCodec = {
  encode: (writer: XdrWriter, count: number) => writer.uint32(count),
  decode: (reader: XdrReader) => reader.uint32(),
};
const plainCodec = {
  encode: (writer: XdrWriter, bytes: Uint8Array) => writer.opaque(bytes),
  decode: (reader: XdrReader) => reader.opaque(BULK_MAX_BYTES),
};

/** Arguments with an eligible item between others. */
interface StoreArgs {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly mode: number;
}

/** Only procedures that the tests need. */
export const ECHO = defineProgram({
  name: 'echo',
  number: 0x2000_0001,
  version: 1,
  procedures: {
    NULL: defineProcedure({
      number: 0,
      args: voidCodec,
      result: voidCodec,
      resultMaxBytes: () => 0,
      idempotent: true,
    }),
    /** Returns `count` bytes, perhaps in a write chunk. */
    FETCH: defineProcedure({
      number: 1,
      args: countCodec,
      result: {
        encode: (writer: XdrWriter, bytes: Uint8Array) => {
          writer.bool(true);
          writer.bulk(bytes);
        },
        decode: (reader) => {
          reader.bool();
          return reader.bulk(BULK_MAX_BYTES);
        },
      },
      resultMaxBytes: () => 8,
      writeChunks: (count: number) => [count],
      idempotent: true,
    }),
    /** Takes bytes, perhaps in a read chunk; returns their sum. */
    STORE: defineProcedure({
      number: 2,
      args: {
        encode: (writer: XdrWriter, args: StoreArgs) => {
          writer.string(args.name);
          writer.bulk(args.bytes);
          writer.uint32(args.mode);
        },
        decode: (reader: XdrReader): StoreArgs => ({
          name: reader.string(255),
          bytes: reader.bulk(BULK_MAX_BYTES),
          mode: reader.uint32(),
        }),
      },
      result: countCodec,
      resultMaxBytes: () => 4,
      readChunksMax: 1,
    }),
    /** Returns its argument, all of it in the stream. */
    MIRROR: defineProcedure({
      number: 3,
      args: plainCodec,
      result: plainCodec,
      resultMaxBytes: (bytes: Uint8Array) => 8 + bytes.length,
      idempotent: true,
    }),
    /** Returns two items, each perhaps in its own write chunk. */
    SPLIT: defineProcedure({
      number: 4,
      args: {
        encode: (writer: XdrWriter, args: { bytes: Uint8Array; at: number }) => {
          writer.bulk(args.bytes);
          writer.uint32(args.at);
        },
        decode: (reader: XdrReader) => ({
          bytes: reader.bulk(BULK_MAX_BYTES),
          at: reader.uint32(),
        }),
      },
      result: {
        encode: (writer: XdrWriter, halves: readonly [Uint8Array, Uint8Array]) => {
          writer.bulk(halves[0]);
          writer.bulk(halves[1]);
        },
        decode: (reader: XdrReader): readonly [Uint8Array, Uint8Array] => [
          reader.bulk(BULK_MAX_BYTES),
          reader.bulk(BULK_MAX_BYTES),
        ],
      },
      resultMaxBytes: () => 8,
      readChunksMax: 1,
      writeChunks: (args) => [args.at, args.bytes.length - args.at],
      idempotent: true,
    }),
    /** Not offered by any server. */
    MISSING: defineProcedure({
      number: 5,
      args: voidCodec,
      result: voidCodec,
      resultMaxBytes: () => 0,
    }),
  },
});

/** The sum of bytes, modulo 2^32. */
export function sumOf(bytes: Uint8Array): number {
  let sum = 0;
  for (const byte of bytes) sum = (sum + byte) >>> 0;
  return sum;
}
