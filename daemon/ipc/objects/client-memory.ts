/** How the memory of one client is shared with the device, and reached when it is not shared. */
import type { MappingRef } from '#contract/protocol/commands';
import type { MemoryTier } from '#contract/verbs/provider';
import type { MemoryBacking } from '#daemon/rnic/memory-backing';

/** Memory that the device allocates and the client sees as well. */
export interface SharedAllocation {
  /** Names it to the client. */
  readonly mapping: MappingRef;
  /** All of it; zeros at first. Not to be used after `release`. */
  readonly view: Uint8Array;
  /** Frees it. A second call does nothing. */
  release(): void;
}

/** A registered piece of the client's own memory. */
export interface ProcessAllocation {
  readonly backing: MemoryBacking;
  /** Why this tier is in use, in a few words. */
  readonly reason: string;
  /** The process has moved the memory to this address. Undefined where it cannot. */
  readonly move?: (address: number) => void;
  /** No access through `backing` after this call. A second call does nothing. */
  release(): void;
}

/** The memory of one client. */
export interface ClientMemory {
  /** Tier and reason of regions in shared allocations. */
  readonly sharedTier: { readonly tier: MemoryTier; readonly reason: string };
  /** Buffers of at least 1 byte. Throws `VerbsError` ENOMEM. */
  createShared(lengthBytes: number): SharedAllocation;
  /**
   * Rings, likewise. They may lie next to each other, and soon after `release` the bytes may be those
   * of another ring.
   */
  createRing(lengthBytes: number): SharedAllocation;
  /** The client's own memory at a virtual address. Throws `VerbsError` EFAULT, EOPNOTSUPP. */
  openProcess(address: bigint, lengthBytes: number): ProcessAllocation;
}
