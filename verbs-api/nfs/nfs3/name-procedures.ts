/** Procedures that create, remove and move names (RFC 1813 §3.3.8 to §3.3.15). */
import { bulk, enumeration, opaqueFixed, struct } from '#verbs-api/rpcrdma/core/codecs';
import { defineProcedure, type XdrCodec } from '#verbs-api/rpcrdma/core/program';
import {
  type Attributes3,
  type DirectoryEntry3,
  deviceNumbers,
  directoryEntry,
  type FileHandle3,
  fileType,
  handle3,
  NAME_READ_MAX_BYTES,
  POST_OP_ATTRIBUTES_MAX_BYTES,
  POST_OP_HANDLE_MAX_BYTES,
  postOpAttributes,
  postOpHandle,
  type SetAttributes3,
  setAttributes,
  WCC_DATA_MAX_BYTES,
  type WccData3,
  wccData,
} from './attributes.ts';
import { CreateMode, FileType, VERIFIER_BYTES } from './constants.ts';
import { type ChangeFailure, changeFailure, type Outcome3, outcome } from './outcome.ts';

/** How CREATE makes the file (createhow3). */
type CreateHow3 =
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
  /** For all types except regular files, directories and links. */
  readonly attributes: SetAttributes3 | undefined;
  /** Major and minor number of a device. */
  readonly device: readonly [number, number] | undefined;
}

/** The result of CREATE, MKDIR, SYMLINK and MKNOD. */
export interface CreatedOk {
  readonly object: FileHandle3 | undefined;
  readonly attributes: Attributes3 | undefined;
  /** Attributes of the directory. */
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

/** LINK3resok and LINK3resfail: the file, and the directory of the new name. */
export interface LinkWcc {
  readonly attributes: Attributes3 | undefined;
  readonly wcc: WccData3;
}

const CREATED_MAX_BYTES =
  4 + POST_OP_HANDLE_MAX_BYTES + POST_OP_ATTRIBUTES_MAX_BYTES + WCC_DATA_MAX_BYTES;

const created: XdrCodec<Outcome3<CreatedOk, ChangeFailure>> = outcome(
  struct<CreatedOk>({ object: postOpHandle, attributes: postOpAttributes, wcc: wccData }),
  changeFailure,
);
const changed = outcome(changeFailure, changeFailure);
const renameWcc = struct<RenameWcc>({ fromWcc: wccData, toWcc: wccData });
const linkWcc = struct<LinkWcc>({ attributes: postOpAttributes, wcc: wccData });
const createMode = enumeration(Object.values(CreateMode), 'createmode3');
const exclusiveVerifier = opaqueFixed(VERIFIER_BYTES);

/** createhow3. */
const createHow: XdrCodec<CreateHow3> = {
  encode(writer, how) {
    writer.uint32(how.mode);
    if (how.mode === CreateMode.exclusive) exclusiveVerifier.encode(writer, how.verifier);
    else setAttributes.encode(writer, how.attributes);
  },
  decode(reader) {
    const mode = createMode.decode(reader);
    if (mode === CreateMode.exclusive) return { mode, verifier: exclusiveVerifier.decode(reader) };
    return { mode, attributes: setAttributes.decode(reader) };
  },
};

/** CREATE (RFC 1813 §3.3.8). */
export const create = defineProcedure<CreateArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 8,
  args: struct<CreateArgs>({ where: directoryEntry, how: createHow }),
  result: created,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

/** MKDIR (RFC 1813 §3.3.9). */
export const mkdir = defineProcedure<MakeDirectoryArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 9,
  args: struct<MakeDirectoryArgs>({ where: directoryEntry, attributes: setAttributes }),
  result: created,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

// NFSR-5667.4-03, NFSR-8267.4-01
/** SYMLINK (RFC 1813 §3.3.10). The path may travel as a read chunk. */
export const symlink = defineProcedure<SymlinkArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 10,
  args: struct<SymlinkArgs>({
    where: directoryEntry,
    attributes: setAttributes,
    path: bulk(NAME_READ_MAX_BYTES),
  }),
  result: created,
  resultMaxBytes: () => CREATED_MAX_BYTES,
  readChunksMax: 1,
});

/** MKNOD (RFC 1813 §3.3.11). */
export const mknod = defineProcedure<MakeNodeArgs, Outcome3<CreatedOk, ChangeFailure>>({
  number: 11,
  args: {
    encode(writer, value) {
      directoryEntry.encode(writer, value.where);
      fileType.encode(writer, value.type);
      if (value.attributes !== undefined) setAttributes.encode(writer, value.attributes);
      if (value.device !== undefined) deviceNumbers.encode(writer, value.device);
    },
    decode(reader) {
      const where = directoryEntry.decode(reader);
      const type = fileType.decode(reader);
      const isDevice = type === FileType.chr || type === FileType.blk;
      const isSpecial = isDevice || type === FileType.sock || type === FileType.fifo;
      const attributes = isSpecial ? setAttributes.decode(reader) : undefined;
      const device = isDevice ? deviceNumbers.decode(reader) : undefined;
      return { where, type, attributes, device };
    },
  },
  result: created,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

/** REMOVE (RFC 1813 §3.3.12). */
export const remove = defineProcedure<DirectoryEntry3, Outcome3<ChangeFailure, ChangeFailure>>({
  number: 12,
  args: directoryEntry,
  result: changed,
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** RMDIR (RFC 1813 §3.3.13). */
export const rmdir = defineProcedure<DirectoryEntry3, Outcome3<ChangeFailure, ChangeFailure>>({
  number: 13,
  args: directoryEntry,
  result: changed,
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** RENAME (RFC 1813 §3.3.14). */
export const rename = defineProcedure<RenameArgs, Outcome3<RenameWcc, RenameWcc>>({
  number: 14,
  args: struct<RenameArgs>({ from: directoryEntry, to: directoryEntry }),
  result: outcome(renameWcc, renameWcc),
  resultMaxBytes: () => 4 + 2 * WCC_DATA_MAX_BYTES,
});

/** LINK (RFC 1813 §3.3.15). */
export const link = defineProcedure<LinkArgs, Outcome3<LinkWcc, LinkWcc>>({
  number: 15,
  args: struct<LinkArgs>({ file: handle3, link: directoryEntry }),
  result: outcome(linkWcc, linkWcc),
  resultMaxBytes: () => 4 + POST_OP_ATTRIBUTES_MAX_BYTES + WCC_DATA_MAX_BYTES,
});
