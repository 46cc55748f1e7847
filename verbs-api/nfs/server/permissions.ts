/**
 * Checks callers' rights by the mode of a file.
 *
 * The server accesses files as the user it runs as, so no caller gets more rights than that user.
 * Within those, the user and groups that a caller claims (AUTH_SYS) are checked against the mode
 * bits, like a local user's. The claims are not authenticated. User 0 of a client is mapped to the
 * user nobody, unless the export says otherwise; then it has all rights of the server's user.
 */
import type { BigIntStats } from 'node:fs';
import type { Credential } from '#verbs-api/rpcrdma/core/credential';
import { Access3, Nfs3Status } from '../nfs3/constants.ts';
import { NfsFailure } from './nfs-failure.ts';

/** Permission bits of one class. */
export const READ = 4;
export const WRITE = 2;
export const EXECUTE = 1;

export interface Identity {
  readonly uid: number;
  readonly gids: readonly number[];
}

/** The identity of callers without one. */
const NOBODY: Identity = { uid: 65534, gids: [65534] };
const ALL = READ | WRITE | EXECUTE;

/** The identity a caller claims. */
export function identityOf(credential: Credential): Identity {
  if (credential.flavor !== 'sys') return NOBODY;
  return { uid: credential.uid, gids: [credential.gid, ...credential.gids] };
}

/** Maps user 0 and group 0 to the user nobody and its group. */
export function squashed({ uid, gids }: Identity): Identity {
  if (uid === 0) return NOBODY;
  return gids.includes(0) ? { uid, gids: gids.filter((gid) => gid !== 0) } : { uid, gids };
}

export function ownIdentity(): Identity {
  const gids = process.getgroups?.() ?? [];
  return { uid: process.geteuid?.() ?? 0, gids: [process.getegid?.() ?? 0, ...gids] };
}

/** The `READ`, `WRITE`, `EXECUTE` bits that a local user would have. */
export function rightsOf(identity: Identity, stats: BigIntStats): number {
  const mode = Number(stats.mode);
  if (identity.uid === 0) {
    const executable = stats.isDirectory() || (mode & 0o111) !== 0;
    return executable ? ALL : READ | WRITE;
  }
  if (identity.uid === Number(stats.uid)) return (mode >> 6) & ALL;
  if (identity.gids.includes(Number(stats.gid))) return (mode >> 3) & ALL;
  return mode & ALL;
}

/** Throws `NfsFailure` acces unless the caller has all rights in `wanted`. */
export function demand(identity: Identity, stats: BigIntStats, wanted: number): void {
  if ((rightsOf(identity, stats) & wanted) !== wanted) {
    throw new NfsFailure(Nfs3Status.acces, `user ${identity.uid} may not`);
  }
}

/**
 * Throws `NfsFailure` acces unless the caller may read or write the file's data. Its owner always
 * may: a program can continue to use an open file after its mode changed. Execute permission allows
 * reading, since a client cannot execute a file otherwise.
 */
export function demandData(identity: Identity, stats: BigIntStats, wanted: number): void {
  if (identity.uid === Number(stats.uid)) return;
  const rights = rightsOf(identity, stats);
  const enough = wanted === READ ? (rights & (READ | EXECUTE)) !== 0 : (rights & wanted) !== 0;
  if (!enough) throw new NfsFailure(Nfs3Status.acces, `user ${identity.uid} may not`);
}

/** Throws `NfsFailure` perm unless the caller owns the file. */
export function demandOwner(identity: Identity, stats: BigIntStats): void {
  if (identity.uid !== 0 && identity.uid !== Number(stats.uid)) {
    throw new NfsFailure(Nfs3Status.perm, `user ${identity.uid} does not own it`);
  }
}

/** Enforces a directory's sticky bit: only owners may remove or move a name in it. */
export function demandUnsticky(
  identity: Identity,
  directory: BigIntStats,
  entry: BigIntStats,
): void {
  if ((Number(directory.mode) & 0o1000) === 0) return;
  if (identity.uid === Number(directory.uid)) return;
  demandOwner(identity, entry);
}

/**
 * The bits of `wanted` (`Access3`) that the caller has and the server can perform (RFC 1813 §3.3.4).
 */
export function grantedAccess(
  wanted: number,
  caller: Identity,
  server: Identity,
  stats: BigIntStats,
  readOnly: boolean,
): number {
  const own = rightsOf(server, stats);
  // The server can always open files that its user owns.
  const reachable = stats.isFile() && server.uid === Number(stats.uid) ? own | READ | WRITE : own;
  const rights = rightsOf(caller, stats) & reachable;
  let granted = 0;
  if ((rights & READ) !== 0) granted |= Access3.read;
  if ((rights & WRITE) !== 0 && !readOnly) granted |= Access3.modify | Access3.extend;
  if (stats.isDirectory()) {
    if ((rights & EXECUTE) !== 0) granted |= Access3.lookup;
    if ((rights & WRITE) !== 0 && !readOnly) granted |= Access3.delete;
  } else if ((rights & EXECUTE) !== 0) {
    granted |= Access3.execute;
  }
  return granted & wanted;
}
