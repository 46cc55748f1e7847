/** GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, COMMIT (RFC 1813 §3.3). */
import { fdatasync, fsync } from 'node:fs';
import { promisify } from 'node:util';
import type { Handlers, ServerCall } from '#verbs-api/rpcrdma/rpc-service';
import { readBytes, writeBytes } from '../file-bytes.ts';
import type { DirectoryEntry3, WccAttributes3, WccData3 } from '../nfs3/attributes.ts';
import { Nfs3Status, StableHow } from '../nfs3/constants.ts';
import type {
  CommitArgs,
  CommitOk,
  ReadArgs,
  ReadOk,
  SetAttributesArgs,
  WriteArgs,
  WriteOk,
} from '../nfs3/file-procedures.ts';
import { NFS3 } from '../nfs3/nfs3-program.ts';
import type { ChangeFailure, ObjectFailure, Outcome3 } from '../nfs3/outcome.ts';
import { timeOf, wccAttributesOf } from './attributes-of.ts';
import type { Located } from './exported-tree.ts';
import { NfsFailure, statusOfError } from './nfs-failure.ts';
import { demand, demandData, EXECUTE, grantedAccess, READ, WRITE } from './permissions.ts';
import { checkedName, type ServedExport } from './served-export.ts';
import { dropSetId, setAttributes } from './set-attributes.ts';
import { type Eventually, present, type Steps, settled } from './steps.ts';
import type { Visit } from './visit.ts';

/** Maximum bytes of one READ or WRITE, as FSINFO reports. */
export const TRANSFER_MAX_BYTES = 1 << 20;

const OFFSET_MAX = BigInt(Number.MAX_SAFE_INTEGER);
const syncFile = promisify(fsync);
const syncData = promisify(fdatasync);
const NOTHING = new Uint8Array(0);

export function fileHandlers(served: ServedExport): Handlers<typeof NFS3> {
  return {
    getattr: (handle) => served.visit((visit) => getattr(served, handle, visit)),
    setattr: (args, call) =>
      served.duplicates.once(call, NFS3.procedures.setattr, args, () =>
        setattr(served, args, call),
      ),
    lookup: (args, call) => lookup(served, args, call),
    access: ({ object, access }, call) =>
      served.query(
        object,
        present(({ stats }) => {
          const { server, readOnly } = served;
          const caller = served.caller(call.credential);
          const granted = grantedAccess(access, caller, server, stats, readOnly);
          return { attributes: served.attributes(stats), access: granted };
        }),
      ),
    readlink: (handle) => readlink(served, handle),
    read: (args, call) => readData(served, args, call),
    write: (args, call) => writeData(served, args, call),
    commit: (args) => commit(served, args),
  };
}

function* getattr(served: ServedExport, handle: Uint8Array, visit: Visit) {
  try {
    const { stats } = yield* served.tree.locate(handle, visit);
    return { status: Nfs3Status.ok, ok: served.attributes(stats) };
  } catch (error) {
    return { status: statusOfError(error), fail: undefined };
  }
}

function setattr(
  served: ServedExport,
  { object, attributes, guardCtime }: SetAttributesArgs,
  call: ServerCall,
): Eventually<Outcome3<ChangeFailure, ChangeFailure>> {
  return served.change(object, function* (located, visit) {
    const ctime = timeOf(located.stats.ctimeNs);
    const { seconds, nanoseconds } = guardCtime ?? ctime;
    if (seconds !== ctime.seconds || nanoseconds !== ctime.nanoseconds) {
      throw new NfsFailure(Nfs3Status.notSync, 'the object has changed');
    }
    const caller = served.caller(call.credential);
    yield* setAttributes(served.tree, located, attributes, caller, visit);
    return { wcc: yield* served.wcc(located.stats, object, visit) };
  });
}

function lookup(served: ServedExport, args: DirectoryEntry3, call: ServerCall) {
  return served.query(args.directory, function* (directory, visit) {
    const { tree } = served;
    demandDirectory(directory);
    demand(served.caller(call.credential), directory.stats, EXECUTE);
    const name = checkedName(args.name);
    const directoryAttributes = served.attributes(directory.stats);
    if (name === '.' || name === '..') {
      // The parent of the root is the root: no path leads out of it.
      const found = name === '.' ? directory : yield* tree.parentOf(directory.node, visit);
      const attributes = served.attributes(found.stats);
      return { object: tree.handleOf(found.node), attributes, directoryAttributes };
    }
    const { moves } = tree;
    const stats = yield* tree.entryStats(directory, name);
    if (stats === undefined) throw new NfsFailure(Nfs3Status.noent, 'no such name');
    const object = tree.handleOf(tree.adopt(directory, name, stats, moves));
    return { object, attributes: served.attributes(stats), directoryAttributes };
  });
}

function readlink(served: ServedExport, handle: Uint8Array) {
  return served.query(handle, function* ({ node, stats }, visit) {
    const { tree } = served;
    const [place] = node.names;
    if (!stats.isSymbolicLink() || place === undefined) {
      throw new NfsFailure(Nfs3Status.inval, 'not a symbolic link');
    }
    const parent = yield* tree.locateNode(place.parent, visit);
    const path = yield* settled(tree.calls.readlink(tree.entry(parent, place.name)));
    return { attributes: served.attributes(stats), path };
  });
}

function readData(
  served: ServedExport,
  args: ReadArgs,
  call: ServerCall,
): Eventually<Outcome3<ReadOk, ObjectFailure>> {
  const { tree } = served;
  return served.query(args.file, function* (located, visit) {
    demandRegular(located);
    demandData(served.caller(call.credential), located.stats, READ);
    const left = located.stats.size - args.offset;
    const wanted = Math.min(args.count, TRANSFER_MAX_BYTES);
    if (wanted === 0 || left <= 0n || args.offset > OFFSET_MAX) {
      return { attributes: served.attributes(located.stats), eof: left <= 0n, data: NOTHING };
    }
    const fd = yield* tree.dataDescriptor(located, 'read', visit);
    const room = left < BigInt(wanted) ? Number(left) : wanted;
    const bytes = yield* settled(call.bulkBuffer(room));
    const inMemory = tree.isInMemory(located.node, fd);
    const target = bytes.subarray(0, room);
    const count = yield* settled(readBytes(fd, target, Number(args.offset), inMemory));
    const stats = yield* settled(tree.calls.fstat(fd));
    const eof = args.offset + BigInt(count) >= stats.size;
    return { attributes: served.attributes(stats), eof, data: bytes.subarray(0, count) };
  });
}

function writeData(
  served: ServedExport,
  args: WriteArgs,
  call: ServerCall,
): Eventually<Outcome3<WriteOk, ChangeFailure>> {
  const { tree } = served;
  return changeData(served, args.file, function* (located, wcc, visit) {
    const caller = served.caller(call.credential);
    demandData(caller, located.stats, WRITE);
    if (args.offset + BigInt(args.data.length) > OFFSET_MAX) {
      throw new NfsFailure(Nfs3Status.fbig, `bytes at ${args.offset}`);
    }
    const fd = yield* tree.dataDescriptor(located, 'write', visit);
    yield* dropSetId(tree, located, caller);
    // The verifier before the write: data lost from now on changes it.
    const verifier = served.writeVerifier;
    const bytes = args.data.subarray(0, TRANSFER_MAX_BYTES);
    const inMemory = tree.isInMemory(located.node, fd);
    const count = yield* settled(writeBytes(fd, bytes, Number(args.offset), inMemory));
    yield* settled(makeStable(served, fd, args.stable));
    return { wcc: yield* wcc(fd), count, committed: args.stable, verifier };
  });
}

function commit(
  served: ServedExport,
  args: CommitArgs,
): Eventually<Outcome3<CommitOk, ChangeFailure>> {
  return changeData(served, args.file, function* (located, wcc, visit) {
    const fd = yield* served.tree.dataDescriptor(located, 'write', visit);
    const verifier = served.writeVerifier;
    yield* settled(makeStable(served, fd, StableHow.fileSync));
    return { wcc: yield* wcc(fd), verifier };
  });
}

async function makeStable(served: ServedExport, fd: number, how: StableHow): Promise<void> {
  if (how === StableHow.unstable) return;
  try {
    await (how === StableHow.dataSync ? syncData(fd) : syncFile(fd));
  } catch (error) {
    // The system may have dropped bytes of earlier writes too.
    served.renewWriteVerifier();
    throw error;
  }
}

/** A change to a file's bytes; `wcc` reports the attributes before and after. */
type DataChange<O> = (
  located: Located,
  wcc: (fd: number) => Steps<WccData3>,
  visit: Visit,
) => Steps<O>;

/**
 * Executes a change to a file's bytes. Its `wcc` reports the state before only if no other change
 * ran concurrently, since a client attributes the difference to itself. The state after comes from a
 * descriptor of the file.
 */
function changeData<O>(
  served: ServedExport,
  file: Uint8Array,
  run: DataChange<O>,
): Eventually<Outcome3<O, ChangeFailure>> {
  return served.visit((visit) => dataSteps(served, file, run, visit));
}

function* dataSteps<O>(
  served: ServedExport,
  file: Uint8Array,
  run: DataChange<O>,
  visit: Visit,
): Steps<Outcome3<O, ChangeFailure>> {
  const { tree } = served;
  let before = (): WccAttributes3 | undefined => undefined;
  try {
    const node = tree.nodeOf(file);
    const alone = node.changing === 0;
    const change = ++node.changes;
    node.changing += 1;
    visit.hold(() => {
      node.changing -= 1;
    });
    const located = yield* tree.locateNode(node, visit);
    before = () => (alone && node.changes === change ? wccAttributesOf(located.stats) : undefined);
    const wcc = function* (fd: number): Steps<WccData3> {
      const after = served.attributes(yield* settled(tree.calls.fstat(fd)));
      return { before: before(), after };
    };
    served.demandWritable();
    demandRegular(located);
    return { status: Nfs3Status.ok, ok: yield* run(located, wcc, visit) };
  } catch (error) {
    const wcc = { before: before(), after: yield* served.attributesNow(file, visit) };
    return { status: statusOfError(error), fail: { wcc } };
  }
}

function demandDirectory({ stats }: Located): void {
  if (stats.isDirectory()) return;
  throw new NfsFailure(Nfs3Status.notdir, 'a file where a directory is needed');
}

function demandRegular({ stats }: Located): void {
  if (stats.isDirectory()) throw new NfsFailure(Nfs3Status.isdir, 'a directory');
  if (!stats.isFile()) throw new NfsFailure(Nfs3Status.inval, 'not a regular file');
}
