/** READDIR, READDIRPLUS, FSSTAT, FSINFO, PATHCONF (RFC 1813 §3.3.16 to §3.3.20). */
import { type BigIntStats, statfsSync } from 'node:fs';
import { roundup } from '../../rpcrdma/core/xdr-reader.ts';
import type { Handlers } from '../../rpcrdma/rpc-service.ts';
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
import { indexBehind, PARENT_COOKIE, SELF_COOKIE } from './directory-listing.ts';
import { descriptorPath, type Located } from './exported-tree.ts';
import { HANDLE_BYTES } from './file-handle.ts';
import { TRANSFER_MAX_BYTES } from './file-handlers.ts';
import { NfsFailure } from './nfs-failure.ts';
import { demand, type Identity, READ } from './permissions.ts';
import { NAME_MAX_BYTES, type ServedExport } from './served-export.ts';

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
      served.query(args.directory, (located) => {
        const room = Math.min(args.count, LISTING_MAX_BYTES) - LISTING_FRAME_MAX_BYTES;
        const entries = new EntryBudget<ListedEntry>(room, Number.POSITIVE_INFINITY, (entry) =>
          entrySizeBytes(entry.name.length),
        );
        const caller = served.caller(call.credential);
        return list(served, located, args.cookie, caller, entries, (entry) => entry);
      }),
    readdirplus: (args, call) =>
      served.query(args.directory, (located) => {
        const room = Math.min(args.maxCount, LISTING_MAX_BYTES) - LISTING_FRAME_MAX_BYTES;
        const entries = new EntryBudget<ListedEntryPlus>(room, args.dirCount, (entry) =>
          entryPlusSizeBytes(entry.name.length, true, HANDLE_BYTES),
        );
        const caller = served.caller(call.credential);
        return list(served, located, args.cookie, caller, entries, (entry, found) => ({
          ...entry,
          attributes: served.attributes(found.stats),
          handle: served.tree.handleOf(found.node()),
        }));
      }),
    fsstat: (handle) => served.query(handle, ({ fd, stats }) => fsstat(served, fd, stats)),
    fsinfo: (handle) =>
      served.query(handle, ({ stats }) => ({
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
    pathconf: (handle) =>
      served.query(handle, ({ stats }) => ({
        attributes: served.attributes(stats),
        linkMax: LINK_MAX,
        nameMax: NAME_MAX_BYTES,
        noTrunc: true,
        chownRestricted: true,
        caseInsensitive: false,
        casePreserving: true,
      })),
  };
}

/** Collects entries up to a size limit. */
class EntryBudget<E extends ListedEntry> {
  readonly entries: E[] = [];
  readonly #sizeOf: (entry: E) => number;
  #roomBytes: number;
  #nameRoomBytes: number;

  /** `nameRoomBytes` limits READDIRPLUS's directory information: id, name and cookie. */
  constructor(roomBytes: number, nameRoomBytes: number, sizeOf: (entry: E) => number) {
    this.#roomBytes = roomBytes;
    this.#nameRoomBytes = nameRoomBytes;
    this.#sizeOf = sizeOf;
  }

  /** Returns false if the entry does not fit. */
  add(entry: E): boolean {
    const sizeBytes = this.#sizeOf(entry);
    if (sizeBytes > this.#roomBytes) return false;
    // Always returns the first entry, or a client with a small limit would make no progress.
    if (this.entries.length > 0 && this.#nameRoomBytes <= 0) return false;
    this.#roomBytes -= sizeBytes;
    this.#nameRoomBytes -= 8 + 4 + roundup(entry.name.length) + 8;
    this.entries.push(entry);
    return true;
  }
}

interface Found {
  readonly stats: BigIntStats;
  readonly node: () => Located['node'];
}

function list<E extends ListedEntry>(
  served: ServedExport,
  directory: Located,
  cookie: bigint,
  caller: Identity,
  budget: EntryBudget<E>,
  complete: (entry: ListedEntry, found: Found) => E,
): Listing<E> {
  const { tree, fsid } = served;
  const { node, stats } = directory;
  if (!stats.isDirectory()) throw new NfsFailure(Nfs3Status.notdir, 'not a directory');
  demand(caller, stats, READ);
  const add = (name: string, at: number, found: Found): boolean =>
    budget.add(
      complete(
        {
          fileid: fileIdOf(found.stats, fsid),
          name: Buffer.from(name, 'latin1'),
          cookie: BigInt(at),
        },
        found,
      ),
    );
  const answer = (eof: boolean): Listing<E> => {
    if (!eof && budget.entries.length === 0) {
      throw new NfsFailure(Nfs3Status.toosmall, 'no room for a single entry');
    }
    const attributes = served.attributes(stats);
    return { attributes, cookieVerifier: COOKIE_VERIFIER, entries: budget.entries, eof };
  };
  if (cookie < SELF_COOKIE && !add('.', SELF_COOKIE, { stats, node: () => node })) {
    return answer(false);
  }
  if (cookie < PARENT_COOKIE) {
    const parent = tree.parentOf(node);
    const found = { stats: parent.stats, node: () => parent.node };
    if (!add('..', PARENT_COOKIE, found)) return answer(false);
  }
  const listing = served.lister.list(directory);
  for (let index = indexBehind(listing, cookie); index < listing.names.length; index++) {
    const name = listing.names[index] ?? '';
    const entry = tree.entryStats(directory, name);
    // Removed since the names were read.
    if (entry === undefined) continue;
    const found = { stats: entry, node: () => tree.adopt(directory, name, entry) };
    if (!add(name, listing.cookies[index] ?? 0, found)) return answer(false);
  }
  return answer(true);
}

function fsstat(served: ServedExport, fd: number, stats: BigIntStats) {
  const { bsize, blocks, bfree, bavail, files, ffree } = statfsSync(descriptorPath(fd), {
    bigint: true,
  });
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
