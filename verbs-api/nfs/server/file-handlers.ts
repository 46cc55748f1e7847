/** GETATTR, SETATTR, LOOKUP, ACCESS, READLINK, READ, WRITE, COMMIT (RFC 1813 §3.3). */
import { fdatasync, fstatSync, fsync, readlinkSync } from 'node:fs';
import { promisify } from 'node:util';
import type { Handlers, ServerCall } from '../../rpcrdma/rpc-service.ts';
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
import { entryPath, type Located } from './exported-tree.ts';
import { NfsFailure, statusOfError } from './nfs-failure.ts';
import { demand, demandData, EXECUTE, grantedAccess, READ, WRITE } from './permissions.ts';
import { checkedName, type ServedExport } from './served-export.ts';
import { dropSetId, setAttributes } from './set-attributes.ts';

/** Maximum bytes of one READ or WRITE, as FSINFO reports. */
export const TRANSFER_MAX_BYTES = 1 << 20;

const OFFSET_MAX = BigInt(Number.MAX_SAFE_INTEGER);
const syncFile = promisify(fsync);
const syncData = promisify(fdatasync);
const NOTHING = new Uint8Array(0);

/** The procedures on one file. */
export function fileHandlers(served: ServedExport): Handlers<typeof NFS3> {
  return {
    getattr: (handle) => {
      const outcome = served.query(handle, ({ stats }) => served.attributes(stats));
      return outcome.status === Nfs3Status.ok ? outcome : { ...outcome, fail: undefined };
    },
    setattr: (args, call) =>
      served.duplicates.once(call, NFS3.procedures.setattr, args, () =>
        setattr(served, args, call),
      ),
    lookup: (args, call) => lookup(served, args, call),
    access: ({ object, access }, call) =>
      served.query(object, ({ stats }) => {
        const { server, readOnly } = served;
        const caller = served.caller(call.credential);
        const granted = grantedAccess(access, caller, server, stats, readOnly);
        return { attributes: served.attributes(stats), access: granted };
      }),
    readlink: (handle) => readlink(served, handle),
    read: (args, call) => readData(served, args, call),
    write: (args, call) => writeData(served, args, call),
    commit: (args) => commit(served, args),
  };
}

function setattr(
  served: ServedExport,
  { object, attributes, guardCtime }: SetAttributesArgs,
  call: ServerCall,
): Outcome3<ChangeFailure, ChangeFailure> {
  return served.change(object, (located) => {
    const ctime = timeOf(located.stats.ctimeNs);
    const { seconds, nanoseconds } = guardCtime ?? ctime;
    if (seconds !== ctime.seconds || nanoseconds !== ctime.nanoseconds) {
      throw new NfsFailure(Nfs3Status.notSync, 'the object has changed');
    }
    setAttributes(served.tree, located, attributes, served.caller(call.credential));
    return { wcc: served.wcc(located.stats, object) };
  });
}

function lookup(served: ServedExport, args: DirectoryEntry3, call: ServerCall) {
  return served.query(args.directory, () => {
    const { tree } = served;
    const directory = tree.locateDirectory(args.directory);
    demand(served.caller(call.credential), directory.stats, EXECUTE);
    const name = checkedName(args.name);
    const directoryAttributes = served.attributes(directory.stats);
    if (name === '.' || name === '..') {
      // The parent of the root is the root: no path leads out of it.
      const found = name === '.' ? directory : tree.parentOf(directory.node);
      const attributes = served.attributes(found.stats);
      return { object: tree.handleOf(found.node), attributes, directoryAttributes };
    }
    const stats = tree.entryStats(directory, name);
    if (stats === undefined) throw new NfsFailure(Nfs3Status.noent, 'no such name');
    const object = tree.handleOf(tree.adopt(directory, name, stats));
    return { object, attributes: served.attributes(stats), directoryAttributes };
  });
}

function readlink(served: ServedExport, handle: Uint8Array) {
  return served.query(handle, ({ node, stats }) => {
    const [place] = node.names;
    if (!stats.isSymbolicLink() || place === undefined) {
      throw new NfsFailure(Nfs3Status.inval, 'not a symbolic link');
    }
    const parent = served.tree.locateNode(place.parent);
    const path = readlinkSync(entryPath(parent.fd, place.name), 'buffer');
    return { attributes: served.attributes(stats), path };
  });
}

async function readData(
  served: ServedExport,
  args: ReadArgs,
  call: ServerCall,
): Promise<Outcome3<ReadOk, ObjectFailure>> {
  const file = Uint8Array.from(args.file);
  try {
    const located = served.tree.locate(file);
    demandRegular(located);
    demandData(served.caller(call.credential), located.stats, READ);
    const left = located.stats.size - args.offset;
    const wanted = Math.min(args.count, TRANSFER_MAX_BYTES);
    if (wanted === 0 || left <= 0n || args.offset > OFFSET_MAX) {
      const attributes = served.attributes(located.stats);
      return { status: Nfs3Status.ok, ok: { attributes, eof: left <= 0n, data: NOTHING } };
    }
    const fd = served.tree.dataDescriptor(located, 'read');
    const done = served.tree.useData(located.node, 'read');
    try {
      const room = left < BigInt(wanted) ? Number(left) : wanted;
      const bytes = await call.bulkBuffer(room);
      const inMemory = served.tree.isInMemory(located.node, fd);
      const count = await readBytes(fd, bytes.subarray(0, room), Number(args.offset), inMemory);
      const stats = fstatSync(fd, { bigint: true });
      const eof = args.offset + BigInt(count) >= stats.size;
      const ok = { attributes: served.attributes(stats), eof, data: bytes.subarray(0, count) };
      return { status: Nfs3Status.ok, ok };
    } finally {
      done();
    }
  } catch (error) {
    return { status: statusOfError(error), fail: { attributes: served.attributesNow(file) } };
  }
}

async function writeData(
  served: ServedExport,
  args: WriteArgs,
  call: ServerCall,
): Promise<Outcome3<WriteOk, ChangeFailure>> {
  const file = Uint8Array.from(args.file);
  return await changeData(served, file, async (located, wcc) => {
    const caller = served.caller(call.credential);
    demandData(caller, located.stats, WRITE);
    if (args.offset + BigInt(args.data.length) > OFFSET_MAX) {
      throw new NfsFailure(Nfs3Status.fbig, `bytes at ${args.offset}`);
    }
    const fd = served.tree.dataDescriptor(located, 'write');
    dropSetId(located, caller);
    const done = served.tree.useData(located.node, 'write');
    try {
      // The verifier before the write: data lost from now on changes it.
      const verifier = served.writeVerifier;
      const bytes = args.data.subarray(0, TRANSFER_MAX_BYTES);
      const inMemory = served.tree.isInMemory(located.node, fd);
      const count = await writeBytes(fd, bytes, Number(args.offset), inMemory);
      await makeStable(served, fd, args.stable);
      return { wcc: wcc(fd), count, committed: args.stable, verifier };
    } finally {
      done();
    }
  });
}

async function commit(
  served: ServedExport,
  args: CommitArgs,
): Promise<Outcome3<CommitOk, ChangeFailure>> {
  const file = Uint8Array.from(args.file);
  return await changeData(served, file, async (located, wcc) => {
    const fd = served.tree.dataDescriptor(located, 'write');
    const done = served.tree.useData(located.node, 'write');
    try {
      const verifier = served.writeVerifier;
      await makeStable(served, fd, StableHow.fileSync);
      return { wcc: wcc(fd), verifier };
    } finally {
      done();
    }
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

/**
 * Executes an asynchronous change. Its `wcc` reports the state before only if no other change ran
 * concurrently, since a client attributes the difference to itself. The state after comes from a
 * descriptor of the file.
 */
async function changeData<O>(
  served: ServedExport,
  file: Uint8Array,
  run: (located: Located, wcc: (fd: number) => WccData3) => Promise<O>,
): Promise<Outcome3<O, ChangeFailure>> {
  let before = (): WccAttributes3 | undefined => undefined;
  try {
    const located = served.tree.locate(file);
    const { node, stats } = located;
    const alone = node.changing === 0;
    const change = ++node.changes;
    before = () => (alone && node.changes === change ? wccAttributesOf(stats) : undefined);
    const wcc = (fd: number): WccData3 => {
      const after = served.attributes(fstatSync(fd, { bigint: true }));
      return { before: before(), after };
    };
    served.demandWritable();
    demandRegular(located);
    node.changing += 1;
    try {
      return { status: Nfs3Status.ok, ok: await run(located, wcc) };
    } finally {
      node.changing -= 1;
    }
  } catch (error) {
    const wcc = { before: before(), after: served.attributesNow(file) };
    return { status: statusOfError(error), fail: { wcc } };
  }
}

function demandRegular({ stats }: Located): void {
  if (stats.isDirectory()) throw new NfsFailure(Nfs3Status.isdir, 'a directory');
  if (!stats.isFile()) throw new NfsFailure(Nfs3Status.inval, 'not a regular file');
}
