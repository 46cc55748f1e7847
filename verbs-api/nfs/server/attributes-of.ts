/** Converts `stat` results to NFS attributes (RFC 1813 §2.6). */
import type { BigIntStats } from 'node:fs';
import type { Attributes3, Time3, WccAttributes3 } from '../nfs3/attributes.ts';
import { FileType } from '../nfs3/constants.ts';

const BLOCK_BYTES = 512n;
const MODE_BITS = 0o7777n;
const UINT32_MAX = 0xffff_ffffn;
const UINT64_BITS = 64;
const NANOSECONDS = 1_000_000_000n;

/** fattr3. `fsid` is the root's device, also for file systems mounted below the root. */
export function attributesOf(stats: BigIntStats, fsid: bigint): Attributes3 {
  return {
    type: typeOf(stats),
    mode: Number(stats.mode & MODE_BITS),
    nlink: Number(stats.nlink & UINT32_MAX),
    uid: Number(stats.uid & UINT32_MAX),
    gid: Number(stats.gid & UINT32_MAX),
    size: stats.size,
    used: stats.blocks * BLOCK_BYTES,
    rdev: [major(stats.rdev), minor(stats.rdev)],
    fsid,
    fileid: fileIdOf(stats, fsid),
    atime: timeOf(stats.atimeNs),
    mtime: timeOf(stats.mtimeNs),
    ctime: timeOf(stats.ctimeNs),
  };
}

/** wcc_attr. */
export function wccAttributesOf(stats: BigIntStats): WccAttributes3 {
  return { size: stats.size, mtime: timeOf(stats.mtimeNs), ctime: timeOf(stats.ctimeNs) };
}

/** The inode number; for files of other devices combined with the device, so ids are unique. */
export function fileIdOf(stats: BigIntStats, fsid: bigint): bigint {
  if (stats.dev === fsid) return stats.ino;
  return BigInt.asUintN(UINT64_BITS, stats.ino ^ ((stats.dev + 1n) << 40n));
}

/** nfstime3. Times before 1970 or after 2106 are clamped. */
export function timeOf(sinceEpochNs: bigint): Time3 {
  if (sinceEpochNs < 0n) return { seconds: 0, nanoseconds: 0 };
  const seconds = sinceEpochNs / NANOSECONDS;
  if (seconds > UINT32_MAX) return { seconds: Number(UINT32_MAX), nanoseconds: 0 };
  return { seconds: Number(seconds), nanoseconds: Number(sinceEpochNs % NANOSECONDS) };
}

function typeOf(stats: BigIntStats): FileType {
  if (stats.isFile()) return FileType.reg;
  if (stats.isDirectory()) return FileType.dir;
  if (stats.isSymbolicLink()) return FileType.lnk;
  if (stats.isBlockDevice()) return FileType.blk;
  if (stats.isCharacterDevice()) return FileType.chr;
  return stats.isSocket() ? FileType.sock : FileType.fifo;
}

// Splits a device number like glibc (makedev(3)).
function major(device: bigint): number {
  return Number(((device >> 8n) & 0xfffn) | ((device >> 32n) & ~0xfffn & UINT32_MAX));
}

function minor(device: bigint): number {
  return Number((device & 0xffn) | ((device >> 12n) & ~0xffn & UINT32_MAX));
}
