/** Sets attributes for SETATTR, and for new files (RFC 1813 §3.3.2). */
import type { BigIntStats } from 'node:fs';
import type { FileTime } from '#native-bridge/libc/file-times';
import type { SetAttributes3, SetTime3 } from '../nfs3/attributes.ts';
import { Nfs3Status } from '../nfs3/constants.ts';
import { descriptorPath, type ExportedTree, type Located } from './exported-tree.ts';
import { NfsFailure } from './nfs-failure.ts';
import { demandData, demandOwner, type Identity, WRITE } from './permissions.ts';
import { type Steps, settled } from './steps.ts';
import type { Visit } from './visit.ts';

const MODE_BITS = 0o7777;
const SET_GROUP_ID = 0o2000;
const SET_ID_BITS = 0o6000;

/**
 * Sets the given attributes. `NfsFailure` perm or acces if the caller may not, or for a failed
 * system call.
 */
export function* setAttributes(
  tree: ExportedTree,
  located: Located,
  given: SetAttributes3,
  caller: Identity,
  visit: Visit,
): Steps<void> {
  const { calls } = tree;
  demandRights(given, located.stats, caller);
  const path = descriptorPath(located.fd);
  if (given.size !== undefined) yield* truncate(tree, located, given.size, visit);
  if (given.uid !== undefined || given.gid !== undefined) {
    // -1 leaves it unchanged; Node expects it as an unsigned number.
    const keep = 0xffff_ffff;
    yield* settled(calls.chown(path, given.uid ?? keep, given.gid ?? keep));
  }
  // After the owner, since changing that clears set-user-ID.
  if (given.mode !== undefined) {
    yield* settled(calls.chmod(path, allowedMode(given.mode, located.stats, caller)));
  }
  if (given.atime !== undefined || given.mtime !== undefined) {
    yield* settled(calls.setTimes(path, fileTime(given.atime), fileTime(given.mtime)));
  }
}

/** Clears set-group-ID unless the caller is in the file's group (chmod(2)). */
function allowedMode(mode: number, stats: BigIntStats, caller: Identity): number {
  const inGroup = caller.uid === 0 || caller.gids.includes(Number(stats.gid));
  return mode & (inGroup || stats.isDirectory() ? MODE_BITS : MODE_BITS & ~SET_GROUP_ID);
}

/** The checks the kernel makes for a local user. */
function demandRights(given: SetAttributes3, stats: BigIntStats, caller: Identity): void {
  if (given.size !== undefined) demandData(caller, stats, WRITE);
  const ofOwner = given.mode !== undefined || given.uid !== undefined || given.gid !== undefined;
  const someTime = typeof given.atime === 'object' || typeof given.mtime === 'object';
  if (ofOwner || someTime) demandOwner(caller, stats);
  else if (given.atime !== undefined || given.mtime !== undefined) demandData(caller, stats, WRITE);
  const gives = given.uid !== undefined && given.uid !== Number(stats.uid);
  if (gives && caller.uid !== 0) {
    throw new NfsFailure(Nfs3Status.perm, 'only user 0 gives files away');
  }
  const regroups = given.gid !== undefined && given.gid !== Number(stats.gid);
  if (regroups && caller.uid !== 0 && !caller.gids.includes(given.gid ?? 0)) {
    throw new NfsFailure(Nfs3Status.perm, `user ${caller.uid} is not in group ${given.gid}`);
  }
}

/** Clears set-user-ID and set-group-ID on a write, as the kernel does for a local user. */
export function* dropSetId(
  { calls }: ExportedTree,
  { fd, stats }: Located,
  caller: Identity,
): Steps<void> {
  const mode = Number(stats.mode) & MODE_BITS;
  if (caller.uid !== 0 && (mode & SET_ID_BITS) !== 0) {
    yield* settled(calls.chmod(descriptorPath(fd), mode & ~SET_ID_BITS));
  }
}

function* truncate(tree: ExportedTree, located: Located, size: bigint, visit: Visit): Steps<void> {
  if (located.stats.isDirectory())
    throw new NfsFailure(Nfs3Status.isdir, 'a directory has no size');
  if (size > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new NfsFailure(Nfs3Status.fbig, `a file of ${size} bytes`);
  }
  const fd = yield* tree.dataDescriptor(located, 'write', visit);
  yield* settled(tree.calls.truncate(fd, Number(size)));
}

function fileTime(time: SetTime3 | undefined): FileTime | undefined {
  return time === 'server' ? 'now' : time;
}
