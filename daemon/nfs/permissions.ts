/**
 * What a caller may do, by the mode of a file.
 *
 * The server does everything as the user that it runs as, so nobody gets more than that user has.
 * Within it, the user and groups that a caller names (AUTH_SYS) are held to the mode bits, as a
 * local user is. Nothing proves those names: user 0 of a client has all that the server's user has.
 */
import type { BigIntStats } from 'node:fs';
import type { Credential } from '../../verbs-api/rpcrdma/core/credential.ts';
import { Access3, Nfs3Status } from '../../verbs-api/rpcrdma/nfs3/constants.ts';
import { NfsFailure } from './nfs-failure.ts';

/** Bits of a mode class. */
export const READ = 4;
export const WRITE = 2;
export const EXECUTE = 1;

/** A user and its groups. */
export interface Identity {
  readonly uid: number;
  readonly gids: readonly number[];
}

/** Who calls without a name. */
const NOBODY: Identity = { uid: 65534, gids: [65534] };
const ALL = READ | WRITE | EXECUTE;

/** Who a caller says to be. */
export function identityOf(credential: Credential): Identity {
  if (credential.flavor !== 'sys') return NOBODY;
  return { uid: credential.uid, gids: [credential.gid, ...credential.gids] };
}

/** Who the server runs as. */
export function ownIdentity(): Identity {
  const gids = process.getgroups?.() ?? [];
  return { uid: process.geteuid?.() ?? 0, gids: [process.getegid?.() ?? 0, ...gids] };
}

/** Bits of `READ`, `WRITE`, `EXECUTE` that a local user would have. */
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

/** Throws `NfsFailure` acces unless the caller has all of `wanted`. */
export function demand(identity: Identity, stats: BigIntStats, wanted: number): void {
  if ((rightsOf(identity, stats) & wanted) !== wanted) {
    throw new NfsFailure(Nfs3Status.acces, `user ${identity.uid} may not`);
  }
}

/**
 * Throws `NfsFailure` acces unless the caller may read, or write, the octets of a file. Its owner
 * always may: a program that opened a file goes on after its mode has changed. What may be executed
 * may be read, since a client has no other way to execute it.
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

/** The sticky bit of a directory: only owners remove or move a name in it. */
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
 * The bits of `wanted` (`Access3`) that the caller has and the server can carry out (RFC 1813
 * §3.3.4).
 */
export function grantedAccess(
  wanted: number,
  caller: Identity,
  server: Identity,
  stats: BigIntStats,
  readOnly: boolean,
): number {
  const own = rightsOf(server, stats);
  // What the server's user owns it can open in any case.
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
