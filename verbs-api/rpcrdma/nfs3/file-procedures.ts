/** Procedures on one file: GETATTR to COMMIT without those on names (RFC 1813 §3.3). */
import { defineProcedure, type XdrCodec } from '../core/program.ts';
import { XdrError } from '../core/xdr-reader.ts';
import {
  ATTRIBUTES_BYTES,
  type Attributes3,
  type DirectoryEntry3,
  type FileHandle3,
  NAME_READ_MAX_BYTES,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  readAttributes,
  readDirectoryEntry,
  readHandle,
  readPostOpAttributes,
  readSetAttributes,
  readTime,
  readWccData,
  type SetAttributes3,
  type Time3,
  WCC_DATA_MAX_BYTES,
  type WccData3,
  writeAttributes,
  writeDirectoryEntry,
  writeHandle,
  writePostOpAttributes,
  writeSetAttributes,
  writeTime,
  writeWccData,
} from './attributes.ts';
import { HANDLE_MAX_BYTES, StableHow, VERIFIER_BYTES } from './constants.ts';
import {
  type ChangeFailure,
  changeFailureCodec,
  OBJECT_FAILURE_MAX_BYTES,
  type ObjectFailure,
  type Outcome3,
  objectFailureCodec,
  outcomeCodec,
} from './outcome.ts';

/** Octets of a path at most, as Linux has it: what a client makes room for. */
export const PATH_MAX_BYTES = 4096;

/** SETATTR3args. */
export interface SetAttributesArgs {
  readonly object: FileHandle3;
  readonly attributes: SetAttributes3;
  /** Do it only if this is the object's ctime. */
  readonly guardCtime: Time3 | undefined;
}

/** LOOKUP3resok. */
export interface LookupOk {
  readonly object: FileHandle3;
  readonly attributes: Attributes3 | undefined;
  readonly directoryAttributes: Attributes3 | undefined;
}

/** ACCESS3args; `access` holds bits of `Access3`. */
export interface AccessArgs {
  readonly object: FileHandle3;
  readonly access: number;
}

/** ACCESS3resok; `access` holds the bits that are granted. */
export interface AccessOk {
  readonly attributes: Attributes3 | undefined;
  readonly access: number;
}

/** READLINK3resok. */
export interface ReadLinkOk {
  readonly attributes: Attributes3 | undefined;
  readonly path: Uint8Array;
}

/** READ3args; `count` in octets. */
export interface ReadArgs {
  readonly file: FileHandle3;
  readonly offset: bigint;
  readonly count: number;
}

/** READ3resok; its count is the length of `data`. */
export interface ReadOk {
  readonly attributes: Attributes3 | undefined;
  readonly eof: boolean;
  readonly data: Uint8Array;
}

/** WRITE3args; its count is the length of `data`. */
export interface WriteArgs {
  readonly file: FileHandle3;
  readonly offset: bigint;
  readonly stable: StableHow;
  readonly data: Uint8Array;
}

/** WRITE3resok; `count` in octets. */
export interface WriteOk {
  readonly wcc: WccData3;
  readonly count: number;
  readonly committed: StableHow;
  readonly verifier: Uint8Array;
}

/** COMMIT3args; a count of 0 means to the end of the file. */
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

const nothingCodec: XdrCodec<undefined> = { encode: () => undefined, decode: () => undefined };

/** An argument that is a file handle and nothing else. */
export const handleCodec: XdrCodec<FileHandle3> = { encode: writeHandle, decode: readHandle };

function readStableHow(value: number): StableHow {
  for (const how of Object.values(StableHow)) if (how === value) return how;
  throw new XdrError(`${value} is no way to be stable`);
}

/** GETATTR (RFC 1813 §3.3.1). */
export const getattr = defineProcedure<FileHandle3, Outcome3<Attributes3, undefined>>({
  number: 1,
  args: handleCodec,
  result: outcomeCodec({ encode: writeAttributes, decode: readAttributes }, nothingCodec),
  resultMaxBytes: () => 4 + ATTRIBUTES_BYTES,
  idempotent: true,
});

/** SETATTR (RFC 1813 §3.3.2). */
export const setattr = defineProcedure<SetAttributesArgs, Outcome3<ChangeFailure, ChangeFailure>>({
  number: 2,
  args: {
    encode(writer, { object, attributes, guardCtime }) {
      writeHandle(writer, object);
      writeSetAttributes(writer, attributes);
      writer.optional(guardCtime, writeTime);
    },
    decode: (reader) => ({
      object: readHandle(reader),
      attributes: readSetAttributes(reader),
      guardCtime: reader.optional(readTime),
    }),
  },
  result: outcomeCodec(changeFailureCodec, changeFailureCodec),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** LOOKUP (RFC 1813 §3.3.3). On failure the attributes are the directory's. */
export const lookup = defineProcedure<DirectoryEntry3, Outcome3<LookupOk, ObjectFailure>>({
  number: 3,
  args: { encode: writeDirectoryEntry, decode: readDirectoryEntry },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writeHandle(writer, value.object);
        writePostOpAttributes(writer, value.attributes);
        writePostOpAttributes(writer, value.directoryAttributes);
      },
      decode: (reader) => ({
        object: readHandle(reader),
        attributes: readPostOpAttributes(reader),
        directoryAttributes: readPostOpAttributes(reader),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => 4 + 4 + HANDLE_MAX_BYTES + 2 * POST_OP_ATTRIBUTES_MAX_BYTES,
  idempotent: true,
});

/** ACCESS (RFC 1813 §3.3.4). */
export const access = defineProcedure<AccessArgs, Outcome3<AccessOk, ObjectFailure>>({
  number: 4,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.object);
      writer.uint32(value.access);
    },
    decode: (reader) => ({ object: readHandle(reader), access: reader.uint32() }),
  },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.uint32(value.access);
      },
      decode: (reader) => ({ attributes: readPostOpAttributes(reader), access: reader.uint32() }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 4,
  idempotent: true,
});

// NFSR-5667.4-01, NFSR-8267.4-01
/** READLINK (RFC 1813 §3.3.5). The path may travel as a write chunk. */
export const readlink = defineProcedure<FileHandle3, Outcome3<ReadLinkOk, ObjectFailure>>({
  number: 5,
  args: handleCodec,
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.bulk(value.path);
      },
      decode: (reader) => ({
        attributes: readPostOpAttributes(reader),
        path: reader.bulk(NAME_READ_MAX_BYTES),
      }),
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 4,
  writeChunks: () => [PATH_MAX_BYTES],
  idempotent: true,
});

// NFSR-5667.4-01, NFSR-8267.4-01
/** READ (RFC 1813 §3.3.6). The data may travel as a write chunk. */
export const read = defineProcedure<ReadArgs, Outcome3<ReadOk, ObjectFailure>>({
  number: 6,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.file);
      writer.uint64(value.offset);
      writer.uint32(value.count);
    },
    decode: (reader) => ({
      file: readHandle(reader),
      offset: reader.uint64(),
      count: reader.uint32(),
    }),
  },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writePostOpAttributes(writer, value.attributes);
        writer.uint32(value.data.length);
        writer.bool(value.eof);
        writer.bulk(value.data);
      },
      decode(reader) {
        const attributes = readPostOpAttributes(reader);
        const count = reader.uint32();
        const eof = reader.bool();
        const data = reader.bulk(count);
        if (data.length !== count) {
          throw new XdrError(`READ says ${count} octets and gives ${data.length}`);
        }
        return { attributes, eof, data };
      },
    },
    objectFailureCodec,
  ),
  resultMaxBytes: () => OBJECT_FAILURE_MAX_BYTES + 12,
  writeChunks: ({ count }) => [count],
  idempotent: true,
});

// NFSR-5667.4-03, NFSR-8267.4-01
/** WRITE (RFC 1813 §3.3.7). The data may travel as a read chunk. */
export const write = defineProcedure<WriteArgs, Outcome3<WriteOk, ChangeFailure>>({
  number: 7,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.file);
      writer.uint64(value.offset);
      writer.uint32(value.data.length);
      writer.uint32(value.stable);
      writer.bulk(value.data);
    },
    decode(reader) {
      const file = readHandle(reader);
      const offset = reader.uint64();
      const count = reader.uint32();
      const stable = readStableHow(reader.uint32());
      const data = reader.bulk(Number.MAX_SAFE_INTEGER);
      if (data.length !== count) {
        throw new XdrError(`WRITE says ${count} octets and gives ${data.length}`);
      }
      return { file, offset, stable, data };
    },
  },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writeWccData(writer, value.wcc);
        writer.uint32(value.count);
        writer.uint32(value.committed);
        writer.opaqueFixed(value.verifier);
      },
      decode: (reader) => ({
        wcc: readWccData(reader),
        count: reader.uint32(),
        committed: readStableHow(reader.uint32()),
        verifier: reader.opaqueFixed(VERIFIER_BYTES),
      }),
    },
    changeFailureCodec,
  ),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES + 8 + VERIFIER_BYTES,
  readChunksMax: 1,
  idempotent: true,
});

/** COMMIT (RFC 1813 §3.3.21). */
export const commit = defineProcedure<CommitArgs, Outcome3<CommitOk, ChangeFailure>>({
  number: 21,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.file);
      writer.uint64(value.offset);
      writer.uint32(value.count);
    },
    decode: (reader) => ({
      file: readHandle(reader),
      offset: reader.uint64(),
      count: reader.uint32(),
    }),
  },
  result: outcomeCodec(
    {
      encode(writer, value) {
        writeWccData(writer, value.wcc);
        writer.opaqueFixed(value.verifier);
      },
      decode: (reader) => ({
        wcc: readWccData(reader),
        verifier: reader.opaqueFixed(VERIFIER_BYTES),
      }),
    },
    changeFailureCodec,
  ),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES + VERIFIER_BYTES,
  idempotent: true,
});
