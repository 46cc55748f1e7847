/**
 * The names of a directory in an order that lasts.
 *
 * A client reads a directory in pieces and removes files meanwhile; each piece starts behind the
 * cookie of the last name that it saw. A cookie here is a hash of the name, and names are listed by
 * it: whatever is added or removed, the other names keep their place, and nothing has to be
 * remembered between two calls. That is what ext4 does, too.
 */
import { readdirSync } from 'node:fs';
import { descriptorPath, type Located } from './exported-tree.ts';

/** Cookies of `.` and `..`, ahead of all others; 0 is the start (RFC 1813 §3.3.16). */
export const SELF_COOKIE = 1;
export const PARENT_COOKIE = 2;

/** Names, one character for each octet, and their cookies, which ascend. */
export interface DirectoryListing {
  readonly names: readonly string[];
  readonly cookies: readonly number[];
}

/** Directories whose names are kept for the next piece, and names of all of them but the last. */
const LISTINGS_MAX = 16;
const NAMES_KEPT_MAX = 1 << 20;
/** A time of change this fresh may be that of a later change as well: clocks of kernels are coarse. */
const FRESH_NS = 100_000_000n;
const FIRST_HASH = 3;

interface KeptListing extends DirectoryListing {
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
}

/** Lists directories, and keeps the last lists while the directories do not change. */
export class DirectoryLister {
  readonly #kept = new Map<number, KeptListing>();
  #namesKept = 0;

  /** The names of a directory, `.` and `..` apart. Throws the failed system call. */
  list(directory: Located): DirectoryListing {
    const { node, stats } = directory;
    const { mtimeNs, ctimeNs } = stats;
    const kept = this.#kept.get(node.id);
    this.#drop(node.id);
    const settled = BigInt(Date.now()) * 1_000_000n - ctimeNs > FRESH_NS;
    if (kept !== undefined && settled && kept.mtimeNs === mtimeNs && kept.ctimeNs === ctimeNs) {
      this.#keep(node.id, kept);
      return kept;
    }
    const listing = listNames(directory.fd);
    // Read before the change was seen, it would pass for the state after it.
    if (settled) this.#keep(node.id, { ...listing, mtimeNs, ctimeNs });
    return listing;
  }

  #keep(nodeId: number, listing: KeptListing): void {
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

/** The index of the first name behind `cookie`. */
export function indexBehind(listing: DirectoryListing, cookie: bigint): number {
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

function listNames(fd: number): DirectoryListing {
  const octets = readdirSync(`${descriptorPath(fd)}/.`, { encoding: 'buffer' });
  const entries = octets.map((name) => {
    const text = name.toString('latin1');
    return { name: text, cookie: cookieOf(text) };
  });
  entries.sort((a, b) => a.cookie - b.cookie || (a.name < b.name ? -1 : 1));
  const cookies: number[] = [];
  let last = PARENT_COOKIE;
  for (const { cookie } of entries) {
    // Two names of one hash: the second gets the next number.
    last = cookie > last ? cookie : last + 1;
    cookies.push(last);
  }
  return { names: entries.map(({ name }) => name), cookies };
}

/** A hash of 53 bits, at least `FIRST_HASH`. */
export function cookieOf(name: string): number {
  let low = 0x811c_9dc5;
  let high = 0x1b87_3593;
  for (let at = 0; at < name.length; at++) {
    const octet = name.charCodeAt(at);
    low = Math.imul(low ^ octet, 0x0100_0193);
    high = Math.imul(high ^ octet, 0x85eb_ca6b);
    high ^= high >>> 13;
  }
  low ^= high >>> 15;
  low = Math.imul(low ^ (low >>> 16), 0x7feb_352d);
  high = Math.imul(high ^ (high >>> 15), 0x846c_a68b);
  return FIRST_HASH + ((high >>> 12) * 2 ** 32 + (low >>> 0));
}
