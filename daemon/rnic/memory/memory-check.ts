/**
 * Checks whether a queue or stream may access given bytes: three checks with one small result.
 *
 * RFC 5041 §7.1 (tagged buffers), RFC 5040 §5.2.1, §5.3, §7.2, §8.1.1, RFC 7306 §8.2. The checks
 * are pure and repeated for every segment, so a revoked STag takes effect at once.
 */
import { Access } from '#contract/verbs/enums';
import { AccessRefusal } from '../wire-port.ts';
import { REMOTE_ACCESS } from './memory-region.ts';
import type { PD } from './protection-domain.ts';
import { distance } from './region-address.ts';
import { NO_ENTRY, type StagEntry, type StagTable } from './stag-table.ts';

const HALF = 2 ** 32;

/** The accessing queue pair: its protection domain and number. */
export interface MemoryUser {
  readonly pd: PD;
  readonly qpn: number;
}

/** Checks accesses, and holds the location of the latest successful one. Reused. */
export class MemoryTarget {
  entry: StagEntry = NO_ENTRY;
  /** Bytes from the start of `entry.backing`. */
  offset = 0;
  readonly #table: StagTable;

  constructor(table: StagTable) {
    this.#table = table;
  }

  /**
   * Checks an access of a peer. `length` is 1 to 2^32 - 1: an access of no bytes needs no STag and
   * is not checked (RFC 5041 §5.2, RFC 5040 §5.2.1). `right` is one bit of `Access`.
   */
  checkRemote(
    user: MemoryUser,
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    right: number,
  ): AccessRefusal {
    const entry = this.#table.find(stag);
    // DDP-7.1-09, DDP-8.3-02: an STag never assigned, or revoked since, is invalid.
    if (entry === undefined || !entry.remoteValid) return AccessRefusal.stagInvalid;
    // DDP-8.2-02, SEC-6.1.1-02: stream and STag must have the same protection domain.
    if (entry.pd !== user.pd) return AccessRefusal.stagNotAssociated;
    // DDP-8.2-03, SEC-6.1.1-03: an STag tied to one stream is invalid on any other.
    if (entry.qpn !== 0 && entry.qpn !== user.qpn) return AccessRefusal.stagNotAssociated;
    // DDP-7.1-11, RDMAP-4.8-17, SEC-6.3.5-01: only what the owner granted.
    if ((entry.access & right) === 0) return AccessRefusal.access;
    // DDP-7.1-14, RDMAP-4.8-19: wrap before bounds, else no wrap could ever be reported.
    if (toHi === 0xffffffff && toLo + length >= HALF) return AccessRefusal.toWrap;
    // DDP-7.1-12, DDP-7.1-13, SEC-6.2.1-01: exact to the byte, at both ends.
    const offset = distance(toHi, toLo, entry.toHi, entry.toLo);
    if (offset < 0 || offset + length > entry.lengthBytes) return AccessRefusal.bounds;
    return this.#aim(entry, offset);
  }

  /**
   * Checks an SGE of the owner. `length` is at least 1: an empty SGE needs no key. `write` asks for
   * LOCAL_WRITE (receives, read sinks, atomic results); reading needs no right.
   */
  checkLocal(
    pd: PD,
    lkey: number,
    addressHi: number,
    addressLo: number,
    length: number,
    write: boolean,
  ): AccessRefusal {
    const entry = this.#table.find(lkey);
    // A window's key is for peers; locally only the region's key is valid. A region whose remote
    // rights were invalidated stays usable for its owner (SEC-6.3.3-01).
    if (entry === undefined || entry.isWindow) return AccessRefusal.stagInvalid;
    if (entry.pd !== pd) return AccessRefusal.stagNotAssociated;
    if (write && (entry.access & Access.localWrite) === 0) return AccessRefusal.access;
    const offset = distance(addressHi, addressLo, entry.addressHi, entry.addressLo);
    if (offset < 0 || offset + length > entry.lengthBytes) return AccessRefusal.bounds;
    return this.#aim(entry, offset);
  }

  #aim(entry: StagEntry, offset: number): AccessRefusal {
    entry.used = true;
    this.entry = entry;
    this.offset = entry.backingOffset + offset;
    return AccessRefusal.none;
  }
}

/**
 * Checks a peer's request to invalidate `stag` (Send with Invalidate). Fails for memory without
 * remote access, for a region with bound windows, and, by RFC 5040 §8.1.1 item 7, for an STag that
 * several streams can use.
 */
export function checkRemoteInvalidation(
  table: StagTable,
  user: MemoryUser,
  stag: number,
): AccessRefusal {
  const entry = table.find(stag);
  // RDMAP-7.2-04: the STag must be valid and belong to this stream.
  if (entry === undefined) return AccessRefusal.stagInvalid;
  if (entry.pd !== user.pd) return AccessRefusal.stagNotAssociated;
  if (!entry.isWindow && (entry.access & REMOTE_ACCESS) === 0)
    return AccessRefusal.cannotInvalidate;
  if (!entry.remoteValid) return AccessRefusal.stagInvalid;
  if (entry.qpn !== 0 && entry.qpn !== user.qpn) return AccessRefusal.stagNotAssociated;
  // RDMAP-8.1.1-01: a peer must not take away memory that other peers use.
  if (entry.qpn === 0 && user.pd.streams > 1) return AccessRefusal.cannotInvalidate;
  if (entry.windows > 0) return AccessRefusal.cannotInvalidate;
  return AccessRefusal.none;
}
