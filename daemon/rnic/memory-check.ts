/**
 * May this queue or stream touch these octets? Three checks, one small result.
 *
 * RFC 5041 §7.1 (tagged buffers), RFC 5040 §5.2.1, §5.3, §7.2, §8.1.1, RFC 7306 §8.2. The checks
 * are pure; they are made anew for every segment, so a revoked STag is dead at once.
 */

import { Access } from '../../verbs-api/contract/enums.ts';
import { Fault } from '../engine/placement.ts';
import { REMOTE_ACCESS } from './memory-region.ts';
import type { PD } from './protection-domain.ts';
import { NO_ENTRY, type StagEntry, type StagTable } from './stag-table.ts';

/** Where a successful check points to: the entry and the position in its backing. Reused. */
export class MemoryTarget {
  entry: StagEntry = NO_ENTRY;
  /** Octets from the start of `entry.backing`. */
  offset = 0;
}

/** From this upper half on, a 64-bit number leaves the 53 bits in which regions live. */
const UNREACHABLE_HI = 2 ** 21;
const HALF = 2 ** 32;

/** Who asks: a queue pair's protection domain and number. */
export interface MemoryUser {
  readonly pd: PD;
  readonly qpn: number;
}

/**
 * Checks an access of a peer. `length` is 1 to 2^32 - 1: an access of no octets needs no STag and
 * is not asked about (RFC 5041 §5.2, RFC 5040 §5.2.1). `right` is one bit of `Access`.
 */
export function checkRemote(
  table: StagTable,
  user: MemoryUser,
  stag: number,
  toHi: number,
  toLo: number,
  length: number,
  right: number,
  target: MemoryTarget,
): Fault {
  const entry = table.find(stag);
  // DDP-7.1-09, DDP-8.3-02: an STag never given, or revoked since, is invalid.
  if (entry === undefined || !entry.remoteValid) return Fault.stagInvalid;
  // DDP-8.2-02, SEC-6.1.1-02: the protection domains of stream and STag have to be the same.
  if (entry.pd !== user.pd) return Fault.stagNotAssociated;
  // DDP-8.2-03, SEC-6.1.1-03: an STag tied to one stream is nothing to any other.
  if (entry.qpn !== 0 && entry.qpn !== user.qpn) return Fault.stagNotAssociated;
  // DDP-7.1-11, RDMAP-4.8-17, SEC-6.3.5-01: only what the owner granted.
  if ((entry.access & right) === 0) return Fault.access;
  // DDP-7.1-14, RDMAP-4.8-19: wrap before bounds, else nothing could ever be told to wrap.
  if (toHi === 0xffffffff && toLo + length >= HALF) return Fault.toWrap;
  // DDP-7.1-12, DDP-7.1-13, SEC-6.2.1-01: to the octet, at both ends.
  if (toHi >= UNREACHABLE_HI) return Fault.bounds;
  const offset = toHi * HALF + toLo - entry.toBase;
  if (offset < 0 || offset + length > entry.lengthBytes) return Fault.bounds;
  target.entry = entry;
  target.offset = entry.backingOffset + offset;
  return Fault.none;
}

/**
 * Checks an SGE of the owner. `length` is at least 1: an empty SGE needs no key. `write` asks for
 * LOCAL_WRITE (receives, read sinks, atomic results); reading needs no right.
 */
export function checkLocal(
  table: StagTable,
  pd: PD,
  lkey: number,
  addressHi: number,
  addressLo: number,
  length: number,
  write: boolean,
  target: MemoryTarget,
): Fault {
  const entry = table.find(lkey);
  // A window's key is for peers; locally only the region's counts. A region whose remote rights
  // were invalidated stays usable for its owner (SEC-6.3.3-01).
  if (entry === undefined || entry.isWindow) return Fault.stagInvalid;
  if (entry.pd !== pd) return Fault.stagNotAssociated;
  if (write && (entry.access & Access.localWrite) === 0) return Fault.access;
  if (addressHi >= UNREACHABLE_HI) return Fault.bounds;
  const offset = addressHi * HALF + addressLo - entry.address;
  if (offset < 0 || offset + length > entry.lengthBytes) return Fault.bounds;
  target.entry = entry;
  target.offset = entry.backingOffset + offset;
  return Fault.none;
}

/**
 * Checks a peer's wish to invalidate `stag` (Send with Invalidate). What may not be invalidated:
 * memory without remote access, a region with windows on it, and, by RFC 5040 §8.1.1 item 7, an
 * STag that several streams can use.
 */
export function checkRemoteInvalidation(table: StagTable, user: MemoryUser, stag: number): Fault {
  const entry = table.find(stag);
  // RDMAP-7.2-04: the STag has to be valid and to belong to this stream.
  if (entry === undefined) return Fault.stagInvalid;
  if (entry.pd !== user.pd) return Fault.stagNotAssociated;
  if (!entry.isWindow && (entry.access & REMOTE_ACCESS) === 0) return Fault.cannotInvalidate;
  if (!entry.remoteValid) return Fault.stagInvalid;
  if (entry.qpn !== 0 && entry.qpn !== user.qpn) return Fault.stagNotAssociated;
  // RDMAP-8.1.1-01: one peer cannot take away what other peers use.
  if (entry.qpn === 0 && user.pd.streams > 1) return Fault.cannotInvalidate;
  if (entry.windows > 0) return Fault.cannotInvalidate;
  return Fault.none;
}
