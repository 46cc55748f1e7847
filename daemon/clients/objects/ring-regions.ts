/**
 * The rings of one client, carved out of a few shared files. Both sides map each file once, so a ring
 * costs neither a descriptor nor a mapping nor a message, and a small one less than a page.
 *
 * A client can write anywhere in its files at any time, as it can in each of its rings.
 */
import type { MappingRef } from '#contract/protocol/commands';
import { SharedMemory } from '#native-bridge/libc/shared-memory';
import type { SharedAllocation } from './client-memory.ts';
import { takeFor, type UserShare } from './daemon-budget.ts';
import { FreeSpace } from './free-space.ts';

/** Rings start on a cache line. */
const ALIGNMENT_BYTES = 64;
const PAGE_BYTES = 4096;
/** Length of the first file; each later one is twice as long, up to a maximum. */
const FIRST_REGION_BYTES = 256 * 1024;
const LAST_REGION_BYTES = 16 * 2 ** 20;
/** Divisor of a file's length: a ring longer than the quotient gets separate memory. */
const SHARE_MAX = 4;
/** Files per client, each with a descriptor: 1 GiB of rings. Further rings get separate memory. */
const REGIONS_MAX = 64;
/** Bytes of released rings whose pages are kept for later rings. */
const KEPT_MAX_BYTES = 2 ** 20;

interface Region {
  readonly token: string;
  readonly memory: SharedMemory;
  readonly space: FreeSpace;
  /** Bytes from this offset on were never part of a ring. */
  fresh: number;
}

/** Space that a ring takes in its file. */
function takenBytes(lengthBytes: number): number {
  return Math.ceil(lengthBytes / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
}

/** A ring in a file. Its token is needed only once, so it is not stored. */
class CarvedRing implements SharedAllocation {
  readonly view: Uint8Array;
  readonly #regions: RingRegions;
  readonly #region: Region;
  readonly #offset: number;
  #held = true;

  constructor(regions: RingRegions, region: Region, offset: number, view: Uint8Array) {
    this.#regions = regions;
    this.#region = region;
    this.#offset = offset;
    this.view = view;
  }

  get mapping(): MappingRef {
    const { token, memory } = this.#region;
    const within = { offset: this.#offset, lengthBytes: memory.lengthBytes };
    return { token, lengthBytes: this.view.length, within };
  }

  release(): void {
    if (!this.#held) return;
    this.#held = false;
    this.#regions.give(this.#region, this.#offset, takenBytes(this.view.length));
  }
}

/**
 * Creates shared memory and charges its mapping and descriptor to `share`; the caller returns them.
 * Throws `SystemCallError` and the limit's error.
 */
export function createMapped(lengthBytes: number, share: UserShare | undefined): SharedMemory {
  return takeFor(share, ['mappings', 'descriptors'], () =>
    SharedMemory.create('iwarpd', lengthBytes),
  );
}

export class RingRegions {
  readonly #newToken: () => string;
  readonly #share: UserShare | undefined;
  readonly #regions = new Map<string, Region>();
  #nextBytes = FIRST_REGION_BYTES;
  #keptBytes = 0;

  /** `share`, if any, is charged for each file. */
  constructor(newToken: () => string, share?: UserShare) {
    this.#newToken = newToken;
    this.#share = share;
  }

  /**
   * Creates a ring of zero bytes; returns undefined if it needs separate memory. Throws
   * `SystemCallError` (ENOMEM, EMFILE, ENFILE).
   */
  create(lengthBytes: number): SharedAllocation | undefined {
    if (lengthBytes > LAST_REGION_BYTES / SHARE_MAX) return undefined;
    const taken = takenBytes(lengthBytes);
    for (const region of this.#regions.values()) {
      const offset = region.space.take(taken);
      if (offset !== undefined) return this.#carve(region, offset, lengthBytes, taken);
    }
    const region = this.#add(taken);
    const offset = region?.space.take(taken);
    if (region === undefined || offset === undefined) return undefined;
    return this.#carve(region, offset, lengthBytes, taken);
  }

  /** The descriptor of the file with this token; undefined if there is none. It stays open. */
  descriptorOf(token: string): number | undefined {
    return this.#regions.get(token)?.memory.descriptor;
  }

  get count(): number {
    return this.#regions.size;
  }

  /** Bytes of pages that released rings may still occupy. */
  get keptBytes(): number {
    return this.#keptBytes;
  }

  /** Releases every file. Remaining rings then read as zeros on this side. */
  close(): void {
    for (const { memory } of this.#regions.values()) memory.release();
    this.#share?.give('mappings', this.#regions.size);
    this.#share?.give('descriptors', this.#regions.size);
    this.#regions.clear();
  }

  #add(ringBytes: number): Region | undefined {
    if (this.#regions.size >= REGIONS_MAX) return undefined;
    while (this.#nextBytes < ringBytes * SHARE_MAX) this.#nextBytes *= 2;
    const lengthBytes = this.#nextBytes;
    const memory = createMapped(lengthBytes, this.#share);
    this.#nextBytes = Math.min(lengthBytes * 2, LAST_REGION_BYTES);
    const space = new FreeSpace(lengthBytes);
    const region: Region = { token: this.#newToken(), memory, space, fresh: 0 };
    this.#regions.set(region.token, region);
    return region;
  }

  #carve(region: Region, offset: number, lengthBytes: number, taken: number): SharedAllocation {
    const view = region.memory.view.subarray(offset, offset + lengthBytes);
    if (offset < region.fresh) {
      view.fill(0);
      this.#keptBytes = Math.max(0, this.#keptBytes - taken);
    }
    region.fresh = Math.max(region.fresh, offset + taken);
    return new CarvedRing(this, region, offset, view);
  }

  /** For use by `CarvedRing`. */
  give(region: Region, offset: number, taken: number): void {
    region.space.give(offset, taken);
    this.#keptBytes += taken;
    if (this.#keptBytes > KEPT_MAX_BYTES) this.#freePages();
  }

  /** Frees every page without a ring. */
  #freePages(): void {
    for (const { memory, space, fresh } of this.#regions.values()) {
      for (const { offset, lengthBytes } of space.gaps) {
        const start = Math.ceil(offset / PAGE_BYTES) * PAGE_BYTES;
        const end = Math.min(offset + lengthBytes, Math.ceil(fresh / PAGE_BYTES) * PAGE_BYTES);
        const length = Math.floor(end / PAGE_BYTES) * PAGE_BYTES - start;
        if (length > 0) memory.clearPart(start, length);
      }
    }
    this.#keptBytes = 0;
  }
}
