/** The libraries that the dynamic loader would load for a program, found as ld.so(8) finds them. */
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ElfFile, withFile } from '../elf-file.ts';

/** A program or library, and who lists it first. */
export interface LinkedFile {
  /** As listed: `libibverbs.so.1`; for the program, its path. */
  readonly name: string;
  /** Undefined if it is not found. */
  readonly path: string | undefined;
  /** Names from the program's library to the one that lists this one; empty for the program's own. */
  readonly by: readonly string[];
  readonly names: ReadonlySet<string>;
  readonly isGo: boolean;
}

/** Far more than any real program loads. */
const FILES_MAX = 2048;
const CACHE = '/etc/ld.so.cache';
const CACHE_MAGIC = 'glibc-ld.so.cache1.1';
const CACHE_HEADER_BYTES = 48;
const CACHE_ENTRY_BYTES = 24;
const DEFAULT_FOLDERS = ['/lib64', '/usr/lib64', '/lib', '/usr/lib'];

interface Found {
  readonly path: string;
  readonly machine: number | undefined;
  readonly needed: readonly string[];
  readonly rpath: readonly string[];
  readonly runpath: readonly string[];
  readonly names: ReadonlySet<string>;
  readonly isGo: boolean;
}

/** The program at `path` first, then its libraries, nearest first. `libraryPath`: LD_LIBRARY_PATH. */
export function linkedLibraries(path: string, libraryPath: string): readonly LinkedFile[] {
  const program = read(path);
  if (program === undefined) return [];
  const search = new LibrarySearch(libraryPath, program.machine);
  const files: LinkedFile[] = [linked(path, program, [])];
  const known = new Set<string>();
  const open: { readonly file: Found; readonly by: readonly string[]; readonly rpath: string[] }[] =
    [{ file: program, by: [], rpath: foldersOf(program.rpath, program.path) }];
  for (let next = open.shift(); next !== undefined; next = open.shift()) {
    const { file, by, rpath } = next;
    for (const name of file.needed) {
      if (known.has(name) || files.length === FILES_MAX) continue;
      known.add(name);
      const found = search.find(name, file, rpath);
      files.push(linked(name, found, by));
      if (found === undefined) continue;
      const inherited = [...foldersOf(found.rpath, found.path), ...rpath];
      open.push({ file: found, by: [...by, name], rpath: inherited });
    }
  }
  return files;
}

function linked(name: string, found: Found | undefined, by: readonly string[]): LinkedFile {
  const { path, names = new Set<string>(), isGo = false } = found ?? {};
  return { name, path, by, names, isGo };
}

class LibrarySearch {
  readonly #folders: readonly string[];
  readonly #machine: number | undefined;
  readonly #cache = readCache();

  constructor(libraryPath: string, machine: number | undefined) {
    this.#folders = libraryPath.split(/[:;]/).filter((folder) => folder !== '');
    this.#machine = machine;
  }

  /** `rpath`: folders of the file that lists the library and of those that loaded it. */
  find(name: string, by: Found, rpath: readonly string[]): Found | undefined {
    if (name.includes('/')) return this.#right(name);
    // DT_RPATH counts unless the file has DT_RUNPATH, which is for its own libraries only.
    const before = by.runpath.length > 0 ? [] : rpath;
    const folders = [...before, ...this.#folders, ...foldersOf(by.runpath, by.path)];
    return (
      this.#firstIn(folders, name) ??
      this.#firstOf(this.#cache.get(name) ?? []) ??
      this.#firstIn(DEFAULT_FOLDERS, name)
    );
  }

  #firstIn(folders: readonly string[], name: string): Found | undefined {
    return this.#firstOf(folders.map((folder) => join(folder, name)));
  }

  #firstOf(paths: readonly string[]): Found | undefined {
    for (const path of paths) {
      const found = this.#right(path);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** The library, unless it is for another architecture, as one of 32 bits in the cache is. */
  #right(path: string): Found | undefined {
    const found = read(path);
    return found?.machine === this.#machine ? found : undefined;
  }
}

function read(path: string): Found | undefined {
  return withFile(path, (file) => {
    const elf = ElfFile.of(file);
    if (elf === undefined) return undefined;
    const { machine, needed, searchPaths, dynamicNames, isGo } = elf;
    return { path, machine, needed, ...searchPaths, names: dynamicNames, isGo };
  });
}

/** Search paths, with the loader's word for the folder of the file. */
function foldersOf(paths: readonly string[], file: string): string[] {
  const origin = dirname(realpathSync(file));
  return paths
    .map((path) => path.replace(/\$ORIGIN\b|\$\{ORIGIN\}/g, origin))
    .filter((path) => path !== '');
}

/** Paths of each library that ldconfig knows. */
function readCache(): ReadonlyMap<string, readonly string[]> {
  const paths = new Map<string, string[]>();
  let bytes: Buffer;
  try {
    bytes = readFileSync(CACHE);
  } catch {
    return paths;
  }
  // It may follow a cache in the old format.
  const start = bytes.indexOf(CACHE_MAGIC);
  if (start < 0 || start + CACHE_HEADER_BYTES > bytes.length) return paths;
  const cache = bytes.subarray(start);
  const text = (at: number): string => cache.toString('latin1', at, cache.indexOf(0, at));
  for (let left = cache.readUInt32LE(20), at = CACHE_HEADER_BYTES; left > 0; left -= 1) {
    if (at + CACHE_ENTRY_BYTES > cache.length) break;
    const name = text(cache.readUInt32LE(at + 4));
    paths.set(name, [...(paths.get(name) ?? []), text(cache.readUInt32LE(at + 8))]);
    at += CACHE_ENTRY_BYTES;
  }
  return paths;
}
