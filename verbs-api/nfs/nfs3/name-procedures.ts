/** Procedures that create, remove and move names (RFC 1813 §3.3.8 to §3.3.15). */
import { bulk, enumeration, opaqueFixed, struct } from '#verbs-api/rpcrdma/core/codecs';
import { type Decoded, defineProcedure, type XdrCodec } from '#verbs-api/rpcrdma/core/program';
import {
  type DirectoryEntry3,
  deviceNumbers,
  directoryEntry,
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

/** MKNOD3args. */
export interface MakeNodeArgs {
  readonly where: DirectoryEntry3;
  readonly type: FileType;
  /** For all types except regular files, directories and links. */
  readonly attributes: SetAttributes3 | undefined;
  /** Major and minor number of a device. */
  readonly device: readonly [number, number] | undefined;
}

const CREATED_MAX_BYTES =
  4 + POST_OP_HANDLE_MAX_BYTES + POST_OP_ATTRIBUTES_MAX_BYTES + WCC_DATA_MAX_BYTES;

/** The result of CREATE, MKDIR, SYMLINK and MKNOD; `wcc` is the directory's. */
const createdOk = struct({ object: postOpHandle, attributes: postOpAttributes, wcc: wccData });
export type CreatedOk = Decoded<typeof createdOk>;
const created = outcome(createdOk, changeFailure);
const changed = outcome(changeFailure, changeFailure);
/** Both directories. */
const renameWcc = struct({ fromWcc: wccData, toWcc: wccData });
export type RenameWcc = Decoded<typeof renameWcc>;
/** The file, and the directory of the new name. */
const linkWcc = struct({ attributes: postOpAttributes, wcc: wccData });
export type LinkWcc = Decoded<typeof linkWcc>;
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

const createArgs = struct({ where: directoryEntry, how: createHow });
export type CreateArgs = Decoded<typeof createArgs>;

/** CREATE (RFC 1813 §3.3.8). */
export const create = defineProcedure({
  number: 8,
  args: createArgs,
  result: created,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

const makeDirectoryArgs = struct({ where: directoryEntry, attributes: setAttributes });
export type MakeDirectoryArgs = Decoded<typeof makeDirectoryArgs>;

/** MKDIR (RFC 1813 §3.3.9). */
export const mkdir = defineProcedure({
  number: 9,
  args: makeDirectoryArgs,
  result: created,
  resultMaxBytes: () => CREATED_MAX_BYTES,
});

const symlinkArgs = struct({
  where: directoryEntry,
  attributes: setAttributes,
  path: bulk(NAME_READ_MAX_BYTES),
});
export type SymlinkArgs = Decoded<typeof symlinkArgs>;

// NFSR-5667.4-03, NFSR-8267.4-01
/** SYMLINK (RFC 1813 §3.3.10). The path may travel as a read chunk. */
export const symlink = defineProcedure({
  number: 10,
  args: symlinkArgs,
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
export const remove = defineProcedure({
  number: 12,
  args: directoryEntry,
  result: changed,
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

/** RMDIR (RFC 1813 §3.3.13). */
export const rmdir = defineProcedure({
  number: 13,
  args: directoryEntry,
  result: changed,
  resultMaxBytes: () => 4 + WCC_DATA_MAX_BYTES,
});

const renameArgs = struct({ from: directoryEntry, to: directoryEntry });
export type RenameArgs = Decoded<typeof renameArgs>;

/** RENAME (RFC 1813 §3.3.14). */
export const rename = defineProcedure({
  number: 14,
  args: renameArgs,
  result: outcome(renameWcc, renameWcc),
  resultMaxBytes: () => 4 + 2 * WCC_DATA_MAX_BYTES,
});

const linkArgs = struct({ file: handle3, link: directoryEntry });
export type LinkArgs = Decoded<typeof linkArgs>;

/** LINK (RFC 1813 §3.3.15). */
export const link = defineProcedure({
  number: 15,
  args: linkArgs,
  result: outcome(linkWcc, linkWcc),
  resultMaxBytes: () => 4 + POST_OP_ATTRIBUTES_MAX_BYTES + WCC_DATA_MAX_BYTES,
});
