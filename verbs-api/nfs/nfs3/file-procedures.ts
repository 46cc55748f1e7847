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
import { defineProcedure, type XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { XdrError } from '#verbs-api/rpcrdma/core/xdr-reader';
import {
  ATTRIBUTES_BYTES,
  type Attributes3,
  attributes3,
  type DirectoryEntry3,
  directoryEntry,
  type FileHandle3,
  handle3,
  NAME_READ_MAX_BYTES,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  postOpAttributes,
  type SetAttributes3,
  setAttributes,
  type Time3,
  time3,
  WCC_DATA_MAX_BYTES,
  type WccData3,
  wccData,
} from './attributes.ts';
import { HANDLE_MAX_BYTES, StableHow, VERIFIER_BYTES } from './constants.ts';
import {
  type ChangeFailure,
  changeFailure,
  OBJECT_FAILURE_MAX_BYTES,
  type ObjectFailure,
  type Outcome3,
  objectFailure,
  outcome,
} from './outcome.ts';

/** Maximum bytes of a path on Linux, for which clients reserve space. */
const PATH_MAX_BYTES = 4096;

/** SETATTR3args. */
export interface SetAttributesArgs {
  readonly object: FileHandle3;
  readonly attributes: SetAttributes3;
  /** Apply only if the file has this ctime. */
  readonly guardCtime: Time3 | undefined;
}

/** LOOKUP3resok. */
export interface LookupOk {
  readonly object: FileHandle3;
  readonly attributes: Attributes3 | undefined;
  readonly directoryAttributes: Attributes3 | undefined;
}

/** ACCESS3args; `access` has bits of `Access3`. */
export interface AccessArgs {
  readonly object: FileHandle3;
  readonly access: number;
}

/** ACCESS3resok; `access` has the granted bits. */
export interface AccessOk {
  readonly attributes: Attributes3 | undefined;
  readonly access: number;
}

/** READLINK3resok. */
export interface ReadLinkOk {
  readonly attributes: Attributes3 | undefined;
  readonly path: Uint8Array;
}

/** READ3args; `count` in bytes. */
export interface ReadArgs {
  readonly file: FileHandle3;
  readonly offset: bigint;
  readonly count: number;
}

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

/** WRITE3resok; `count` in bytes. */
export interface WriteOk {
  readonly wcc: WccData3;
  readonly count: number;
  readonly committed: StableHow;
  readonly verifier: Uint8Array;
}

/** COMMIT3args; a count of 0 means to end of file. */
export interface CommitArgs {
  readonly file: FileHandle3;
  readonly offset: bigint;
  readonly count: number;
}

/** COMMIT3resok. */
export interface CommitOk {
  readonly wcc: WccData3;
  readonly verifier: Uint8Array;
}

const nothing: XdrCodec<undefined> = { encode: () => undefined, decode: () => undefined };
const stableHow = enumeration(Object.values(StableHow), 'stable_how');
const verifier3 = opaqueFixed(VERIFIER_BYTES);
const changed = outcome(changeFailure, changeFailure);

/** GETATTR (RFC 1813 §3.3.1). */
export const getattr = defineProcedure<FileHandle3, Outcome3<Attributes3, undefined>>({
  number: 1,
  args: handle3,
  result: outcome(attributes3, nothing),
  resultMaxBytes: () => 4 + ATTRIBUTES_BYTES,
  idempotent: true,
});

/** SETATTR (RFC 1813 §3.3.2). */
export const setattr = defineProcedure<SetAttributesArgs, Outcome3<ChangeFailure, ChangeFailure>>({
  number: 2,
  args: struct<SetAttributesArgs>({
    object: handle3,
    attributes: setAttributes,
    guardCtime: optional(time3),
  }),
  result: changed,
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** LOOKUP (RFC 1813 §3.3.3). On failure the attributes are the directory's. */
export const lookup = defineProcedure<DirectoryEntry3, Outcome3<LookupOk, ObjectFailure>>({
  number: 3,
  args: directoryEntry,
  result: outcome(
    struct<LookupOk>({
      object: handle3,
      attributes: postOpAttributes,
      directoryAttributes: postOpAttributes,
    }),
    objectFailure,
  ),
  resultMaxBytes: () => 4 + 4 + HANDLE_MAX_BYTES + 2 * POST_OP_ATTRIBUTES_MAX_BYTES,
  idempotent: true,
});

/** ACCESS (RFC 1813 §3.3.4). */
export const access = defineProcedure<AccessArgs, Outcome3<AccessOk, ObjectFailure>>({
  number: 4,
  args: struct<AccessArgs>({ object: handle3, access: uint32 }),
  result: outcome(
    struct<AccessOk>({ attributes: postOpAttributes, access: uint32 }),
    objectFailure,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 4,
  idempotent: true,
});

// NFSR-5667.4-01, NFSR-8267.4-01
/** READLINK (RFC 1813 §3.3.5). The path may travel as a write chunk. */
export const readlink = defineProcedure<FileHandle3, Outcome3<ReadLinkOk, ObjectFailure>>({
  number: 5,
  args: handle3,
  result: outcome(
    struct<ReadLinkOk>({ attributes: postOpAttributes, path: bulk(NAME_READ_MAX_BYTES) }),
    objectFailure,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 4,
  writeChunks: () => [PATH_MAX_BYTES],
  idempotent: true,
});

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
export const read = defineProcedure<ReadArgs, Outcome3<ReadOk, ObjectFailure>>({
  number: 6,
  args: struct<ReadArgs>({ file: handle3, offset: uint64, count: uint32 }),
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

// NFSR-5667.4-03, NFSR-8267.4-01
/** WRITE (RFC 1813 §3.3.7). The data may travel as a read chunk. */
export const write = defineProcedure<WriteArgs, Outcome3<WriteOk, ChangeFailure>>({
  number: 7,
  args: writeArgs,
  result: outcome(
    struct<WriteOk>({ wcc: wccData, count: uint32, committed: stableHow, verifier: verifier3 }),
    changeFailure,
  ),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES + 8 + VERIFIER_BYTES,
  readChunksMax: 1,
  idempotent: true,
});

/** COMMIT (RFC 1813 §3.3.21). */
export const commit = defineProcedure<CommitArgs, Outcome3<CommitOk, ChangeFailure>>({
  number: 21,
  args: struct<CommitArgs>({ file: handle3, offset: uint64, count: uint32 }),
  result: outcome(struct<CommitOk>({ wcc: wccData, verifier: verifier3 }), changeFailure),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES + VERIFIER_BYTES,
  idempotent: true,
});
