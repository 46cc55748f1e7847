/** READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF (RFC 1813 §3.3.16 to §3.3.20). */
import type { BigIntStats } from 'node:fs';
import { roundup } from '#verbs-api/rpcrdma/core/xdr-reader';
import type { Handlers } from '#verbs-api/rpcrdma/rpc-service';
import { FsProperty, Nfs3Status, VERIFIER_BYTES } from '../nfs3/constants.ts';
import {
  entryPlusSizeBytes,
  entrySizeBytes,
  LISTING_FRAME_MAX_BYTES,
  type ListedEntry,
  type ListedEntryPlus,
  type Listing,
} from '../nfs3/directory-procedures.ts';
import type { NFS3 } from '../nfs3/nfs3-program.ts';
import { fileIdOf } from './attributes-of.ts';
import { indexAfter, PARENT_COOKIE, SELF_COOKIE } from './directory-listing.ts';
import { descriptorPath, type Located } from './exported-tree.ts';
import { HANDLE_BYTES } from './file-handle.ts';
import { TRANSFER_MAX_BYTES } from './file-handlers.ts';
import { NfsFailure } from './nfs-failure.ts';
import { demand, type Identity, READ } from './permissions.ts';
import { NAME_MAX_BYTES, type ServedExport } from './served-export.ts';
import { present, type Steps, settled } from './steps.ts';
import type { Visit } from './visit.ts';

/** Maximum bytes of a listing, whatever the client allows: bounds the time of one call. */
const LISTING_MAX_BYTES = 256 * 1024;
const LISTING_PREFERRED_BYTES = 64 * 1024;
const BLOCK_BYTES = 4096;
const LINK_MAX = 32_000;
/** Cookies never expire, so there is nothing to verify. */
const COOKIE_VERIFIER = new Uint8Array(VERIFIER_BYTES);

/** The procedures that list directories and describe the file system. */
export function directoryHandlers(served: ServedExport): Handlers<typeof NFS3> {
  return {
    readdir: (args, call) =>
      served.query(args.directory, (located, visit) => {
        const room = Math.min(args.count, LISTING_MAX_BYTES) - LISTING_FRAME_MAX_BYTES;
        const budget = new EntryBudget(room, Number.POSITIVE_INFINITY, entrySizeBytes);
        const caller = served.caller(call.credential);
        const asked = { cookie: args.cookie, caller, budget, visit };
        return list(served, located, asked, (entry) => entry);
      }),
    readdirplus: (args, call) =>
      served.query(args.directory, (located, visit) => {
        const room = Math.min(args.maxCount, LISTING_MAX_BYTES) - LISTING_FRAME_MAX_BYTES;
        const budget = new EntryBudget(room, args.dirCount, (nameBytes) =>
          entryPlusSizeBytes(nameBytes, true, HANDLE_BYTES),
        );
        const caller = served.caller(call.credential);
        const asked = { cookie: args.cookie, caller, budget, visit };
        return list<ListedEntryPlus>(served, located, asked, (entry, found) => ({
          ...entry,
          attributes: served.attributes(found.stats),
          handle: served.tree.handleOf(found.node()),
        }));
      }),
    fsstat: (handle) => served.query(handle, ({ fd, stats }) => fsstat(served, fd, stats)),
    fsinfo: (handle) =>
      served.query(
        handle,
        present(({ stats }) => ({
          attributes: served.attributes(stats),
          readMax: TRANSFER_MAX_BYTES,
          readPreferred: TRANSFER_MAX_BYTES,
          readMultiple: BLOCK_BYTES,
          writeMax: TRANSFER_MAX_BYTES,
          writePreferred: TRANSFER_MAX_BYTES,
          writeMultiple: BLOCK_BYTES,
          directoryPreferred: LISTING_PREFERRED_BYTES,
          fileSizeMax: BigInt(Number.MAX_SAFE_INTEGER),
          timeGranularity: { seconds: 0, nanoseconds: 1 },
          properties:
            FsProperty.link | FsProperty.symlink | FsProperty.homogeneous | FsProperty.canSetTime,
        })),
      ),
    pathconf: (handle) =>
      served.query(
        handle,
        present(({ stats }) => ({
          attributes: served.attributes(stats),
          linkMax: LINK_MAX,
          nameMax: NAME_MAX_BYTES,
          noTrunc: true,
          chownRestricted: true,
          caseInsensitive: false,
          casePreserving: true,
        })),
      ),
  };
}

/** Counts entries up to a size limit. */
class EntryBudget {
  readonly #sizeOf: (nameBytes: number) => number;
  #roomBytes: number;
  #nameRoomBytes: number;
  #entries = 0;

  /** `nameRoomBytes` limits READDIRPLUS's directory information: id, name and cookie. */
  constructor(roomBytes: number, nameRoomBytes: number, sizeOf: (nameBytes: number) => number) {
    this.#roomBytes = roomBytes;
    this.#nameRoomBytes = nameRoomBytes;
    this.#sizeOf = sizeOf;
  }

  /** True if an entry with a name of this length still fits. */
  take(nameBytes: number): boolean {
    const sizeBytes = this.#sizeOf(nameBytes);
    if (sizeBytes > this.#roomBytes) return false;
    // Always takes the first entry, or a client with a small limit would make no progress.
    if (this.#entries > 0 && this.#nameRoomBytes <= 0) return false;
    this.#roomBytes -= sizeBytes;
    this.#nameRoomBytes -= 8 + 4 + roundup(nameBytes) + 8;
    this.#entries += 1;
    return true;
  }
}

/** A request for a part of a directory. */
interface Asked {
  readonly cookie: bigint;
  readonly caller: Identity;
  readonly budget: EntryBudget;
  readonly visit: Visit;
}

/** An entry, one character per byte. */
interface Found {
  readonly name: string;
  readonly cookie: number;
  readonly stats: BigIntStats;
  readonly node: () => Located['node'];
}

function* list<E extends ListedEntry>(
  served: ServedExport,
  directory: Located,
  asked: Asked,
  complete: (entry: ListedEntry, found: Found) => E,
): Steps<Listing<E>> {
  const { tree, lister, fsid } = served;
  const { node, stats } = directory;
  if (!stats.isDirectory()) throw new NfsFailure(Nfs3Status.notdir, 'not a directory');
  demand(asked.caller, stats, READ);
  const found: Found[] = [];
  tree.holdPath(node, asked.visit);
  const parent = yield* tree.parentOf(node, asked.visit);
  const eof = yield* settled(
    lister.inTurn(() => find(served, { directory, parent }, asked, found)),
  );
  // It may have been removed, or moved out of the export, while it was read.
  yield* tree.locateNode(node, asked.visit);
  if (!eof && found.length === 0) {
    throw new NfsFailure(Nfs3Status.toosmall, 'no room for a single entry');
  }
  const entries = found.map((each) => {
    const fileid = fileIdOf(each.stats, fsid);
    const name = Buffer.from(each.name, 'latin1');
    return complete({ fileid, name, cookie: BigInt(each.cookie) }, each);
  });
  return { attributes: served.attributes(stats), cookieVerifier: COOKIE_VERIFIER, entries, eof };
}

/** Adds the entries after the cookie that fit. True if the last one is among them. */
async function find(
  served: ServedExport,
  { directory, parent }: { readonly directory: Located; readonly parent: Located },
  { cookie, budget }: Asked,
  found: Found[],
): Promise<boolean> {
  const { tree, lister } = served;
  const { node, stats } = directory;
  if (cookie < SELF_COOKIE) {
    if (!budget.take(1)) return false;
    found.push({ name: '.', cookie: SELF_COOKIE, stats, node: () => node });
  }
  if (cookie < PARENT_COOKIE) {
    if (!budget.take(2)) return false;
    const { node: above } = parent;
    found.push({ name: '..', cookie: PARENT_COOKIE, stats: parent.stats, node: () => above });
  }
  const { names, cookies } = await lister.list(directory);
  for (let index = indexAfter({ names, cookies }, cookie); index < names.length; index++) {
    const name = names[index] ?? '';
    const { moves } = tree;
    const entry = await lister.entryStats(directory, name);
    // Removed since the names were read.
    if (entry === undefined) continue;
    if (!budget.take(name.length)) return false;
    const node = (): Located['node'] => tree.adopt(directory, name, entry, moves);
    found.push({ name, cookie: cookies[index] ?? 0, stats: entry, node });
  }
  return true;
}

function* fsstat(served: ServedExport, fd: number, stats: BigIntStats) {
  const found = yield* settled(served.tree.calls.statfs(descriptorPath(fd)));
  const { bsize, blocks, bfree, bavail, files, ffree } = found;
  return {
    attributes: served.attributes(stats),
    totalBytes: blocks * bsize,
    freeBytes: bfree * bsize,
    availableBytes: bavail * bsize,
    totalFiles: files,
    freeFiles: ffree,
    availableFiles: ffree,
    invariantSeconds: 0,
  };
}
