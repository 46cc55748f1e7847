/**
 * Reads and writes file data. Data in memory is copied synchronously: handing the copy to a thread
 * and waiting for it costs half as much again and leaves the bytes in another processor's cache.
 * Only access that may wait for a disk goes to a thread.
 */
import { read, readSync, statfsSync, write, writeSync } from 'node:fs';
import { promisify } from 'node:util';
import { readCached } from '#native-bridge/libc/cached-read';

const readFile = promisify(read);
const writeFile = promisify(write);

// f_type of file systems that keep files only in memory (statfs(2)).
const TMPFS = 0x0102_1994;
const RAMFS = 0x8584_58f6;

/** True for files on a file system that keeps them in memory. `path` is a path to the file. */
export function isKeptInMemory(path: string): boolean {
  const { type } = statfsSync(path);
  return type === TMPFS || type === RAMFS;
}

/**
 * Reads into `bytes` from `offset` until full or end of file; returns the bytes read. `inMemory` is
 * the result of `isKeptInMemory` for the file.
 */
export async function readBytes(
  fd: number,
  bytes: Uint8Array,
  offset: number,
  inMemory: boolean,
): Promise<number> {
  let count = 0;
  while (count < bytes.length) {
    const left = bytes.length - count;
    const got = inMemory
      ? readSync(fd, bytes, count, left, offset + count)
      : (readCached(fd, bytes.subarray(count), offset + count) ??
        (await readFile(fd, bytes, count, left, offset + count)).bytesRead);
    if (got === 0) break;
    count += got;
  }
  return count;
}

/**
 * Writes `bytes` from `offset` on; returns how many: all of them unless the disk filled up on the
 * way. Rejects with the failed system call if none was written.
 */
export async function writeBytes(
  fd: number,
  bytes: Uint8Array,
  offset: number,
  inMemory: boolean,
): Promise<number> {
  let count = 0;
  while (count < bytes.length) {
    try {
      const left = bytes.length - count;
      count += inMemory
        ? writeSync(fd, bytes, count, left, offset + count)
        : (await writeFile(fd, bytes, count, left, offset + count)).bytesWritten;
    } catch (error) {
      // The bytes before the disk filled up are written; the next WRITE reports the error.
      if (count > 0) return count;
      throw error;
    }
  }
  return count;
}
