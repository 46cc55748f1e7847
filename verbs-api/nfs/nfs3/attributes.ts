/**
 * File attributes and the types that contain them: fattr3, sattr3, post_op_attr, wcc_data, file
 * handles and names (RFC 1813 §2.4 to §2.6).
 */
import {
  enumeration,
  opaque,
  optional,
  struct,
  uint32,
  uint64,
} from '#verbs-api/rpcrdma/core/codecs';
import type { XdrCodec } from '#verbs-api/rpcrdma/core/program';
import { XdrError } from '#verbs-api/rpcrdma/core/xdr-reader';
import { FileType, HANDLE_MAX_BYTES } from './constants.ts';

/** A time since 1970 (nfstime3): both unsigned 32-bit integers. */
export interface Time3 {
  readonly seconds: number;
  readonly nanoseconds: number;
}

/** All attributes of a file (fattr3). */
export interface Attributes3 {
  readonly type: FileType;
  /** Permission bits, without the file type. */
  readonly mode: number;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  /** Bytes. */
  readonly size: bigint;
  /** Bytes used on disk. */
  readonly used: bigint;
  /** Major and minor number of a device. */
  readonly rdev: readonly [number, number];
  readonly fsid: bigint;
  readonly fileid: bigint;
  readonly atime: Time3;
  readonly mtime: Time3;
  readonly ctime: Time3;
}

/** A time to set: the server's current time, or this one. */
export type SetTime3 = 'server' | Time3;

/** Attributes to set (sattr3); undefined leaves one unchanged. */
export interface SetAttributes3 {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly size?: bigint;
  readonly atime?: SetTime3;
  readonly mtime?: SetTime3;
}

/** Attributes that weak cache consistency compares (wcc_attr). */
export interface WccAttributes3 {
  readonly size: bigint;
  readonly mtime: Time3;
  readonly ctime: Time3;
}

/** A file before and after a change (wcc_data), if the server knows. */
export interface WccData3 {
  readonly before: WccAttributes3 | undefined;
  readonly after: Attributes3 | undefined;
}

/** A file handle: opaque, 1 to 64 bytes. */
export type FileHandle3 = Uint8Array;
/** A name in a directory: bytes, as the protocol defines no character set. */
export type FileName3 = Uint8Array;

/** A directory's handle and a name in it (diropargs3). */
export interface DirectoryEntry3 {
  readonly directory: FileHandle3;
  readonly name: FileName3;
}

export const ATTRIBUTES_BYTES = 84;
/** Maximum bytes of a post_op_attr. */
export const POST_OP_ATTRIBUTES_MAX_BYTES = 4 + ATTRIBUTES_BYTES;
/** Maximum bytes of a post_op_fh3. */
export const POST_OP_HANDLE_MAX_BYTES = 4 + 4 + HANDLE_MAX_BYTES;
export const WCC_DATA_MAX_BYTES = 4 + 24 + POST_OP_ATTRIBUTES_MAX_BYTES;
/**
 * Maximum bytes of a name or path that a reader accepts. Exceeds every valid name, so the server
 * can return NFS3ERR_NAMETOOLONG.
 */
export const NAME_READ_MAX_BYTES = 65536;

const DONT_CHANGE = 0;
const SET_TO_SERVER_TIME = 1;
const SET_TO_CLIENT_TIME = 2;

export const fileType: XdrCodec<FileType> = enumeration(Object.values(FileType), 'ftype3');

/** nfstime3, hand-coded like fattr3. */
export const time3: XdrCodec<Time3> = {
  encode(writer, time) {
    writer.uint32(time.seconds);
    writer.uint32(time.nanoseconds);
  },
  decode: (reader) => ({ seconds: reader.uint32(), nanoseconds: reader.uint32() }),
};

/** specdata3: major and minor number of a device. */
export const deviceNumbers: XdrCodec<readonly [number, number]> = {
  encode(writer, [major, minor]) {
    writer.uint32(major);
    writer.uint32(minor);
  },
  decode: (reader) => [reader.uint32(), reader.uint32()],
};

/** fattr3. Hand-coded because nearly every reply has it: `struct` takes twice the time. */
export const attributes3: XdrCodec<Attributes3> = {
  encode(writer, attributes) {
    writer.uint32(attributes.type);
    writer.uint32(attributes.mode);
    writer.uint32(attributes.nlink);
    writer.uint32(attributes.uid);
    writer.uint32(attributes.gid);
    writer.uint64(attributes.size);
    writer.uint64(attributes.used);
    deviceNumbers.encode(writer, attributes.rdev);
    writer.uint64(attributes.fsid);
    writer.uint64(attributes.fileid);
    time3.encode(writer, attributes.atime);
    time3.encode(writer, attributes.mtime);
    time3.encode(writer, attributes.ctime);
  },
  decode: (reader) => ({
    type: fileType.decode(reader),
    mode: reader.uint32(),
    nlink: reader.uint32(),
    uid: reader.uint32(),
    gid: reader.uint32(),
    size: reader.uint64(),
    used: reader.uint64(),
    rdev: deviceNumbers.decode(reader),
    fsid: reader.uint64(),
    fileid: reader.uint64(),
    atime: time3.decode(reader),
    mtime: time3.decode(reader),
    ctime: time3.decode(reader),
  }),
};

/** post_op_attr. */
export const postOpAttributes: XdrCodec<Attributes3 | undefined> = optional(attributes3);

const wccAttributes = struct<WccAttributes3>({ size: uint64, mtime: time3, ctime: time3 });

export const wccData = struct<WccData3>({
  before: optional(wccAttributes),
  after: postOpAttributes,
});

/** nfs_fh3. */
export const handle3: XdrCodec<FileHandle3> = opaque(HANDLE_MAX_BYTES);

/** post_op_fh3. */
export const postOpHandle: XdrCodec<FileHandle3 | undefined> = optional(handle3);

/** filename3. */
export const fileName3: XdrCodec<FileName3> = opaque(NAME_READ_MAX_BYTES);

/** diropargs3. */
export const directoryEntry = struct<DirectoryEntry3>({ directory: handle3, name: fileName3 });

/** set_atime and set_mtime. */
const setTime: XdrCodec<SetTime3 | undefined> = {
  encode(writer, value) {
    if (value === undefined) writer.uint32(DONT_CHANGE);
    else if (value === 'server') writer.uint32(SET_TO_SERVER_TIME);
    else {
      writer.uint32(SET_TO_CLIENT_TIME);
      time3.encode(writer, value);
    }
  },
  decode(reader) {
    const how = reader.uint32();
    switch (how) {
      case DONT_CHANGE:
        return undefined;
      case SET_TO_SERVER_TIME:
        return 'server';
      case SET_TO_CLIENT_TIME:
        return time3.decode(reader);
      default:
        throw new XdrError(`${how} is not a time_how`);
    }
  },
};

const setFields = struct<{ readonly [K in keyof SetAttributes3]-?: SetAttributes3[K] | undefined }>(
  {
    mode: optional(uint32),
    uid: optional(uint32),
    gid: optional(uint32),
    size: optional(uint64),
    atime: setTime,
    mtime: setTime,
  },
);

/** sattr3. */
export const setAttributes: XdrCodec<SetAttributes3> = {
  encode(writer, { mode, uid, gid, size, atime, mtime }) {
    setFields.encode(writer, { mode, uid, gid, size, atime, mtime });
  },
  decode(reader) {
    const set = Object.entries(setFields.decode(reader)).filter(([, value]) => value !== undefined);
    return Object.fromEntries(set);
  },
};
