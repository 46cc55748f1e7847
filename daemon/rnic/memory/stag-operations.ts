/** Binding and invalidation of STags, by work requests and by peers. */
import { MWType } from '#contract/verbs/enums';
import type { SendWqe } from '../rings/send-wqe.ts';
import { AccessRefusal } from '../wire-port.ts';
import { checkRemoteInvalidation } from './memory-check.ts';
import { REMOTE_ACCESS } from './memory-region.ts';
import type { MW, WindowUser } from './memory-window.ts';
import type { StagEntry, StagTable } from './stag-table.ts';

export interface StagHost {
  readonly stags: StagTable;
  /** Windows by STag index. */
  readonly windows: Map<number, MW>;
  /** Set if windows follow InfiniBand: only bound windows of type 2 are invalidated. */
  readonly ib: object | undefined;
}

/** Executes a bindMW work request; false when it fails. */
export function bindWindow(host: StagHost, user: WindowUser, wqe: SendWqe): boolean {
  const mw = host.windows.get(wqe.rkey >>> 8);
  // A window of another protection domain counts as missing.
  if (mw === undefined || mw.pd !== user.pd) return false;
  if (wqe.namesPresentKey && mw.rkey !== wqe.rkey) return false;
  return mw.bind(wqe, user);
}

/**
 * Executes a localInv work request. False for an unknown STag, one of another protection domain, a
 * type 1 window, a type 2 window of another QP, a region without remote rights or with bound
 * windows. Succeeds for an STag that is already invalid: the peer may have invalidated it first.
 */
export function invalidateLocally(host: StagHost, user: WindowUser, stag: number): boolean {
  const entry = host.stags.find(stag);
  if (entry === undefined || entry.pd !== user.pd) return false;
  if (host.ib !== undefined && !entry.isWindow) return false;
  if (entry.isWindow) {
    const mw = host.windows.get(stag >>> 8);
    if (mw === undefined || mw.type !== MWType.type2) return false;
    if (mw.bound && entry.qpn !== user.qpn) return false;
  } else if (entry.windows > 0 || (entry.access & REMOTE_ACCESS) === 0) {
    return false;
  }
  revoke(host, entry);
  return true;
}

/** Invalidates for the peer (RFC 5040 §5.3). Nothing changes unless the result is `none`. */
export function invalidateRemotely(host: StagHost, user: WindowUser, stag: number): AccessRefusal {
  const refusal = checkRemoteInvalidation(host.stags, user, stag);
  // An STag without a queue pair is that of a region or of a type 1 window.
  if (host.ib !== undefined && host.stags.find(stag)?.qpn === 0)
    return AccessRefusal.cannotInvalidate;
  // RDMAP-5.3-10: an STag that may not be invalidated stays unchanged.
  if (refusal !== AccessRefusal.none) return refusal;
  const entry = host.stags.find(stag);
  if (entry !== undefined) revoke(host, entry);
  return AccessRefusal.none;
}

function revoke(host: StagHost, entry: StagEntry): void {
  if (entry.isWindow) host.windows.get(entry.stag >>> 8)?.invalidate();
  else entry.remoteValid = false;
}
