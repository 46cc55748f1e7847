/** CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.8 to §3.3.15). */
import { type BigIntStats, constants } from 'node:fs';
import type { Handlers, ServerCall } from '#verbs-api/rpcrdma/rpc-service';
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
import { descriptorPath, type Located } from './exported-tree.ts';
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
import { type Eventually, present, type Steps, settled } from './steps.ts';
import type { Visit } from './visit.ts';

const NEW_FILE =
  constants.O_RDWR |
  constants.O_CREAT |
  constants.O_EXCL |
  constants.O_NOFOLLOW |
  constants.O_NONBLOCK;
const FILE_MODE = 0o644;
const OPENING_MODE = 0o600;
const DIRECTORY_MODE = 0o777;
const SET_GROUP_ID = 0o2000;
const { procedures } = NFS3;

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
      served.change(
        where.directory,
        present(() => {
          throw new NfsFailure(Nfs3Status.notsupp, 'special files are not supported');
        }),
      ),
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
function* changeable(
  served: ServedExport,
  handle: Uint8Array,
  caller: Identity,
  visit: Visit,
): Steps<Located> {
  const directory = yield* served.tree.locateDirectory(handle, visit);
  demand(caller, directory.stats, WRITE | EXECUTE);
  return directory;
}

/** A creation: place, name and caller. */
interface Making {
  readonly directory: Located;
  readonly name: string;
  readonly caller: Identity;
  readonly visit: Visit;
}

/** Creates something under a name, and returns its handle and attributes. */
function makeEntry(
  served: ServedExport,
  where: DirectoryEntry3,
  call: ServerCall,
  make: (making: Making) => Steps<void>,
): Eventually<Outcome3<CreatedOk, ChangeFailure>> {
  return served.change(where.directory, function* ({ stats: before }, visit) {
    const { tree } = served;
    const caller = served.caller(call.credential);
    const directory = yield* changeable(served, where.directory, caller, visit);
    const name = checkedNewName(where.name, Nfs3Status.exist);
    yield* make({ directory, name, caller, visit });
    const { moves } = tree;
    const stats = yield* tree.entryStats(directory, name);
    const wcc = yield* served.wcc(before, where.directory, visit);
    if (stats === undefined) return { object: undefined, attributes: undefined, wcc };
    const object = tree.handleOf(tree.adopt(directory, name, stats, moves));
    return { object, attributes: served.attributes(stats), wcc };
  });
}

function create(
  served: ServedExport,
  { where, how }: CreateArgs,
  call: ServerCall,
): Eventually<Outcome3<CreatedOk, ChangeFailure>> {
  return makeEntry(served, where, call, function* (making) {
    const { directory, name } = making;
    const there = yield* served.tree.entryStats(directory, name);
    if (how.mode === CreateMode.exclusive) {
      const times = verifierTimes(how.verifier);
      // A repeated call: the first reply was lost.
      if (there !== undefined && there.size === 0n && bearsTimes(there, times)) return;
      if (there !== undefined) throw new NfsFailure(Nfs3Status.exist, 'the file is there');
      yield* newFile(served, making, times);
    } else if (there === undefined) {
      yield* newFile(served, making, { mode: FILE_MODE, ...how.attributes });
    } else if (how.mode === CreateMode.guarded || !there.isFile()) {
      throw new NfsFailure(Nfs3Status.exist, 'the name is taken');
    } else {
      yield* reuseFile(served, making, there, how.attributes.size);
    }
  });
}

/** Creates a file and keeps it open: its mode may prevent opening it again. */
function* newFile(served: ServedExport, making: Making, attributes: SetAttributes3): Steps<void> {
  const { directory, name, visit } = making;
  const { tree } = served;
  const { calls } = tree;
  const fd = yield* settled(calls.open(tree.entry(directory, name), NEW_FILE, OPENING_MODE));
  const { node, stats } = yield* newNode(served, making, fd);
  tree.keepData(node, fd, visit);
  try {
    yield* furnish(served, making, { node, fd, stats }, attributes);
  } catch (error) {
    yield* settled(calls.unlink(tree.entry(directory, name)));
    tree.removed(directory, name, stats);
    throw error;
  }
}

function* newNode(
  { tree }: ServedExport,
  { directory, name }: Making,
  fd: number,
): Steps<Pick<Located, 'node' | 'stats'>> {
  try {
    const stats = yield* settled(tree.calls.fstat(fd));
    return { node: tree.adopt(directory, name, stats), stats };
  } catch (error) {
    tree.calls.close(fd);
    throw error;
  }
}

/** UNCHECKED on an existing file: only the size is applied. */
function* reuseFile(
  { tree }: ServedExport,
  { directory, name, caller, visit }: Making,
  stats: BigIntStats,
  size: bigint | undefined,
): Steps<void> {
  if (size === undefined) return;
  demandData(caller, stats, WRITE);
  const located = yield* tree.locateNode(tree.adopt(directory, name, stats), visit);
  yield* setAttributes(tree, located, { size }, caller, visit);
}

/**
 * Sets owner and attributes of a new file. A server running as root makes the caller the owner;
 * otherwise the server's user owns the file, whatever owner is requested.
 */
function* furnish(
  served: ServedExport,
  { directory, caller, visit }: Making,
  made: Located,
  attributes: SetAttributes3,
): Steps<void> {
  const { tree } = served;
  if (served.server.uid !== 0) {
    const { uid: _owner, gid: _group, ...others } = attributes;
    yield* setAttributes(tree, made, others, served.server, visit);
    return;
  }
  const inherits = (Number(directory.stats.mode) & SET_GROUP_ID) !== 0;
  const gid = inherits ? Number(directory.stats.gid) : (caller.gids[0] ?? 0);
  yield* settled(tree.calls.chown(descriptorPath(made.fd), caller.uid, gid));
  const stats = yield* settled(tree.calls.fstat(made.fd));
  yield* setAttributes(tree, { ...made, stats }, attributes, caller, visit);
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
): Eventually<Outcome3<CreatedOk, ChangeFailure>> {
  return makeEntry(served, where, call, function* (making) {
    const { directory, name } = making;
    const { tree } = served;
    yield* settled(tree.calls.mkdir(tree.entry(directory, name), DIRECTORY_MODE));
    yield* finishEntry(served, making, attributes);
  });
}

function makeLink(
  served: ServedExport,
  { where, attributes, path }: SymlinkArgs,
  call: ServerCall,
): Eventually<Outcome3<CreatedOk, ChangeFailure>> {
  return makeEntry(served, where, call, function* (making) {
    const { directory, name } = making;
    if (path.length === 0 || path.includes(0)) {
      throw new NfsFailure(Nfs3Status.inval, 'no path for a link');
    }
    const { tree } = served;
    yield* settled(tree.calls.symlink(Buffer.from(path), tree.entry(directory, name)));
    // A link has no mode of its own.
    const { mode: _none, ...others } = attributes;
    yield* finishEntry(served, making, others);
  });
}

function* finishEntry(
  served: ServedExport,
  making: Making,
  attributes: SetAttributes3,
): Steps<void> {
  const { tree } = served;
  const { directory, name, visit } = making;
  const stats = yield* tree.entryStats(directory, name);
  if (stats === undefined) return;
  const located = yield* tree.locateNode(tree.adopt(directory, name, stats), visit);
  const { size: _none, ...others } = attributes;
  yield* furnish(served, making, located, others);
}

function remove(
  served: ServedExport,
  where: DirectoryEntry3,
  call: ServerCall,
  isDirectory: boolean,
): Eventually<Outcome3<ChangeFailure, ChangeFailure>> {
  return served.change(where.directory, function* ({ stats: before }, visit) {
    const { tree } = served;
    const caller = served.caller(call.credential);
    const directory = yield* changeable(served, where.directory, caller, visit);
    const name = checkedNewName(where.name, Nfs3Status.inval);
    const stats = yield* toRemove(served, directory, name, visit);
    if (stats === undefined) throw new NfsFailure(Nfs3Status.noent, 'no such name');
    demandUnsticky(caller, directory.stats, stats);
    const { calls } = tree;
    if (isDirectory) yield* settled(calls.rmdir(tree.entry(directory, name)));
    else if (stats.isDirectory()) throw new NfsFailure(Nfs3Status.isdir, 'a directory');
    else yield* settled(calls.unlink(tree.entry(directory, name)));
    tree.removed(directory, name, stats);
    return { wcc: yield* served.wcc(before, where.directory, visit) };
  });
}

/** The file under `name`, which gets no other name before the visit ends. */
function* toRemove(
  served: ServedExport,
  directory: Located,
  name: string,
  visit: Visit,
): Steps<BigIntStats | undefined> {
  const { tree } = served;
  const stats = yield* tree.entryStats(directory, name);
  if (!tree.calls.waits || stats === undefined || stats.isDirectory()) return stats;
  yield* served.lockOne(tree.adopt(directory, name, stats), visit);
  return yield* tree.entryStats(directory, name);
}

function rename(
  served: ServedExport,
  args: RenameArgs,
  call: ServerCall,
): Eventually<Outcome3<RenameWcc, RenameWcc>> {
  return served.visit((visit) => renameSteps(served, args, call, visit));
}

function* renameSteps(
  served: ServedExport,
  { from, to }: RenameArgs,
  call: ServerCall,
  visit: Visit,
): Steps<Outcome3<RenameWcc, RenameWcc>> {
  const steps = function* ({ stats: fromBefore }: Located): Steps<RenameWcc> {
    const { tree } = served;
    const caller = served.caller(call.credential);
    const target = yield* changeable(served, to.directory, caller, visit);
    const source = yield* changeable(served, from.directory, caller, visit);
    const fromName = checkedNewName(from.name, Nfs3Status.inval);
    const toName = checkedNewName(to.name, Nfs3Status.inval);
    const moved = yield* tree.entryStats(source, fromName);
    if (moved === undefined) throw new NfsFailure(Nfs3Status.noent, 'no such name');
    const replaced = yield* tree.entryStats(target, toName);
    demandUnsticky(caller, source.stats, moved);
    if (replaced !== undefined) demandUnsticky(caller, target.stats, replaced);
    // Two names of the same file: nothing moves (RFC 1813 §3.3.14).
    const isSame = replaced?.ino === moved.ino && replaced.dev === moved.dev;
    const oldPath = tree.entry(source, fromName);
    yield* settled(tree.calls.rename(oldPath, tree.entry(target, toName)));
    if (!isSame) {
      if (replaced !== undefined) tree.removed(target, toName, replaced);
      tree.moved(source, fromName, target, toName, moved);
    }
    const fromWcc = yield* served.wcc(fromBefore, from.directory, visit);
    return { fromWcc, toWcc: yield* served.wcc(target.stats, to.directory, visit) };
  };
  const outcome = yield* settled(served.change(from.directory, steps, [to.directory]));
  if (outcome.status === Nfs3Status.ok) return outcome;
  const toWcc = { before: undefined, after: yield* served.attributesNow(to.directory, visit) };
  return { status: outcome.status, fail: { fromWcc: outcome.fail.wcc, toWcc } };
}

function link(
  served: ServedExport,
  args: LinkArgs,
  call: ServerCall,
): Eventually<Outcome3<LinkWcc, LinkWcc>> {
  return served.visit((visit) => linkSteps(served, args, call, visit));
}

function* linkSteps(
  served: ServedExport,
  { file, link: where }: LinkArgs,
  call: ServerCall,
  visit: Visit,
): Steps<Outcome3<LinkWcc, LinkWcc>> {
  const steps = function* ({ stats: before }: Located): Steps<LinkWcc> {
    const { tree } = served;
    const caller = served.caller(call.credential);
    const directory = yield* changeable(served, where.directory, caller, visit);
    const name = checkedNewName(where.name, Nfs3Status.exist);
    const { node, stats } = yield* tree.locate(file, visit);
    const [place] = node.names;
    if (stats.isDirectory() || place === undefined) {
      throw new NfsFailure(Nfs3Status.isdir, 'directories have no second name');
    }
    if (tree.calls.waits) yield* served.lockOne(node, visit);
    const parent = yield* tree.locateNode(place.parent, visit);
    const oldPath = tree.entry(parent, place.name);
    yield* settled(tree.calls.link(oldPath, tree.entry(directory, name)));
    const made = yield* tree.entryStats(directory, name);
    if (made === undefined || !tree.isFileOf(node, made)) {
      // Another file had taken the old name meanwhile.
      yield* settled(tree.calls.unlink(tree.entry(directory, name)));
      throw new NfsFailure(Nfs3Status.stale, 'the file is not where it was');
    }
    tree.adopt(directory, name, made);
    const attributes = served.attributes(made);
    return { attributes, wcc: yield* served.wcc(before, where.directory, visit) };
  };
  const outcome = yield* settled(served.change(where.directory, steps));
  if (outcome.status === Nfs3Status.ok) return outcome;
  const attributes = yield* served.attributesNow(file, visit);
  return { status: outcome.status, fail: { attributes, wcc: outcome.fail.wcc } };
}
