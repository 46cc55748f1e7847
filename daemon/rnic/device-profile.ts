/**
 * The limits of an emulated device. All are data, so a test or an administrator can make a small
 * device whose limits are easy to reach.
 */
import { INLINE_MAX, SGE_MAX } from '#contract/protocol/queue-layout';

/** Limits of one device. Counts are objects per device unless a comment says otherwise. */
export interface DeviceProfile {
  /** Queue pairs. Idle ones cost some ten KiB each, so this is about 200 MiB at worst. */
  readonly maxQp: number;
  /** Entries of a send or receive queue; siw's value, from which programs size their queues. */
  readonly maxQpWr: number;
  /** Scatter/gather elements of a send or receive: the capacity of a ring element. */
  readonly maxSge: number;
  /** Sink elements of a read: a Read Response carries one STag (RFC 5040 §5.2.1). */
  readonly maxSgeRd: number;
  /** Bytes of inline payload: the capacity of a ring element. */
  readonly maxInline: number;
  /** Completion queues: two for each queue pair. */
  readonly maxCq: number;
  /** Entries of a completion queue; 32 MiB of ring at this bound. */
  readonly maxCqe: number;
  /** Memory regions. STags have 2^24 indices; using few of them keeps them hard to guess. */
  readonly maxMr: number;
  /** Memory windows; they share the STag indices with regions. */
  readonly maxMw: number;
  /** Protection domains: one for each queue pair, for programs that isolate every stream. */
  readonly maxPd: number;
  /** Shared receive queues. */
  readonly maxSrq: number;
  /** Entries of a shared receive queue. */
  readonly maxSrqWr: number;
  /** Bytes of one region: all that a 64-bit Linux process can map. */
  readonly maxMrSize: number;
  /** Inbound reads and atomics in progress per QP (IRD); siw's value. */
  readonly irdMax: number;
  /** Outbound reads and atomics in progress per QP (ORD); siw's value. */
  readonly ordMax: number;
}

/** The profile of a device without configured limits. */
export const DEFAULT_PROFILE: DeviceProfile = {
  maxQp: 16_384,
  maxQpWr: 32_768,
  maxSge: SGE_MAX,
  maxSgeRd: 1,
  maxInline: INLINE_MAX,
  maxCq: 32_768,
  maxCqe: 1_048_576,
  maxMr: 262_144,
  maxMw: 262_144,
  maxPd: 16_384,
  maxSrq: 16_384,
  maxSrqWr: 32_768,
  maxMrSize: 2 ** 47,
  irdMax: 128,
  ordMax: 128,
};

/**
 * Applies `overrides` to the default. Limits fixed by the ring layout (SGEs, inline bytes) can be
 * lowered, never raised.
 */
export function deviceProfile(overrides: Partial<DeviceProfile> = {}): DeviceProfile {
  const profile = { ...DEFAULT_PROFILE, ...overrides };
  return {
    ...profile,
    maxSge: Math.min(profile.maxSge, SGE_MAX),
    maxSgeRd: 1,
    maxInline: Math.min(profile.maxInline, INLINE_MAX),
  };
}
