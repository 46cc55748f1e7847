/**
 * The memory window: a part of a region opened to peers by a work request, without the cost of a
 * registration.
 *
 * A type 1 window belongs to its protection domain and may be bound anew at any time; a bind of no
 * octets unbinds it. A type 2 window belongs to the QP it was bound through and has to be
 * invalidated, by its owner or by the peer, before it can be bound again.
 */
import { Access, MWType } from '../../verbs-api/contract/enums.ts';
import { Fault } from '../engine/placement.ts';
import { checkLocal, type MemoryTarget, type MemoryUser } from './memory-check.ts';
import { REMOTE_ACCESS } from './memory-region.ts';
import type { PD } from './protection-domain.ts';
import { NO_ENTRY, type StagEntry, type StagTable } from './stag-table.ts';

/** What a bindMW work request asks for. */
export interface BindRequest {
  /** The new 8-bit key. */
  readonly key: number;
  readonly access: number;
  /** lkey of the region behind the window. */
  readonly lkey: number;
  readonly addressHi: number;
  readonly addressLo: number;
  readonly lengthBytes: number;
}

/** The QP that binds windows. */
export interface WindowUser extends MemoryUser {
  /** Type 2 windows bound to this QP; they end with it. */
  readonly ownWindows: Set<MW>;
}

/** A memory window. */
export class MW {
  readonly pd: PD;
  readonly type: MWType;
  /** Its place in the STag table. */
  readonly entry: StagEntry;
  private region: StagEntry = NO_ENTRY;
  private owner: WindowUser | undefined = undefined;
  private readonly table: StagTable;
  private readonly onClose: () => void;
  private closed = false;

  constructor(pd: PD, type: MWType, table: StagTable, onClose: () => void) {
    this.pd = pd;
    this.type = type;
    this.table = table;
    this.onClose = onClose;
    this.entry = table.add(pd, true, undefined);
    pd.members += 1;
  }

  /** The current rkey: index in the upper 24 bits, key in the low 8. */
  get rkey(): number {
    return this.entry.stag;
  }

  /** True while peers can use it. */
  get bound(): boolean {
    return this.entry.remoteValid;
  }

  /**
   * Binds, or with a length of 0 unbinds (type 1), on behalf of a QP of the same protection
   * domain. `target` is scratch. Returns false, and changes nothing, when the request
   * is not allowed.
   */
  bind(request: BindRequest, user: WindowUser, target: MemoryTarget): boolean {
    const { key, access, lkey, addressHi, addressLo, lengthBytes } = request;
    if (key > 255 || (access & ~(REMOTE_ACCESS | Access.zeroBased)) !== 0) return false;
    if (this.type === MWType.type2 && (this.bound || lengthBytes === 0)) return false;
    if (lengthBytes === 0) {
      this.invalidate();
      this.entry.stag = ((this.entry.stag & ~0xff) | key) >>> 0;
      return true;
    }
    const fault = checkLocal(
      this.table,
      this.pd,
      lkey,
      addressHi,
      addressLo,
      lengthBytes,
      false,
      target,
    );
    if (fault !== Fault.none) return false;
    const region = target.entry;
    if ((region.access & Access.mwBind) === 0) return false;
    // A window gives peers no more than its region's owner has.
    const changes = (access & (Access.remoteWrite | Access.remoteAtomic)) !== 0;
    if (changes && (region.access & Access.localWrite) === 0) return false;
    if ((access & Access.remoteAtomic) !== 0 && region.backing.tier === 'agent') return false;
    this.invalidate();
    this.open(request, region, target.offset, user);
    return true;
  }

  private open(request: BindRequest, region: StagEntry, offset: number, user: WindowUser): void {
    const { entry } = this;
    const start = request.addressHi * 2 ** 32 + request.addressLo;
    entry.stag = ((entry.stag & ~0xff) | request.key) >>> 0;
    entry.access = request.access;
    if (this.type === MWType.type2) {
      entry.qpn = user.qpn;
      user.ownWindows.add(this);
      this.owner = user;
    }
    // Peers count as they do in the region, so that a window can stand in for it.
    entry.toBase =
      (request.access & Access.zeroBased) !== 0 ? 0 : region.toBase + (start - region.address);
    entry.address = start;
    entry.lengthBytes = request.lengthBytes;
    entry.backing = region.backing;
    entry.backingOffset = offset;
    entry.remoteValid = true;
    region.windows += 1;
    this.region = region;
  }

  /** Ends all access through the window and lets go of its region; nothing if it is not bound. */
  invalidate(): void {
    if (!this.entry.remoteValid) return;
    this.entry.remoteValid = false;
    this.entry.qpn = 0;
    this.entry.access = 0;
    this.owner?.ownWindows.delete(this);
    this.owner = undefined;
    this.region.windows -= 1;
    this.region = NO_ENTRY;
  }

  /** Frees the window, bound or not; the second call does nothing. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.invalidate();
    this.table.remove(this.entry);
    this.pd.members -= 1;
    this.onClose();
  }
}
