/** The file of a program to run: its path, and whether it can load a preload library. */
import {
  accessSync,
  closeSync,
  constants,
  openSync,
  readSync,
  type Stats,
  statSync,
} from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { fileAttribute } from '#native-bridge/libc/file-attribute';

/** `e_machine` of the architectures that iwarpd runs on. */
const ELF_MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };
const ELF_HEADER_BYTES = 64;
const ELF_CLASS_64 = 2;
const SEGMENT_HEADER_MIN_BYTES = 56;
/** Segment types: loaded, dynamic section, interpreter path. */
const SEGMENT_LOAD = 1;
const SEGMENT_DYNAMIC = 2;
const SEGMENT_INTERPRETER = 3;
/** The dynamic section: pairs of a tag and a value. */
const DYNAMIC_ENTRY_BYTES = 16;
const DYNAMIC_NEEDED = 1;
const DYNAMIC_TEXT = 5;
/** Far more than any real program has. */
const DYNAMIC_MAX_BYTES = 65_536;
const NAME_MAX_BYTES = 256;
/** A program with more segments, or a longer loader path, could not run. */
const SEGMENTS_MAX = 256;
const PATH_MAX_BYTES = 4096;
/** Number of `#!` lines that Linux follows. */
const SCRIPTS_MAX = 4;
const SET_USER_ID = 0o4000;
const SET_GROUP_ID = 0o2000;
/** File capabilities: the halves of the permitted set lie at these bytes (`struct vfs_cap_data`). */
const CAPABILITIES = 'security.capability';
const PERMITTED_AT = [4, 12];

interface Runner {
  readonly uid: number;
  readonly gid: number;
}

/**
 * The file for `name`, found like execvp: a name without a slash is looked up in `searchPath`.
 * 'ENOENT' or 'EACCES' if there is no executable file.
 */
export function findProgram(
  name: string,
  searchPath: string,
): { readonly path: string } | { readonly error: 'ENOENT' | 'EACCES' } {
  const folders = name.includes('/') ? [''] : searchPath.split(delimiter);
  let error: 'ENOENT' | 'EACCES' = 'ENOENT';
  for (const folder of folders) {
    const path = name.includes('/') ? name : join(folder === '' ? '.' : folder, name);
    const stats = statsOf(path);
    if (stats === undefined) continue;
    if (stats !== 'hidden' && stats.isFile() && isExecutable(path)) return { path };
    error = 'EACCES';
  }
  return { error };
}

/** 'hidden' in a directory without access: a search path may contain directories of root. */
function statsOf(path: string): Stats | 'hidden' | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return 'hidden';
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Why the dynamic loader will not load a library into the program, as text; undefined if it will.
 */
export function preloadObstacle(path: string, runner: Runner): string | undefined {
  return withProgram(
    path,
    (file, program) =>
      changedUser(program, runner) ?? grantedRights(program, runner) ?? loaderObstacle(file),
  );
}

/**
 * The result for the file of a program; for a script, for its interpreter. Undefined if it is not
 * readable for this user, though executable: nothing can be determined.
 */
function withProgram<T>(
  path: string,
  use: (file: number, path: string) => T,
  depth = 0,
): T | undefined {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch {
    return undefined;
  }
  try {
    const script = scriptInterpreter(file);
    if (script === undefined) return use(file, path);
    return depth < SCRIPTS_MAX ? withProgram(script, use, depth + 1) : undefined;
  } finally {
    closeSync(file);
  }
}

function scriptInterpreter(file: number): string | undefined {
  const [line = ''] = bytesAt(file, 0, PATH_MAX_BYTES).toString('latin1').split('\n', 1);
  return /^#!\s*(\S+)/.exec(line)?.[1];
}

function changedUser(path: string, { uid, gid }: Runner): string | undefined {
  const stats = statSync(path);
  const changes =
    ((stats.mode & SET_USER_ID) !== 0 && stats.uid !== uid) ||
    ((stats.mode & SET_GROUP_ID) !== 0 && stats.gid !== gid);
  return changes
    ? 'runs as another user (set-user-ID), and the loader ignores LD_PRELOAD'
    : undefined;
}

/** Root already has these rights, so they change nothing. */
function grantedRights(path: string, { uid }: Runner): string | undefined {
  const bytes = uid === 0 ? undefined : fileAttribute(path, CAPABILITIES);
  if (bytes === undefined) return undefined;
  const fields = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const grants = PERMITTED_AT.some((at) => at + 4 <= bytes.length && fields.getUint32(at) !== 0);
  return grants ? 'has file capabilities, and the loader ignores LD_PRELOAD' : undefined;
}

function loaderObstacle(file: number): string | undefined {
  const header = bytesAt(file, 0, ELF_HEADER_BYTES);
  if (!isElf(header)) return undefined;
  if (header[4] !== ELF_CLASS_64 || header.readUInt16LE(18) !== ELF_MACHINES[process.arch]) {
    return 'has another architecture than the preload library';
  }
  const loader = loaderPath(file, header);
  if (loader === undefined) return 'is statically linked, so no library can be preloaded';
  if (isForeign(loader)) {
    return `is linked to another C library than glibc (its loader is ${loader})`;
  }
  return undefined;
}

function isForeign(loader: string): boolean {
  return !/^ld-linux/.test(basename(loader));
}

/**
 * Whether another C library loads the program: its loader refuses to start a program if it cannot
 * resolve all symbols of a preloaded library.
 */
export function hasForeignLoader(path: string): boolean {
  const loader = withProgram(path, (file) => {
    const header = bytesAt(file, 0, ELF_HEADER_BYTES);
    return isElf64(header) ? loaderPath(file, header) : undefined;
  });
  return loader !== undefined && isForeign(loader);
}

function isElf(header: Buffer): boolean {
  return header.length === ELF_HEADER_BYTES && header.toString('latin1', 0, 4) === '\x7fELF';
}

function isElf64(header: Buffer): boolean {
  return isElf(header) && header[4] === ELF_CLASS_64;
}

/** The libraries that a program lists (DT_NEEDED), in order; none for other kinds of files. */
export function neededLibraries(path: string): readonly string[] {
  const libraries = withProgram(path, (file) => {
    const header = bytesAt(file, 0, ELF_HEADER_BYTES);
    return isElf64(header) ? namedLibraries(file, header) : undefined;
  });
  return libraries ?? [];
}

function namedLibraries(file: number, header: Buffer): readonly string[] {
  const segments = segmentsOf(file, header);
  const dynamic = segments.find(({ type }) => type === SEGMENT_DYNAMIC);
  if (dynamic === undefined) return [];
  const table = bytesAt(file, dynamic.at, Math.min(dynamic.bytes, DYNAMIC_MAX_BYTES));
  const names: number[] = [];
  let textAddress = 0;
  for (let at = 0; at + DYNAMIC_ENTRY_BYTES <= table.length; at += DYNAMIC_ENTRY_BYTES) {
    const tag = Number(table.readBigUInt64LE(at));
    const value = Number(table.readBigUInt64LE(at + 8));
    if (tag === DYNAMIC_NEEDED) names.push(value);
    if (tag === DYNAMIC_TEXT) textAddress = value;
  }
  const loaded = segments.find(({ type, address, bytes }) => {
    return type === SEGMENT_LOAD && textAddress >= address && textAddress < address + bytes;
  });
  if (loaded === undefined) return [];
  const textAt = loaded.at + textAddress - loaded.address;
  return names.map((name) => {
    const text = bytesAt(file, textAt + name, NAME_MAX_BYTES).toString('latin1');
    return text.split('\0', 1)[0] ?? '';
  });
}

/** A segment of a program: its position in the file and in memory. */
interface Segment {
  readonly type: number;
  readonly at: number;
  readonly address: number;
  readonly bytes: number;
}

function segmentsOf(file: number, header: Buffer): readonly Segment[] {
  const tableAt = Number(header.readBigUInt64LE(32));
  const entryBytes = header.readUInt16LE(54);
  const entries = Math.min(header.readUInt16LE(56), SEGMENTS_MAX);
  const segments: Segment[] = [];
  if (entryBytes < SEGMENT_HEADER_MIN_BYTES) return segments;
  for (let index = 0; index < entries; index++) {
    const segment = bytesAt(file, tableAt + index * entryBytes, SEGMENT_HEADER_MIN_BYTES);
    if (segment.length < SEGMENT_HEADER_MIN_BYTES) return segments;
    segments.push({
      type: segment.readUInt32LE(0),
      at: Number(segment.readBigUInt64LE(8)),
      address: Number(segment.readBigUInt64LE(16)),
      bytes: Number(segment.readBigUInt64LE(32)),
    });
  }
  return segments;
}

/** The path of the dynamic loader; undefined in a static program. */
function loaderPath(file: number, header: Buffer): string | undefined {
  const named = segmentsOf(file, header).find(({ type }) => type === SEGMENT_INTERPRETER);
  if (named === undefined) return undefined;
  const text = bytesAt(file, named.at, Math.min(named.bytes, PATH_MAX_BYTES)).toString('latin1');
  return text.split('\0', 1)[0];
}

/** Up to `length` bytes; fewer at the end of the file. */
function bytesAt(file: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  return bytes.subarray(0, readSync(file, bytes, 0, length, position));
}
