/** The file of a program to run: its path, and whether it can load a preload library. */
import { accessSync, constants, type Stats, statSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { fileAttribute } from '#native-bridge/libc/file-attribute';
import { bytesAt, ElfFile, withFile } from './elf-file.ts';

/** `e_machine` of the architectures that iwarpd runs on. */
const ELF_MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };
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
  return withFile(path, (file) => {
    const [script] = scriptWords(file);
    if (script === undefined) return use(file, path);
    return depth < SCRIPTS_MAX ? withProgram(script, use, depth + 1) : undefined;
  });
}

/** The words after `#!`; none in other files. */
function scriptWords(file: number): readonly string[] {
  const [line = ''] = bytesAt(file, 0, PATH_MAX_BYTES).toString('latin1').split('\n', 1);
  return line.startsWith('#!') ? line.slice(2).trim().split(/\s+/) : [];
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
  const elf = ElfFile.of(file);
  if (elf === undefined) return undefined;
  if (elf.machine !== ELF_MACHINES[process.arch]) {
    return 'has another architecture than the preload library';
  }
  if (!elf.isWhole) return 'is damaged: the file ends before its segments do';
  const { loader } = elf;
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
 * The program that runs a script, also where `env` finds it in `searchPath`, or where that program is a script
 * itself; undefined for other files.
 */
export function interpreterOf(path: string, searchPath: string): string | undefined {
  let found: string | undefined;
  for (let left = SCRIPTS_MAX; left > 0; left -= 1) {
    const next = nextInterpreter(found ?? path, searchPath);
    if (next === undefined) return found;
    found = next;
  }
  return found;
}

function nextInterpreter(path: string, searchPath: string): string | undefined {
  return withFile(path, (file) => {
    const [program, ...more] = scriptWords(file);
    if (program === undefined || basename(program) !== 'env') return program;
    const name = more.find((word) => !word.startsWith('-') && !word.includes('='));
    const named = name === undefined ? undefined : findProgram(name, searchPath);
    return named !== undefined && 'path' in named ? named.path : program;
  });
}

/**
 * Whether another C library loads the program: its loader refuses to start a program if it cannot
 * resolve all symbols of a preloaded library.
 */
export function hasForeignLoader(path: string): boolean {
  const loader = withProgram(path, (file) => ElfFile.of(file)?.loader);
  return loader !== undefined && isForeign(loader);
}

/** The libraries that a program lists (DT_NEEDED), in order; none for other kinds of files. */
export function neededLibraries(path: string): readonly string[] {
  return withProgram(path, (file) => ElfFile.of(file)?.needed) ?? [];
}
