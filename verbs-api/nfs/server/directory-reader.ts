/**
 * Reads directories without blocking the server: a slow file system delays only the calls that list
 * its directories. On a file system in memory the system is called directly, since a thread would
 * only add time, and a long directory is read in slices.
 */
import { type BigIntStats, lstat, lstatSync, opendirSync, readdir } from 'node:fs';
import { promisify } from 'node:util';
import { nextTurn, SLICE_STEPS } from './slices.ts';

const readdirLater = promisify(readdir);
const lstatLater = promisify(lstat);

/** The system's calls, each of which may block. Paths lead through descriptors. */
export interface DirectoryFiles {
  /** The names in a directory, one character per byte. */
  names(path: string): string[] | Promise<string[]>;
  /** A file, which is not followed if it is a link; undefined if it does not exist. */
  stats(path: Buffer): BigIntStats | undefined | Promise<BigIntStats | undefined>;
}

/** Names that one system call may return. */
const NAMES_AT_ONCE = 1024;

/** File systems in memory. They name the types of their files, so opendir(3) looks at none. */
export const MEMORY_FILES: DirectoryFiles = {
  async names(path) {
    const names: string[] = [];
    const directory = opendirSync(path, { encoding: 'latin1', bufferSize: NAMES_AT_ONCE });
    try {
      for (;;) {
        const entry = directory.readSync();
        if (entry === null) return names;
        names.push(entry.name);
        if (names.length % SLICE_STEPS === 0) await nextTurn();
      }
    } finally {
      directory.closeSync();
    }
  },
  stats: (path) => lstatSync(path, { bigint: true, throwIfNoEntry: false }),
};

/**
 * File systems that may wait for a disk or a server. Not opendir(3): Node looks at each file of a
 * directory that does not name types, and blocks meanwhile.
 */
export const WAITING_FILES: DirectoryFiles = {
  names: (path) => readdirLater(path, { encoding: 'latin1' }),
  async stats(path) {
    try {
      return await lstatLater(path, { bigint: true });
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'ENOENT') return undefined;
      throw error;
    }
  },
};

/** Listings at a time: each holds at most one of libuv's threads, of which reads need some. */
export const LISTINGS_AT_ONCE = 2;

/** Admits a bounded number of callers at a time, in the order of their arrival. */
export class Turns {
  readonly #waiting: (() => void)[] = [];
  #free: number;

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  /** Runs `work` when it is its turn. */
  async take<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
