/**
 * The memory window: a part of a region opened to peers by a work request, without the cost of a
 * registration.
 *
 * A type 1 window belongs to its protection domain and may be bound again at any time; a bind of no
 * bytes unbinds it. A type 2 window belongs to the stream of the QP that bound it. It must be
 * invalidated, by its owner or by the peer, before it can be bound again; this happens
 * automatically when the QP leaves the stream.
 */
import { assert } from '#base/assert';
import { Access, MWType } from '#contract/verbs/enums';
import { AccessRefusal } from '../wire-port.ts';
import { MemoryTarget, type MemoryUser } from './memory-check.ts';
import { REMOTE_ACCESS } from './memory-region.ts';
import type { PD } from './protection-domain.ts';
import { advanceHi, advanceLo } from './region-address.ts';
import { NO_ENTRY, type StagEntry, type StagTable } from './stag-table.ts';

export interface BindRequest {
  /** The new 8-bit key. */
  readonly key: number;
  readonly access: number;
  /** lkey of the region to bind to. */
  readonly lkey: number;
  readonly addressHi: number;
  readonly addressLo: number;
  readonly lengthBytes: number;
}

/** The QP that binds windows. */
export interface WindowUser extends MemoryUser {
  /** Type 2 windows bound by this QP, invalidated when its stream ends. */
  ownWindows: Set<MW>;
}

/** Windows of queue pairs that never bound one; stays empty. */
export const NO_WINDOWS: Set<MW> = new Set();

export class MW {
  readonly pd: PD;
  readonly type: MWType;
  readonly entry: StagEntry;
  #region: StagEntry = NO_ENTRY;
  #owner: WindowUser | undefined = undefined;
  readonly #table: StagTable;
  readonly #target: MemoryTarget;
  readonly #onClose: () => void;
  #closed = false;

  constructor(pd: PD, type: MWType, table: StagTable, onClose: () => void) {
    this.pd = pd;
    this.type = type;
    this.#table = table;
    this.#target = new MemoryTarget(table);
    this.#onClose = onClose;
    this.entry = table.add(pd, true, undefined);
    pd.members += 1;
    pd.notTaking += 1;
  }

  /** The current rkey: index in the upper 24 bits, key in the low 8. */
  get rkey(): number {
    return this.entry.stag;
  }

  /** The region it is bound to, if bound. */
  get boundOnto(): StagEntry | undefined {
    return this.#region === NO_ENTRY ? undefined : this.#region;
  }

  get bound(): boolean {
    return this.entry.remoteValid;
  }

  /**
   * Binds, or with a length of 0 unbinds (type 1), for a QP of the same protection domain. Returns
   * false, and changes nothing, when the request is not allowed.
   */
  bind(request: BindRequest, user: WindowUser): boolean {
    const { key, access, lkey, addressHi, addressLo, lengthBytes } = request;
    if (key > 255 || (access & ~(REMOTE_ACCESS | Access.zeroBased)) !== 0) return false;
    if (this.type === MWType.type2 && (this.bound || lengthBytes === 0)) return false;
    if (lengthBytes === 0) {
      this.invalidate();
      this.entry.stag = ((this.entry.stag & ~0xff) | key) >>> 0;
      return true;
    }
    const target = this.#target;
    const refusal = target.checkLocal(this.pd, lkey, addressHi, addressLo, lengthBytes, false);
    if (refusal !== AccessRefusal.none) return false;
    const region = target.entry;
    if ((region.access & Access.mwBind) === 0) return false;
    // A window cannot grant rights that the region's owner does not have.
    const changes = (access & (Access.remoteWrite | Access.remoteAtomic)) !== 0;
    if (changes && (region.access & Access.localWrite) === 0) return false;
    if ((access & Access.remoteAtomic) !== 0 && region.backing.tier === 'agent') return false;
    this.invalidate();
    this.#open(request, region, target.offset, user);
    return true;
  }

  #open(request: BindRequest, region: StagEntry, offset: number, user: WindowUser): void {
    const { entry } = this;
    const distance = offset - region.backingOffset;
    entry.stag = ((entry.stag & ~0xff) | request.key) >>> 0;
    entry.access = request.access;
    if (this.type === MWType.type2) {
      entry.qpn = user.qpn;
      if (user.ownWindows === NO_WINDOWS) user.ownWindows = new Set();
      user.ownWindows.add(this);
      this.#owner = user;
    }
    // Peers use the same addresses as in the region, so a window can replace it.
    const zeroBased = (request.access & Access.zeroBased) !== 0;
    entry.toHi = zeroBased ? 0 : advanceHi(region.toHi, region.toLo, distance);
    entry.toLo = zeroBased ? 0 : advanceLo(region.toLo, distance);
    entry.addressHi = request.addressHi;
    entry.addressLo = request.addressLo;
    entry.lengthBytes = request.lengthBytes;
    entry.backing = region.backing;
    entry.backingOffset = offset;
    entry.remoteValid = true;
    region.windows += 1;
    this.#region = region;
    this.assertInvariants();
  }

  /**
   * Ends all access through the window and releases its region; does nothing if it is not bound.
   */
  invalidate(): void {
    if (!this.entry.remoteValid) return;
    this.entry.remoteValid = false;
    this.entry.qpn = 0;
    this.entry.access = 0;
    this.#owner?.ownWindows.delete(this);
    this.#owner = undefined;
    this.#region.windows -= 1;
    this.#region.assertInvariants();
    this.#region = NO_ENTRY;
    this.assertInvariants();
  }

  /** Throws `InvariantError` when region, owner and STag disagree. */
  assertInvariants(): void {
    const owner = this.#owner;
    const { bound, entry } = this;
    assert(bound === (this.#region !== NO_ENTRY), 'bound window without a region');
    assert(!bound || this.#region.alive, 'window of a deregistered region');
    assert(entry.qpn === (owner?.qpn ?? 0), 'window bound to another QP than its owner');
    assert(
      (bound && this.type === MWType.type2) === (owner !== undefined),
      'wrong owner for this type',
    );
    assert(owner?.ownWindows.has(this) !== false, 'owner does not list its window');
  }

  /** Frees the window, bound or not; a second call does nothing. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.invalidate();
    this.#table.remove(this.entry);
    this.pd.members -= 1;
    this.pd.notTaking -= 1;
    this.#onClose();
  }
}
