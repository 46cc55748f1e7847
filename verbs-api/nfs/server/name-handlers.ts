/** CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.8 to §3.3.15). */
import {
  type BigIntStats,
  chownSync,
  constants,
  fstatSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
} from 'node:fs';
import type { Handlers, ServerCall } from '../../rpcrdma/rpc-service.ts';
import type { DirectoryEntry3, SetAttributes3 } from '../nfs3/attributes.ts';
import { CreateMode, Nfs3Status } from '../nfs3/constants.ts';
import type {
  CreateArgs,
  CreatedOk,
  LinkArgs,
  LinkWcc,
  MakeDirectoryArgs,
  RenameArgs,
  RenameWcc,
  SymlinkArgs,
} from '../nfs3/name-procedures.ts';
import { NFS3 } from '../nfs3/nfs3-program.ts';
import type { ChangeFailure, Outcome3 } from '../nfs3/outcome.ts';
import { timeOf } from './attributes-of.ts';
import { descriptorPath, entryPath, type Located } from './exported-tree.ts';
import { NfsFailure } from './nfs-failure.ts';
import {
  demand,
  demandData,
  demandUnsticky,
  EXECUTE,
  type Identity,
  WRITE,
} from './permissions.ts';
import { checkedNewName, type ServedExport } from './served-export.ts';
import { setAttributes } from './set-attributes.ts';

const NEW_FILE =
  constants.O_RDWR |
  constants.O_CREAT |
  constants.O_EXCL |
  constants.O_NOFOLLOW |
  constants.O_NONBLOCK;
/** Default mode of a new file. */
const FILE_MODE = 0o644;
const OPENING_MODE = 0o600;
const DIRECTORY_MODE = 0o777;
const SET_GROUP_ID = 0o2000;
const { procedures } = NFS3;

/** The procedures on names. */
export function nameHandlers(served: ServedExport): Handlers<typeof NFS3> {
  const { duplicates } = served;
  return {
    create: (args, call) =>
      duplicates.once(call, procedures.create, args, () => create(served, args, call)),
    mkdir: (args, call) =>
      duplicates.once(call, procedures.mkdir, args, () => makeDirectory(served, args, call)),
    symlink: (args, call) =>
      duplicates.once(call, procedures.symlink, args, () => makeLink(served, args, call)),
    mknod: ({ where }) =>
      served.change(where.directory, () => {
        throw new NfsFailure(Nfs3Status.notsupp, 'no special files are made');
      }),
    remove: (args, call) =>
      duplicates.once(call, procedures.remove, args, () => remove(served, args, call, false)),
    rmdir: (args, call) =>
      duplicates.once(call, procedures.rmdir, args, () => remove(served, args, call, true)),
    rename: (args, call) =>
      duplicates.once(call, procedures.rename, args, () => rename(served, args, call)),
    link: (args, call) =>
      duplicates.once(call, procedures.link, args, () => link(served, args, call)),
  };
}

/** A directory in which the caller may change names. */
function changeable(served: ServedExport, handle: Uint8Array, caller: Identity): Located {
  const directory = served.tree.locateDirectory(handle);
  demand(caller, directory.stats, WRITE | EXECUTE);
  return directory;
}

/** Creates something under a name, and returns its handle and attributes. */
function makeEntry(
  served: ServedExport,
  where: DirectoryEntry3,
  call: ServerCall,
  make: (directory: Located, name: string, caller: Identity) => void,
): Outcome3<CreatedOk, ChangeFailure> {
  return served.change(where.directory, ({ stats: before }) => {
    const { tree } = served;
    const caller = served.caller(call.credential);
    const directory = changeable(served, where.directory, caller);
    const name = checkedNewName(where.name, Nfs3Status.exist);
    make(directory, name, caller);
    const stats = tree.entryStats(directory, name);
    const wcc = served.wcc(before, where.directory);
    if (stats === undefined) return { object: undefined, attributes: undefined, wcc };
    const object = tree.handleOf(tree.adopt(directory, name, stats));
    return { object, attributes: served.attributes(stats), wcc };
  });
}

function create(
  served: ServedExport,
  { where, how }: CreateArgs,
  call: ServerCall,
): Outcome3<CreatedOk, ChangeFailure> {
  return makeEntry(served, where, call, (directory, name, caller) => {
    const there = served.tree.entryStats(directory, name);
    if (how.mode === CreateMode.exclusive) {
      const times = verifierTimes(how.verifier);
      // A repeated call: the first reply was lost.
      if (there !== undefined && there.size === 0n && bearsTimes(there, times)) return;
      if (there !== undefined) throw new NfsFailure(Nfs3Status.exist, 'the file is there');
      newFile(served, directory, name, caller, times);
    } else if (there === undefined) {
      newFile(served, directory, name, caller, { mode: FILE_MODE, ...how.attributes });
    } else if (how.mode === CreateMode.guarded || !there.isFile()) {
      throw new NfsFailure(Nfs3Status.exist, 'the name is taken');
    } else {
      reuseFile(served, directory, name, there, caller, how.attributes.size);
    }
  });
}

/** Creates a file and keeps it open: its mode may prevent opening it again. */
function newFile(
  served: ServedExport,
  directory: Located,
  name: string,
  caller: Identity,
  attributes: SetAttributes3,
): void {
  const fd = openSync(entryPath(directory.fd, name), NEW_FILE, OPENING_MODE);
  const stats = fstatSync(fd, { bigint: true });
  const node = served.tree.adopt(directory, name, stats);
  served.tree.keepData(node, fd);
  try {
    furnish(served, directory, { node, fd, stats }, caller, attributes);
  } catch (error) {
    unlinkSync(entryPath(directory.fd, name));
    served.tree.removed(directory, name, stats);
    throw error;
  }
}

/** UNCHECKED on an existing file: only the size is applied. */
function reuseFile(
  served: ServedExport,
  directory: Located,
  name: string,
  stats: BigIntStats,
  caller: Identity,
  size: bigint | undefined,
): void {
  if (size === undefined) return;
  demandData(caller, stats, WRITE);
  const located = served.tree.locateNode(served.tree.adopt(directory, name, stats));
  setAttributes(served.tree, located, { size }, caller);
}

/**
 * Sets owner and attributes of a new file. A server running as root makes the caller the owner;
 * otherwise the server's user owns the file, whatever owner is requested.
 */
function furnish(
  served: ServedExport,
  directory: Located,
  made: Located,
  caller: Identity,
  attributes: SetAttributes3,
): void {
  if (served.server.uid !== 0) {
    const { uid: _owner, gid: _group, ...others } = attributes;
    setAttributes(served.tree, made, others, served.server);
    return;
  }
  const inherits = (Number(directory.stats.mode) & SET_GROUP_ID) !== 0;
  const gid = inherits ? Number(directory.stats.gid) : (caller.gids[0] ?? 0);
  chownSync(descriptorPath(made.fd), caller.uid, gid);
  const stats = fstatSync(made.fd, { bigint: true });
  setAttributes(served.tree, { ...made, stats }, attributes, caller);
}

/** An exclusive create stores its verifier in the times, until a SETATTR overwrites them. */
function verifierTimes(verifier: Uint8Array): SetAttributes3 {
  const words = new DataView(verifier.buffer, verifier.byteOffset, verifier.byteLength);
  // 31 bits of each: file systems with 32-bit times treat them as signed.
  const time = (at: number) => ({ seconds: words.getUint32(at) & 0x7fff_ffff, nanoseconds: 0 });
  return { atime: time(0), mtime: time(4) };
}

function bearsTimes(stats: BigIntStats, { atime, mtime }: SetAttributes3): boolean {
  const has = (ns: bigint, wanted: SetAttributes3['atime']) =>
    typeof wanted === 'object' && timeOf(ns).seconds === wanted.seconds;
  return stats.isFile() && has(stats.atimeNs, atime) && has(stats.mtimeNs, mtime);
}

function makeDirectory(
  served: ServedExport,
  { where, attributes }: MakeDirectoryArgs,
  call: ServerCall,
): Outcome3<CreatedOk, ChangeFailure> {
  return makeEntry(served, where, call, (directory, name, caller) => {
    mkdirSync(entryPath(directory.fd, name), { mode: DIRECTORY_MODE });
    finishEntry(served, directory, name, caller, attributes);
  });
}

function makeLink(
  served: ServedExport,
  { where, attributes, path }: SymlinkArgs,
  call: ServerCall,
): Outcome3<CreatedOk, ChangeFailure> {
  return makeEntry(served, where, call, (directory, name, caller) => {
    if (path.length === 0 || path.includes(0)) {
      throw new NfsFailure(Nfs3Status.inval, 'no path for a link');
    }
    symlinkSync(Buffer.from(path), entryPath(directory.fd, name));
    // A link has no mode of its own.
    const { mode: _none, ...others } = attributes;
    finishEntry(served, directory, name, caller, others);
  });
}

function finishEntry(
  served: ServedExport,
  directory: Located,
  name: string,
  caller: Identity,
  attributes: SetAttributes3,
): void {
  const stats = served.tree.entryStats(directory, name);
  if (stats === undefined) return;
  const located = served.tree.locateNode(served.tree.adopt(directory, name, stats));
  const { size: _none, ...others } = attributes;
  furnish(served, directory, located, caller, others);
}

function remove(
  served: ServedExport,
  where: DirectoryEntry3,
  call: ServerCall,
  isDirectory: boolean,
): Outcome3<ChangeFailure, ChangeFailure> {
  return served.change(where.directory, ({ stats: before }) => {
    const caller = served.caller(call.credential);
    const directory = changeable(served, where.directory, caller);
    const name = checkedNewName(where.name, Nfs3Status.inval);
    const stats = served.tree.entryStats(directory, name);
    if (stats === undefined) throw new NfsFailure(Nfs3Status.noent, 'no such name');
    demandUnsticky(caller, directory.stats, stats);
    const path = entryPath(directory.fd, name);
    if (isDirectory) rmdirSync(path);
    else if (stats.isDirectory()) throw new NfsFailure(Nfs3Status.isdir, 'a directory');
    else unlinkSync(path);
    served.tree.removed(directory, name, stats);
    return { wcc: served.wcc(before, where.directory) };
  });
}

function rename(
  served: ServedExport,
  { from, to }: RenameArgs,
  call: ServerCall,
): Outcome3<RenameWcc, RenameWcc> {
  const outcome = served.change(from.directory, ({ stats: fromBefore }) => {
    const { tree } = served;
    const caller = served.caller(call.credential);
    // The second lookup may close the first's descriptor if very few are allowed.
    const target = changeable(served, to.directory, caller);
    const source = changeable(served, from.directory, caller);
    const fromName = checkedNewName(from.name, Nfs3Status.inval);
    const toName = checkedNewName(to.name, Nfs3Status.inval);
    const moved = tree.entryStats(source, fromName);
    if (moved === undefined) throw new NfsFailure(Nfs3Status.noent, 'no such name');
    const replaced = tree.entryStats(target, toName);
    demandUnsticky(caller, source.stats, moved);
    if (replaced !== undefined) demandUnsticky(caller, target.stats, replaced);
    // Two names of the same file: nothing moves (RFC 1813 §3.3.14).
    const isSame = replaced?.ino === moved.ino && replaced.dev === moved.dev;
    renameSync(entryPath(source.fd, fromName), entryPath(target.fd, toName));
    if (!isSame) {
      if (replaced !== undefined) tree.removed(target, toName, replaced);
      tree.moved(source, fromName, target, toName, moved);
    }
    const fromWcc = served.wcc(fromBefore, from.directory);
    return { fromWcc, toWcc: served.wcc(target.stats, to.directory) };
  });
  if (outcome.status === Nfs3Status.ok) return outcome;
  const toWcc = { before: undefined, after: served.attributesNow(to.directory) };
  return { status: outcome.status, fail: { fromWcc: outcome.fail.wcc, toWcc } };
}

function link(
  served: ServedExport,
  { file, link: where }: LinkArgs,
  call: ServerCall,
): Outcome3<LinkWcc, LinkWcc> {
  const outcome = served.change(where.directory, ({ stats: before }) => {
    const { tree } = served;
    const directory = changeable(served, where.directory, served.caller(call.credential));
    const name = checkedNewName(where.name, Nfs3Status.exist);
    const { node, stats } = tree.locate(file);
    const [place] = node.names;
    if (stats.isDirectory() || place === undefined) {
      throw new NfsFailure(Nfs3Status.isdir, 'directories have no second name');
    }
    const parent = tree.locateNode(place.parent);
    linkSync(entryPath(parent.fd, place.name), entryPath(directory.fd, name));
    const made = tree.entryStats(directory, name);
    if (made === undefined || !tree.isFileOf(node, made)) {
      // Another file had taken the old name meanwhile.
      unlinkSync(entryPath(directory.fd, name));
      throw new NfsFailure(Nfs3Status.stale, 'the file is not where it was');
    }
    tree.adopt(directory, name, made);
    const attributes = served.attributes(made);
    return { attributes, wcc: served.wcc(before, where.directory) };
  });
  if (outcome.status === Nfs3Status.ok) return outcome;
  const attributes = served.attributesNow(file);
  return { status: outcome.status, fail: { attributes, wcc: outcome.fail.wcc } };
}
