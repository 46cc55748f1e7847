/**
 * Lists the names of a directory in a stable order.
 *
 * A client reads a directory in pieces and removes files meanwhile; each piece starts after the
 * cookie of the last name it received. Cookies here are hashes of names, and names are listed in
 * hash order: other names keep their place when one is added or removed, and the server keeps no
 * state between calls. ext4 does the same.
 */
import type { BigIntStats } from 'node:fs';
import { type DirectoryFiles, LISTINGS_AT_ONCE, Turns } from './directory-reader.ts';
import { descriptorPath, entryPath, type Located } from './exported-tree.ts';
import { inSlices, sortedInSlices } from './slices.ts';

/** Cookies of `.` and `..`, before all others; 0 is the start (RFC 1813 §3.3.16). */
export const SELF_COOKIE = 1;
export const PARENT_COOKIE = 2;

/** Names, one character per byte, and their cookies in ascending order. */
interface DirectoryListing {
  readonly names: readonly string[];
  readonly cookies: readonly number[];
}

/** Maximum cached directories, and maximum names cached for all but the latest. */
const LISTINGS_MAX = 16;
const NAMES_KEPT_MAX = 1 << 20;
/** A change time this recent may also be that of a later change: kernel clocks are coarse. */
const FRESH_NS = 100_000_000n;
const FIRST_HASH = 3;

interface KeptListing extends DirectoryListing {
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
}

/** Lists directories; caches recent lists while the directories do not change. */
export class DirectoryLister {
  readonly #kept = new Map<number, KeptListing>();
  readonly #turns = new Turns(LISTINGS_AT_ONCE);
  readonly #files: DirectoryFiles;
  #namesKept = 0;

  constructor(files: DirectoryFiles) {
    this.#files = files;
  }

  /** Runs the steps of one listing, when few others are in progress. */
  inTurn<T>(steps: () => Promise<T>): Promise<T> {
    return this.#turns.take(steps);
  }

  /** The file under `name`, not followed if it is a link; undefined if none exists. */
  async entryStats(directory: Located, name: string): Promise<BigIntStats | undefined> {
    return await this.#files.stats(entryPath(directory.fd, name));
  }

  /** The names in a directory except `.` and `..`. Rejects with the failed system call. */
  async list(directory: Located): Promise<DirectoryListing> {
    const { node, stats } = directory;
    const { mtimeNs, ctimeNs } = stats;
    const kept = this.#kept.get(node.id);
    this.#drop(node.id);
    const settled = BigInt(Date.now()) * 1_000_000n - ctimeNs > FRESH_NS;
    if (kept !== undefined && settled && kept.mtimeNs === mtimeNs && kept.ctimeNs === ctimeNs) {
      this.#keep(node.id, kept);
      return kept;
    }
    const found = await this.#files.names(`${descriptorPath(directory.fd)}/.`);
    const listing = await inOrder(found);
    // A list read before a change became visible would pass for the state after it.
    if (settled) this.#keep(node.id, { ...listing, mtimeNs, ctimeNs });
    return listing;
  }

  #keep(nodeId: number, listing: KeptListing): void {
    this.#drop(nodeId);
    this.#kept.set(nodeId, listing);
    this.#namesKept += listing.names.length;
    for (const id of this.#kept.keys()) {
      const full = this.#kept.size > LISTINGS_MAX || this.#namesKept > NAMES_KEPT_MAX;
      if (!full || id === nodeId) return;
      this.#drop(id);
    }
  }

  #drop(nodeId: number): void {
    this.#namesKept -= this.#kept.get(nodeId)?.names.length ?? 0;
    this.#kept.delete(nodeId);
  }
}

/** The index of the first name after `cookie`. */
export function indexAfter(listing: DirectoryListing, cookie: bigint): number {
  let low = 0;
  let high = listing.cookies.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const at = listing.cookies[middle];
    if (at !== undefined && BigInt(at) <= cookie) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Names by cookie. A directory of 200,000 names is read again after every change, so it is hashed,
 * sorted and listed in slices, with a turn of the event loop for others between them.
 */
async function inOrder(found: readonly string[]): Promise<DirectoryListing> {
  const hashes = new Float64Array(found.length);
  const order = await sortedInSlices(
    found.length,
    (at) => {
      hashes[at] = cookieOf(found[at] ?? '');
    },
    (left, right) => {
      const apart = (hashes[left] ?? 0) - (hashes[right] ?? 0);
      if (apart !== 0) return apart;
      return (found[left] ?? '') < (found[right] ?? '') ? -1 : 1;
    },
  );
  const names: string[] = [];
  const cookies: number[] = [];
  let last = PARENT_COOKIE;
  await inSlices(order.length, (place) => {
    const at = order[place] ?? 0;
    const hash = hashes[at] ?? 0;
    // Two names with the same hash: the second gets the next number.
    last = hash > last ? hash : last + 1;
    names.push(found[at] ?? '');
    cookies.push(last);
  });
  return { names, cookies };
}

/** A 53-bit hash, at least `FIRST_HASH`. */
export function cookieOf(name: string): number {
  let low = 0x811c_9dc5;
  let high = 0x1b87_3593;
  for (let at = 0; at < name.length; at++) {
    const byte = name.charCodeAt(at);
    low = Math.imul(low ^ byte, 0x0100_0193);
    high = Math.imul(high ^ byte, 0x85eb_ca6b);
    high ^= high >>> 13;
  }
  low ^= high >>> 15;
  low = Math.imul(low ^ (low >>> 16), 0x7feb_352d);
  high = Math.imul(high ^ (high >>> 15), 0x846c_a68b);
  return FIRST_HASH + ((high >>> 12) * 2 ** 32 + (low >>> 0));
}
