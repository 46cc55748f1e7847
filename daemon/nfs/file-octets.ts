/**
 * Reads and writes of a file's octets. What is in memory is copied at once: to hand the copy to a
 * thread and to hear from it costs half as much again, and leaves the octets in the cache of
 * another processor. Only what may wait for a disk goes to a thread.
 */
import { read, readSync, statfsSync, write, writeSync } from 'node:fs';
import { promisify } from 'node:util';
import { readCached } from '../../native-bridge/libc/cached-read.ts';

const readFile = promisify(read);
const writeFile = promisify(write);

// f_type of the file systems whose files are nowhere but in memory (statfs(2)).
const TMPFS = 0x0102_1994;
const RAMFS = 0x8584_58f6;

/** True for files of a file system that keeps them in memory. `path` leads to the file. */
export function isKeptInMemory(path: string): boolean {
  const { type } = statfsSync(path);
  return type === TMPFS || type === RAMFS;
}

/**
 * Fills `octets` from `offset` on, as far as the file goes; returns how far that is. `inMemory` is
 * what `isKeptInMemory` says of the file.
 */
export async function readOctets(
  fd: number,
  octets: Uint8Array,
  offset: number,
  inMemory: boolean,
): Promise<number> {
  let count = 0;
  while (count < octets.length) {
    const left = octets.length - count;
    const got = inMemory
      ? readSync(fd, octets, count, left, offset + count)
      : (readCached(fd, octets.subarray(count), offset + count) ??
        (await readFile(fd, octets, count, left, offset + count)).bytesRead);
    if (got === 0) break;
    count += got;
  }
  return count;
}

/**
 * Writes `octets` from `offset` on; returns how many, all of them unless the disk got full in the
 * middle. Rejects with the failed system call when none was written.
 */
export async function writeOctets(
  fd: number,
  octets: Uint8Array,
  offset: number,
  inMemory: boolean,
): Promise<number> {
  let count = 0;
  while (count < octets.length) {
    try {
      const left = octets.length - count;
      count += inMemory
        ? writeSync(fd, octets, count, left, offset + count)
        : (await writeFile(fd, octets, count, left, offset + count)).bytesWritten;
    } catch (error) {
      // What was written before the disk was full is there; the next WRITE tells the rest.
      if (count > 0) return count;
      throw error;
    }
  }
  return count;
}
