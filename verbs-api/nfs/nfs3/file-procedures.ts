/** Procedures on one file: GETATTR to COMMIT, except those on names (RFC 1813 §3.3). */
import {
  bulk,
  enumeration,
  opaqueFixed,
  optional,
  struct,
  uint32,
  uint64,
} from '#verbs-api/rpcrdma/core/codecs';
import { type Decoded, defineProcedure, type XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { XdrError } from '#verbs-api/rpcrdma/core/xdr-reader';
import {
  ATTRIBUTES_BYTES,
  type Attributes3,
  attributes3,
  directoryEntry,
  type FileHandle3,
  handle3,
  NAME_READ_MAX_BYTES,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  postOpAttributes,
  setAttributes,
  time3,
  WCC_DATA_MAX_BYTES,
  wccData,
} from './attributes.ts';
import { HANDLE_MAX_BYTES, StableHow, VERIFIER_BYTES } from './constants.ts';
import { changeFailure, OBJECT_FAILURE_MAX_BYTES, objectFailure, outcome } from './outcome.ts';

/** Maximum bytes of a path on Linux, for which clients reserve space. */
const PATH_MAX_BYTES = 4096;

/** READ3resok; the length of `data` is its count. */
export interface ReadOk {
  readonly attributes: Attributes3 | undefined;
  readonly eof: boolean;
  readonly data: Uint8Array;
}

/** WRITE3args; the length of `data` is its count. */
export interface WriteArgs {
  readonly file: FileHandle3;
  readonly offset: bigint;
  readonly stable: StableHow;
  readonly data: Uint8Array;
}

const nothing: XdrCodec<undefined> = { encode: () => undefined, decode: () => undefined };
const stableHow = enumeration(Object.values(StableHow), 'stable_how');
const verifier3 = opaqueFixed(VERIFIER_BYTES);
const changed = outcome(changeFailure, changeFailure);

const setattrArgs = struct({
  object: handle3,
  attributes: setAttributes,
  /** Apply only if the file has this ctime. */
  guardCtime: optional(time3),
});
export type SetAttributesArgs = Decoded<typeof setattrArgs>;

/** GETATTR (RFC 1813 §3.3.1). */
export const getattr = defineProcedure({
  number: 1,
  args: handle3,
  result: outcome(attributes3, nothing),
  resultMaxBytes: () => 4 + ATTRIBUTES_BYTES,
  idempotent: true,
});

/** SETATTR (RFC 1813 §3.3.2). */
export const setattr = defineProcedure({
  number: 2,
  args: setattrArgs,
  result: changed,
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** LOOKUP (RFC 1813 §3.3.3). On failure the attributes are the directory's. */
export const lookup = defineProcedure({
  number: 3,
  args: directoryEntry,
  result: outcome(
    struct({
      object: handle3,
      attributes: postOpAttributes,
      directoryAttributes: postOpAttributes,
    }),
    objectFailure,
  ),
  resultMaxBytes: () => 4 + 4 + HANDLE_MAX_BYTES + 2 * POST_OP_ATTRIBUTES_MAX_BYTES,
  idempotent: true,
});

/** ACCESS (RFC 1813 §3.3.4); `access` has bits of `Access3`. */
export const access = defineProcedure({
  number: 4,
  args: struct({ object: handle3, access: uint32 }),
  result: outcome(struct({ attributes: postOpAttributes, access: uint32 }), objectFailure),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 4,
  idempotent: true,
});

// NFSR-5667.4-01, NFSR-8267.4-01
/** READLINK (RFC 1813 §3.3.5). The path may travel as a write chunk. */
export const readlink = defineProcedure({
  number: 5,
  args: handle3,
  result: outcome(
    struct({ attributes: postOpAttributes, path: bulk(NAME_READ_MAX_BYTES) }),
    objectFailure,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 4,
  writeChunks: () => [PATH_MAX_BYTES],
  idempotent: true,
});

const readArgs = struct({ file: handle3, offset: uint64, count: uint32 });
export type ReadArgs = Decoded<typeof readArgs>;

/** READ3resok; the wire format has the count twice. */
const readOk: XdrCodec<ReadOk> = {
  encode(writer, value) {
    postOpAttributes.encode(writer, value.attributes);
    writer.uint32(value.data.length);
    writer.bool(value.eof);
    writer.bulk(value.data);
  },
  decode(reader) {
    const attributes = postOpAttributes.decode(reader);
    const count = reader.uint32();
    const eof = reader.bool();
    const data = reader.bulk(count);
    if (data.length !== count) {
      throw new XdrError(`READ announces ${count} bytes and has ${data.length}`);
    }
    return { attributes, eof, data };
  },
};

// NFSR-5667.4-01, NFSR-8267.4-01
/** READ (RFC 1813 §3.3.6). The data may travel as a write chunk. */
export const read = defineProcedure({
  number: 6,
  args: readArgs,
  result: outcome(readOk, objectFailure),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 12,
  writeChunks: ({ count }) => [count],
  idempotent: true,
});

/** WRITE3args; the wire format has the count twice. */
const writeArgs: XdrCodec<WriteArgs> = {
  encode(writer, value) {
    handle3.encode(writer, value.file);
    writer.uint64(value.offset);
    writer.uint32(value.data.length);
    stableHow.encode(writer, value.stable);
    writer.bulk(value.data);
  },
  decode(reader) {
    const file = handle3.decode(reader);
    const offset = reader.uint64();
    const count = reader.uint32();
    const stable = stableHow.decode(reader);
    const data = reader.bulk(Number.MAX_SAFE_INTEGER);
    if (data.length !== count) {
      throw new XdrError(`WRITE announces ${count} bytes and has ${data.length}`);
    }
    return { file, offset, stable, data };
  },
};

const writeOk = struct({
  wcc: wccData,
  count: uint32,
  committed: stableHow,
  verifier: verifier3,
});
export type WriteOk = Decoded<typeof writeOk>;

// NFSR-5667.4-03, NFSR-8267.4-01
/** WRITE (RFC 1813 §3.3.7). The data may travel as a read chunk. */
export const write = defineProcedure({
  number: 7,
  args: writeArgs,
  result: outcome(writeOk, changeFailure),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES + 8 + VERIFIER_BYTES,
  readChunksMax: 1,
  idempotent: true,
});

/** A count of 0 means to end of file, as in COMMIT3args. */
export type CommitArgs = ReadArgs;
const commitOk = struct({ wcc: wccData, verifier: verifier3 });
export type CommitOk = Decoded<typeof commitOk>;

/** COMMIT (RFC 1813 §3.3.21). */
export const commit = defineProcedure({
  number: 21,
  args: readArgs,
  result: outcome(commitOk, changeFailure),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES + VERIFIER_BYTES,
  idempotent: true,
});
