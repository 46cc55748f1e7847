/**
 * The enhanced connection data (RFC 6581 §9): one word in MPA startup frames and in the session
 * control messages of DDP over SCTP.
 *
 *     +-+-+---------------------------+-+-+---------------------------+
 *     |A|B|       IRD (14)            |C|D|        ORD (14)           |
 *     +-+-+---------------------------+-+-+---------------------------+
 */
import { assert } from '#base/assert';

export const ENHANCED_BYTES = 4;
/** IRD or ORD value for: not negotiated by MPA, the ULP takes care of it (EMPA-9.1-12). */
export const DEPTH_UNNEGOTIATED = 0x3fff;
/** Largest IRD or ORD that can be negotiated. */
export const DEPTH_MAX = 0x3ffe;

/** RTR kinds as flags: B zero-length Send, C zero-length RDMA Write, D zero-length RDMA Read. */
export interface RtrFlags {
  readonly send: boolean;
  readonly write: boolean;
  readonly read: boolean;
}

/** The enhanced word (RFC 6581 §9). */
export interface EnhancedParameters {
  /** A: peer-to-peer model. When false, the RTR flags are sent as 0 and read as false. */
  readonly peerToPeer: boolean;
  /** In a Request: offered. In a Reply: supported by the responder (EMPA-9.2-01). */
  readonly rtr: RtrFlags;
  /** 0..0x3FFE, or `DEPTH_UNNEGOTIATED`. */
  readonly ird: number;
  readonly ord: number;
}

// EMPA-9-01 SCTPE-9-01: A, B, 14 bits of IRD, C, D, 14 bits of ORD, from the top bit down.
export function parseEnhancedWord(word: number): EnhancedParameters {
  const peerToPeer = (word & 0x80000000) !== 0;
  return {
    peerToPeer,
    // EMPA-9.2-15: without A the other flags are ignored.
    rtr: {
      send: peerToPeer && (word & 0x40000000) !== 0,
      write: peerToPeer && (word & 0x8000) !== 0,
      read: peerToPeer && (word & 0x4000) !== 0,
    },
    ird: (word >>> 16) & DEPTH_UNNEGOTIATED,
    ord: word & DEPTH_UNNEGOTIATED,
  };
}

export function enhancedWord(enhanced: EnhancedParameters): number {
  const { peerToPeer, rtr, ird, ord } = enhanced;
  assert(ird >= 0 && ird <= DEPTH_UNNEGOTIATED, 'IRD exceeds 14 bits');
  assert(ord >= 0 && ord <= DEPTH_UNNEGOTIATED, 'ORD exceeds 14 bits');
  // EMPA-9.2-14: without A the other flags are zero.
  return (
    ((peerToPeer ? 0x80000000 : 0) |
      (peerToPeer && rtr.send ? 0x40000000 : 0) |
      (ird << 16) |
      (peerToPeer && rtr.write ? 0x8000 : 0) |
      (peerToPeer && rtr.read ? 0x4000 : 0) |
      ord) >>>
    0
  );
}
