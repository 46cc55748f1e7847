/**
 * The system calls on names, attributes and descriptors. On a file system that responds at once they
 * are made directly, since a thread would only add time; elsewhere each goes to one of libuv's
 * threads, so that a slow file system delays only the calls that need it.
 */
import * as fs from 'node:fs';
import { promisify } from 'node:util';
import { type FileTime, setFileTimes, setFileTimesLater } from '#native-bridge/libc/file-times';
import type { Eventually } from './steps.ts';

/** Paths lead through descriptors; none is followed at its last name unless it is a descriptor. */
export interface FileCalls {
  /** True if calls may block: the objects that they need must be held, and checked again. */
  readonly waits: boolean;
  open(path: string | Buffer, flags: number, mode?: number): Eventually<number>;
  close(fd: number): void;
  fstat(fd: number): Eventually<fs.BigIntStats>;
  /** Undefined if the file does not exist. */
  lstat(path: Buffer): Eventually<fs.BigIntStats | undefined>;
  statfs(path: string): Eventually<fs.StatsFsBase<bigint>>;
  readlink(path: Buffer): Eventually<Buffer>;
  mkdir(path: Buffer, mode: number): Eventually<unknown>;
  symlink(target: Buffer, path: Buffer): Eventually<unknown>;
  link(from: Buffer, to: Buffer): Eventually<unknown>;
  unlink(path: Buffer): Eventually<unknown>;
  rmdir(path: Buffer): Eventually<unknown>;
  rename(from: Buffer, to: Buffer): Eventually<unknown>;
  chmod(path: string, mode: number): Eventually<unknown>;
  chown(path: string, uid: number, gid: number): Eventually<unknown>;
  truncate(fd: number, size: number): Eventually<unknown>;
  setTimes(
    path: string,
    atime: FileTime | undefined,
    mtime: FileTime | undefined,
  ): Eventually<unknown>;
}

// f_type of file systems on this machine's disks, besides those in memory (statfs(2)).
const LOCAL: ReadonlySet<number> = new Set([
  0xef53, // ext2, ext3, ext4
  0x5846_5342, // XFS
  0x9123_683e, // Btrfs
  0xf2f5_2010, // F2FS
  0x2fc1_2fc1, // ZFS
  0xca45_1a4e, // bcachefs
  0x794c_7630, // overlayfs, of containers
  0x0102_1994, // tmpfs
  0x8584_58f6, // ramfs
]);

/**
 * The calls for the file system at `path`. Disks of this machine count as quick: the kernel keeps
 * the names and attributes in use in memory, and writes changes to a journal later.
 */
export function callsFor(path: string): FileCalls {
  return LOCAL.has(fs.statfsSync(path).type) ? DIRECT_CALLS : THREAD_CALLS;
}

/** Each call is made at once. */
export const DIRECT_CALLS: FileCalls = {
  waits: false,
  open: fs.openSync,
  close: fs.closeSync,
  fstat: (fd) => fs.fstatSync(fd, { bigint: true }),
  lstat: (path) => fs.lstatSync(path, { bigint: true, throwIfNoEntry: false }),
  statfs: (path) => fs.statfsSync(path, { bigint: true }),
  readlink: (path) => fs.readlinkSync(path, 'buffer'),
  mkdir: (path, mode) => fs.mkdirSync(path, mode),
  symlink: (target, path) => fs.symlinkSync(target, path),
  link: fs.linkSync,
  unlink: fs.unlinkSync,
  rmdir: (path) => fs.rmdirSync(path),
  rename: fs.renameSync,
  chmod: fs.chmodSync,
  chown: fs.chownSync,
  truncate: fs.ftruncateSync,
  setTimes: setFileTimes,
};

const openLater = promisify(fs.open);
const fstatLater = promisify(fs.fstat);
const lstatLater = promisify(fs.lstat);
const statfsLater = promisify(fs.statfs);
const readlinkLater = promisify(fs.readlink);
const mkdirLater = promisify(fs.mkdir);
const symlinkLater = promisify(fs.symlink);
const rmdirLater = promisify(fs.rmdir);

/** Each call goes to a thread. */
export const THREAD_CALLS: FileCalls = {
  waits: true,
  open: (path, flags, mode) => openLater(path, flags, mode),
  // An error would concern bytes written, which COMMIT reports.
  close: (fd) => fs.close(fd, () => undefined),
  fstat: (fd) => fstatLater(fd, { bigint: true }),
  lstat: lstatOrNone,
  statfs: (path) => statfsLater(path, { bigint: true }),
  readlink: (path) => readlinkLater(path, 'buffer'),
  mkdir: (path, mode) => mkdirLater(path, mode),
  symlink: (target, path) => symlinkLater(target, path),
  link: promisify(fs.link),
  unlink: promisify(fs.unlink),
  rmdir: (path) => rmdirLater(path),
  rename: promisify(fs.rename),
  chmod: promisify(fs.chmod),
  chown: promisify(fs.chown),
  truncate: promisify(fs.ftruncate),
  setTimes: setFileTimesLater,
};

async function lstatOrNone(path: Buffer): Promise<fs.BigIntStats | undefined> {
  try {
    return await lstatLater(path, { bigint: true });
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}
