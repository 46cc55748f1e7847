/** Shares a client's memory with the device, or accesses it if it is not shared. */
import type { MappingRef } from '#contract/protocol/commands';
import type { MemoryTier } from '#contract/verbs/provider';
import type { MemoryBacking } from '#daemon/rnic/memory/memory-backing';

/** Memory that the device allocates and the client maps. */
export interface SharedAllocation {
  /** Identifies it to the client. */
  readonly mapping: MappingRef;
  /** All of it; initially zeros. Not to be used after `release`. */
  readonly view: Uint8Array;
  /** Frees it. A second call does nothing. */
  release(): void;
}

/** A registered piece of the client's own memory. */
export interface ProcessAllocation {
  readonly backing: MemoryBacking;
  /** Why this tier is used, in a few words. */
  readonly reason: string;
  /** The process moved the memory to this address. Undefined if unsupported. */
  readonly move?: (address: number) => void;
  /** No access through `backing` after this call. A second call does nothing. */
  release(): void;
}

export interface ClientMemory {
  /** Tier and reason of regions in shared allocations. */
  readonly sharedTier: { readonly tier: MemoryTier; readonly reason: string };
  /** Allocates a buffer of at least 1 byte. Throws `VerbsError` ENOMEM. */
  createShared(lengthBytes: number): SharedAllocation;
  /**
   * Allocates a ring. Rings may be adjacent, and soon after `release` their bytes may belong to another
   * ring. Throws `VerbsError` ENOMEM.
   */
  createRing(lengthBytes: number): SharedAllocation;
  /** The client's own memory at a virtual address. Throws `VerbsError` EFAULT, EOPNOTSUPP. */
  openProcess(address: bigint, lengthBytes: number): ProcessAllocation;
}
