/** The file of a program that is to run: where it is, and whether a preloaded library reaches it. */
import { accessSync, closeSync, constants, openSync, readSync, statSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { fileAttribute } from '../../native-bridge/libc/file-attribute.ts';

/** `e_machine` of the architectures that iwarpd runs on. */
const ELF_MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };
const ELF_HEADER_BYTES = 64;
const ELF_CLASS_64 = 2;
const SEGMENT_HEADER_MIN_BYTES = 56;
/** The segment that names the dynamic loader. */
const SEGMENT_INTERPRETER = 3;
/** More segments, or a longer loader path, are no program that could run. */
const SEGMENTS_MAX = 256;
const PATH_MAX_BYTES = 4096;
/** Linux follows as many `#!` lines. */
const SCRIPTS_MAX = 4;
const SET_USER_ID = 0o4000;
const SET_GROUP_ID = 0o2000;
/** File capabilities: the halves of the permitted set lie at these octets (`struct vfs_cap_data`). */
const CAPABILITIES = 'security.capability';
const PERMITTED_AT = [4, 12];

/** Who runs a program. */
export interface Runner {
  readonly uid: number;
  readonly gid: number;
}

/**
 * The file that `name` stands for, as execvp finds it: a name without a slash is looked up in
 * `searchPath`. 'ENOENT' or 'EACCES' when there is none that may be executed.
 */
export function findProgram(
  name: string,
  searchPath: string,
): { readonly path: string } | { readonly error: 'ENOENT' | 'EACCES' } {
  const folders = name.includes('/') ? [''] : searchPath.split(delimiter);
  let error: 'ENOENT' | 'EACCES' = 'ENOENT';
  for (const folder of folders) {
    const path = name.includes('/') ? name : join(folder === '' ? '.' : folder, name);
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) continue;
    if (stats.isFile() && isExecutable(path)) return { path };
    error = 'EACCES';
  }
  return { error };
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Why the dynamic loader will not load a library into the program, in words; undefined if it will. */
export function preloadObstacle(path: string, runner: Runner, depth = 0): string | undefined {
  const file = openFile(path);
  // The loader reads what a process of this user may not read: then there is nothing to tell.
  if (file === undefined) return undefined;
  try {
    const script = scriptInterpreter(file);
    if (script !== undefined) {
      return depth < SCRIPTS_MAX ? preloadObstacle(script, runner, depth + 1) : undefined;
    }
    return changedUser(path, runner) ?? grantedRights(path, runner) ?? loaderObstacle(file);
  } finally {
    closeSync(file);
  }
}

function openFile(path: string): number | undefined {
  try {
    return openSync(path, 'r');
  } catch {
    return undefined;
  }
}

/** The interpreter in the `#!` line of a script. */
function scriptInterpreter(file: number): string | undefined {
  const [line = ''] = octetsAt(file, 0, PATH_MAX_BYTES).toString('latin1').split('\n', 1);
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

/** Root has the rights already, so that nothing changes for it. */
function grantedRights(path: string, { uid }: Runner): string | undefined {
  const octets = uid === 0 ? undefined : fileAttribute(path, CAPABILITIES);
  if (octets === undefined) return undefined;
  const fields = new DataView(octets.buffer, octets.byteOffset, octets.length);
  const grants = PERMITTED_AT.some((at) => at + 4 <= octets.length && fields.getUint32(at) !== 0);
  return grants ? 'has file capabilities, and the loader ignores LD_PRELOAD' : undefined;
}

function loaderObstacle(file: number): string | undefined {
  const header = octetsAt(file, 0, ELF_HEADER_BYTES);
  if (header.length < ELF_HEADER_BYTES || header.toString('latin1', 0, 4) !== '\x7fELF') {
    return undefined;
  }
  if (header[4] !== ELF_CLASS_64 || header.readUInt16LE(18) !== ELF_MACHINES[process.arch]) {
    return 'is of another architecture than the preload library';
  }
  const loader = loaderPath(file, header);
  if (loader === undefined) return 'is statically linked, so that no library can be preloaded';
  if (!/^ld-linux/.test(basename(loader))) {
    return `is linked to another C library than glibc (its loader is ${loader})`;
  }
  return undefined;
}

/** The path of the dynamic loader; undefined in a static program. */
function loaderPath(file: number, header: Buffer): string | undefined {
  const tableAt = Number(header.readBigUInt64LE(32));
  const entryBytes = header.readUInt16LE(54);
  const entries = Math.min(header.readUInt16LE(56), SEGMENTS_MAX);
  if (entryBytes < SEGMENT_HEADER_MIN_BYTES) return undefined;
  for (let index = 0; index < entries; index++) {
    const segment = octetsAt(file, tableAt + index * entryBytes, SEGMENT_HEADER_MIN_BYTES);
    if (segment.length < SEGMENT_HEADER_MIN_BYTES) return undefined;
    if (segment.readUInt32LE(0) !== SEGMENT_INTERPRETER) continue;
    const bytes = Math.min(Number(segment.readBigUInt64LE(32)), PATH_MAX_BYTES);
    const text = octetsAt(file, Number(segment.readBigUInt64LE(8)), bytes).toString('latin1');
    return text.split('\0', 1)[0];
  }
  return undefined;
}

/** Up to `length` octets; fewer at the end of the file. */
function octetsAt(file: number, position: number, length: number): Buffer {
  const octets = Buffer.alloc(length);
  return octets.subarray(0, readSync(file, octets, 0, length, position));
}
