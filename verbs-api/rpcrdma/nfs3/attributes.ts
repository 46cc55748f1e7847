/**
 * Attributes and what they travel in: fattr3, sattr3, post_op_attr, wcc_data, file handles and
 * names (RFC 1813 §2.4 to §2.6). Each `writeX` and `readX` is one type of the RFC.
 */
import { XdrError, type XdrReader } from '../core/xdr-reader.ts';
import type { XdrWriter } from '../core/xdr-writer.ts';
import { FileType, HANDLE_MAX_BYTES } from './constants.ts';

/** A time since 1970 (nfstime3): both unsigned 32-bit integers. */
export interface Time3 {
  readonly seconds: number;
  readonly nanoseconds: number;
}

/** All that is known about a file (fattr3). */
export interface Attributes3 {
  readonly type: FileType;
  /** Permission bits, without the type. */
  readonly mode: number;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  /** Octets. */
  readonly size: bigint;
  /** Octets that it takes on the disk. */
  readonly used: bigint;
  /** Major and minor number of a device. */
  readonly rdev: readonly [number, number];
  readonly fsid: bigint;
  readonly fileid: bigint;
  readonly atime: Time3;
  readonly mtime: Time3;
  readonly ctime: Time3;
}

/** A time to set: the server's own, or this one. */
export type SetTime3 = 'server' | Time3;

/** Attributes to set (sattr3); what is undefined stays. */
export interface SetAttributes3 {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly size?: bigint;
  readonly atime?: SetTime3;
  readonly mtime?: SetTime3;
}

/** What weak cache consistency compares (wcc_attr). */
export interface WccAttributes3 {
  readonly size: bigint;
  readonly mtime: Time3;
  readonly ctime: Time3;
}

/** A file before and after a change (wcc_data), each where the server could tell. */
export interface WccData3 {
  readonly before: WccAttributes3 | undefined;
  readonly after: Attributes3 | undefined;
}

/** A file handle: opaque, 1 to 64 octets. */
export type FileHandle3 = Uint8Array;
/** A name in a directory: octets, as the protocol has no notion of characters. */
export type FileName3 = Uint8Array;

/** A name in a directory that is given by its handle (diropargs3). */
export interface DirectoryEntry3 {
  readonly directory: FileHandle3;
  readonly name: FileName3;
}

/** Octets of a fattr3. */
export const ATTRIBUTES_BYTES = 84;
/** Octets of a post_op_attr at most. */
export const POST_OP_ATTRIBUTES_MAX_BYTES = 4 + ATTRIBUTES_BYTES;
/** Octets of a post_op_fh3 at most. */
export const POST_OP_HANDLE_MAX_BYTES = 4 + 4 + HANDLE_MAX_BYTES;
/** Octets of a wcc_data at most. */
export const WCC_DATA_MAX_BYTES = 4 + 24 + POST_OP_ATTRIBUTES_MAX_BYTES;
/**
 * Octets of a name or a path that a reader takes. Longer than any name can be, so that the server
 * can say that a name is too long.
 */
export const NAME_READ_MAX_BYTES = 65536;

const FILE_TYPES: ReadonlySet<number> = new Set(Object.values(FileType));
const DONT_CHANGE = 0;
const SET_TO_SERVER_TIME = 1;
const SET_TO_CLIENT_TIME = 2;

/** True for the numbers of ftype3. */
export function isFileType(value: number): value is FileType {
  return FILE_TYPES.has(value);
}

/** nfstime3. */
export function writeTime(writer: XdrWriter, time: Time3): void {
  writer.uint32(time.seconds);
  writer.uint32(time.nanoseconds);
}

/** nfstime3. */
export function readTime(reader: XdrReader): Time3 {
  return { seconds: reader.uint32(), nanoseconds: reader.uint32() };
}

/** fattr3. */
export function writeAttributes(writer: XdrWriter, attributes: Attributes3): void {
  writer.uint32(attributes.type);
  writer.uint32(attributes.mode);
  writer.uint32(attributes.nlink);
  writer.uint32(attributes.uid);
  writer.uint32(attributes.gid);
  writer.uint64(attributes.size);
  writer.uint64(attributes.used);
  writer.uint32(attributes.rdev[0]);
  writer.uint32(attributes.rdev[1]);
  writer.uint64(attributes.fsid);
  writer.uint64(attributes.fileid);
  writeTime(writer, attributes.atime);
  writeTime(writer, attributes.mtime);
  writeTime(writer, attributes.ctime);
}

/** fattr3. Throws `XdrError`, as all readers here do. */
export function readAttributes(reader: XdrReader): Attributes3 {
  return {
    type: readFileType(reader),
    mode: reader.uint32(),
    nlink: reader.uint32(),
    uid: reader.uint32(),
    gid: reader.uint32(),
    size: reader.uint64(),
    used: reader.uint64(),
    rdev: [reader.uint32(), reader.uint32()],
    fsid: reader.uint64(),
    fileid: reader.uint64(),
    atime: readTime(reader),
    mtime: readTime(reader),
    ctime: readTime(reader),
  };
}

/** ftype3. */
export function readFileType(reader: XdrReader): FileType {
  const value = reader.uint32();
  if (!isFileType(value)) throw new XdrError(`${value} is no type of file`);
  return value;
}

/** post_op_attr. */
export function writePostOpAttributes(writer: XdrWriter, value: Attributes3 | undefined): void {
  writer.optional(value, writeAttributes);
}

/** post_op_attr. */
export function readPostOpAttributes(reader: XdrReader): Attributes3 | undefined {
  return reader.optional(readAttributes);
}

/** wcc_data. */
export function writeWccData(writer: XdrWriter, value: WccData3): void {
  writer.optional(value.before, (target, before) => {
    target.uint64(before.size);
    writeTime(target, before.mtime);
    writeTime(target, before.ctime);
  });
  writePostOpAttributes(writer, value.after);
}

/** wcc_data. */
export function readWccData(reader: XdrReader): WccData3 {
  const before = reader.optional((source) => ({
    size: source.uint64(),
    mtime: readTime(source),
    ctime: readTime(source),
  }));
  return { before, after: readPostOpAttributes(reader) };
}

/** nfs_fh3. */
export function writeHandle(writer: XdrWriter, handle: FileHandle3): void {
  writer.opaque(handle);
}

/** nfs_fh3; a view of the message. */
export function readHandle(reader: XdrReader): FileHandle3 {
  return reader.opaque(HANDLE_MAX_BYTES);
}

/** post_op_fh3. */
export function writePostOpHandle(writer: XdrWriter, value: FileHandle3 | undefined): void {
  writer.optional(value, writeHandle);
}

/** post_op_fh3; a view of the message. */
export function readPostOpHandle(reader: XdrReader): FileHandle3 | undefined {
  return reader.optional(readHandle);
}

/** diropargs3. */
export function writeDirectoryEntry(writer: XdrWriter, value: DirectoryEntry3): void {
  writeHandle(writer, value.directory);
  writer.opaque(value.name);
}

/** diropargs3; views of the message. */
export function readDirectoryEntry(reader: XdrReader): DirectoryEntry3 {
  return { directory: readHandle(reader), name: reader.opaque(NAME_READ_MAX_BYTES) };
}

/** sattr3. */
export function writeSetAttributes(writer: XdrWriter, value: SetAttributes3): void {
  writer.optional(value.mode, writeWord);
  writer.optional(value.uid, writeWord);
  writer.optional(value.gid, writeWord);
  writer.optional(value.size, (target, size) => target.uint64(size));
  writeSetTime(writer, value.atime);
  writeSetTime(writer, value.mtime);
}

/** sattr3. */
export function readSetAttributes(reader: XdrReader): SetAttributes3 {
  const mode = reader.optional(readWord);
  const uid = reader.optional(readWord);
  const gid = reader.optional(readWord);
  const size = reader.optional((source) => source.uint64());
  const atime = readSetTime(reader);
  const mtime = readSetTime(reader);
  return {
    ...(mode === undefined ? {} : { mode }),
    ...(uid === undefined ? {} : { uid }),
    ...(gid === undefined ? {} : { gid }),
    ...(size === undefined ? {} : { size }),
    ...(atime === undefined ? {} : { atime }),
    ...(mtime === undefined ? {} : { mtime }),
  };
}

function writeWord(writer: XdrWriter, value: number): void {
  writer.uint32(value);
}

function readWord(reader: XdrReader): number {
  return reader.uint32();
}

function writeSetTime(writer: XdrWriter, value: SetTime3 | undefined): void {
  if (value === undefined) writer.uint32(DONT_CHANGE);
  else if (value === 'server') writer.uint32(SET_TO_SERVER_TIME);
  else {
    writer.uint32(SET_TO_CLIENT_TIME);
    writeTime(writer, value);
  }
}

function readSetTime(reader: XdrReader): SetTime3 | undefined {
  const how = reader.uint32();
  switch (how) {
    case DONT_CHANGE:
      return undefined;
    case SET_TO_SERVER_TIME:
      return 'server';
    case SET_TO_CLIENT_TIME:
      return readTime(reader);
    default:
      throw new XdrError(`${how} is no way to set a time`);
  }
}
