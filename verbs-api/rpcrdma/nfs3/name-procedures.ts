/** Procedures that make, remove and move names (RFC 1813 §3.3.8 to §3.3.15). */
import { defineProcedure, type XdrCodec } from '../core/program.ts';
import { XdrError, type XdrReader } from '../core/xdr-reader.ts';
import type { XdrWriter } from '../core/xdr-writer.ts';
import {
  type Attributes3,
  type DirectoryEntry3,
  type FileHandle3,
  NAME_READ_MAX_BYTES,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  POST_OP_HANDLE_MAX_BYTES,
  readDirectoryEntry,
  readFileType,
  readHandle,
  readPostOpAttributes,
  readPostOpHandle,
  readSetAttributes,
  readWccData,
  type SetAttributes3,
  WCC_DATA_MAX_BYTES,
  type WccData3,
  writeDirectoryEntry,
  writeHandle,
  writePostOpAttributes,
  writePostOpHandle,
  writeSetAttributes,
  writeWccData,
} from './attributes.ts';
import { CreateMode, FileType, VERIFIER_BYTES } from './constants.ts';
import { type ChangeFailure, changeFailureCodec, type Outcome3, outcomeCodec } from './outcome.ts';

/** How CREATE is to make the file (createhow3). */
export type CreateHow3 =
  | {
      readonly mode: typeof CreateMode.unchecked | typeof CreateMode.guarded;
      readonly attributes: SetAttributes3;
    }
  | { readonly mode: typeof CreateMode.exclusive; readonly verifier: Uint8Array };

/** CREATE3args. */
export interface CreateArgs {
  readonly where: DirectoryEntry3;
  readonly how: CreateHow3;
}

/** MKDIR3args. */
export interface MakeDirectoryArgs {
  readonly where: DirectoryEntry3;
  readonly attributes: SetAttributes3;
}

/** SYMLINK3args. */
export interface SymlinkArgs {
  readonly where: DirectoryEntry3;
  readonly attributes: SetAttributes3;
  readonly path: Uint8Array;
}

/** MKNOD3args. */
export interface MakeNodeArgs {
  readonly where: DirectoryEntry3;
  readonly type: FileType;
  /** Of all but regular files, directories and links. */
  readonly attributes: SetAttributes3 | undefined;
  /** Major and minor number of a device. */
  readonly device: readonly [number, number] | undefined;
}

/** What CREATE, MKDIR, SYMLINK and MKNOD give. */
export interface CreatedOk {
  readonly object: FileHandle3 | undefined;
  readonly attributes: Attributes3 | undefined;
  /** Of the directory. */
  readonly wcc: WccData3;
}

/** RENAME3args. */
export interface RenameArgs {
  readonly from: DirectoryEntry3;
  readonly to: DirectoryEntry3;
}

/** RENAME3resok and RENAME3resfail: both directories. */
export interface RenameWcc {
  readonly fromWcc: WccData3;
  readonly toWcc: WccData3;
}

/** LINK3args. */
export interface LinkArgs {
  readonly file: FileHandle3;
  readonly link: DirectoryEntry3;
}

/** LINK3resok and LINK3resfail: the file and the directory of the new name. */
export interface LinkWcc {
  readonly attributes: Attributes3 | undefined;
  readonly wcc: WccData3;
}

const CREATED_MAX_BYTES =
  4 + POST_OP_HANDLE_MAX_BYTES + POST_OP_ATTRIBUTES_MAX_BYTES + WCC_DATA_MAX_BYTES;

const createdCodec: XdrCodec<Outcome3<CreatedOk, ChangeFailure>> = outcomeCodec(
  {
    encode(writer, value) {
      writePostOpHandle(writer, value.object);
      writePostOpAttributes(writer, value.attributes);
      writeWccData(writer, value.wcc);
    },
    decode: (reader) => ({
      object: readPostOpHandle(reader),
      attributes: readPostOpAttributes(reader),
      wcc: readWccData(reader),
    }),
  },
  changeFailureCodec,
);

const renameWccCodec: XdrCodec<RenameWcc> = {
  encode(writer, value) {
    writeWccData(writer, value.fromWcc);
    writeWccData(writer, value.toWcc);
  },
  decode: (reader) => ({ fromWcc: readWccData(reader), toWcc: readWccData(reader) }),
};

const linkWccCodec: XdrCodec<LinkWcc> = {
  encode(writer, value) {
    writePostOpAttributes(writer, value.attributes);
    writeWccData(writer, value.wcc);
  },
  decode: (reader) => ({ attributes: readPostOpAttributes(reader), wcc: readWccData(reader) }),
};

function writeCreateHow(writer: XdrWriter, how: CreateHow3): void {
  writer.uint32(how.mode);
  if (how.mode === CreateMode.exclusive) writer.opaqueFixed(how.verifier);
  else writeSetAttributes(writer, how.attributes);
}

function readCreateHow(reader: XdrReader): CreateHow3 {
  const mode = reader.uint32();
  if (mode === CreateMode.exclusive) return { mode, verifier: reader.opaqueFixed(VERIFIER_BYTES) };
  if (mode === CreateMode.unchecked || mode === CreateMode.guarded) {
    return { mode, attributes: readSetAttributes(reader) };
  }
  throw new XdrError(`${mode} is no way to create a file`);
}

/** CREATE (RFC 1813 §3.3.8). */
export const create = defineProcedure<CreateArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 8,
  args: {
    encode(writer, value) {
      writeDirectoryEntry(writer, value.where);
      writeCreateHow(writer, value.how);
    },
    decode: (reader) => ({ where: readDirectoryEntry(reader), how: readCreateHow(reader) }),
  },
  result: createdCodec,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

/** MKDIR (RFC 1813 §3.3.9). */
export const mkdir = defineProcedure<MakeDirectoryArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 9,
  args: {
    encode(writer, value) {
      writeDirectoryEntry(writer, value.where);
      writeSetAttributes(writer, value.attributes);
    },
    decode: (reader) => ({
      where: readDirectoryEntry(reader),
      attributes: readSetAttributes(reader),
    }),
  },
  result: createdCodec,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

// NFSR-5667.4-03, NFSR-8267.4-01
/** SYMLINK (RFC 1813 §3.3.10). The path may travel as a read chunk. */
export const symlink = defineProcedure<SymlinkArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 10,
  args: {
    encode(writer, value) {
      writeDirectoryEntry(writer, value.where);
      writeSetAttributes(writer, value.attributes);
      writer.bulk(value.path);
    },
    decode: (reader) => ({
      where: readDirectoryEntry(reader),
      attributes: readSetAttributes(reader),
      path: reader.bulk(NAME_READ_MAX_BYTES),
    }),
  },
  result: createdCodec,
  resultMaxBytes: () => CREATED_MAX_BYTES,
  readChunksMax: 1,
});

/** MKNOD (RFC 1813 §3.3.11). */
export const mknod = defineProcedure<MakeNodeArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 11,
  args: {
    encode(writer, value) {
      writeDirectoryEntry(writer, value.where);
      writer.uint32(value.type);
      if (value.attributes !== undefined) writeSetAttributes(writer, value.attributes);
      for (const number of value.device ?? []) writer.uint32(number);
    },
    decode(reader) {
      const where = readDirectoryEntry(reader);
      const type = readFileType(reader);
      const isDevice = type === FileType.chr || type === FileType.blk;
      const isSpecial = isDevice || type === FileType.sock || type === FileType.fifo;
      const attributes = isSpecial ? readSetAttributes(reader) : undefined;
      const device = isDevice ? ([reader.uint32(), reader.uint32()] as const) : undefined;
      return { where, type, attributes, device };
    },
  },
  result: createdCodec,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

/** REMOVE (RFC 1813 §3.3.12). */
export const remove = defineProcedure<DirectoryEntry3, Outcome3<ChangeFailure, ChangeFailure>>({
  number: 12,
  args: { encode: writeDirectoryEntry, decode: readDirectoryEntry },
  result: outcomeCodec(changeFailureCodec, changeFailureCodec),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** RMDIR (RFC 1813 §3.3.13). */
export const rmdir = defineProcedure<DirectoryEntry3, Outcome3<ChangeFailure, ChangeFailure>>({
  number: 13,
  args: { encode: writeDirectoryEntry, decode: readDirectoryEntry },
  result: outcomeCodec(changeFailureCodec, changeFailureCodec),
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** RENAME (RFC 1813 §3.3.14). */
export const rename = defineProcedure<RenameArgs, Outcome3<RenameWcc, RenameWcc>>({
  number: 14,
  args: {
    encode(writer, value) {
      writeDirectoryEntry(writer, value.from);
      writeDirectoryEntry(writer, value.to);
    },
    decode: (reader) => ({ from: readDirectoryEntry(reader), to: readDirectoryEntry(reader) }),
  },
  result: outcomeCodec(renameWccCodec, renameWccCodec),
  resultMaxBytes: () => 4 + 2 * WCC_DATA_MAX_BYTES,
});

/** LINK (RFC 1813 §3.3.15). */
export const link = defineProcedure<LinkArgs, Outcome3<LinkWcc, LinkWcc>>({
  number: 15,
  args: {
    encode(writer, value) {
      writeHandle(writer, value.file);
      writeDirectoryEntry(writer, value.link);
    },
    decode: (reader) => ({ file: readHandle(reader), link: readDirectoryEntry(reader) }),
  },
  result: outcomeCodec(linkWccCodec, linkWccCodec),
  resultMaxBytes: () => 4 + POST_OP_ATTRIBUTES_MAX_BYTES + WCC_DATA_MAX_BYTES,
});
