/** Binding and invalidation: what work requests and peers do to STags. */
import { MWType } from '../../verbs-api/contract/enums.ts';
import { Fault } from '../engine/placement.ts';
import { checkRemoteInvalidation, type MemoryTarget } from './memory-check.ts';
import { REMOTE_ACCESS } from './memory-region.ts';
import type { MW, WindowUser } from './memory-window.ts';
import type { SendWqe } from './send-wqe.ts';
import type { StagEntry, StagTable } from './stag-table.ts';

/** Where STags and windows are found. */
export interface StagHost {
  readonly stags: StagTable;
  /** Windows by STag index. */
  readonly windows: Map<number, MW>;
}

/** Carries out a bindMW work request; false when it is refused. `target` is scratch. */
export function bindWindow(
  host: StagHost,
  user: WindowUser,
  wqe: SendWqe,
  target: MemoryTarget,
): boolean {
  const mw = host.windows.get(wqe.rkey >>> 8);
  // A window of another protection domain is as good as none.
  if (mw === undefined || mw.pd !== user.pd) return false;
  return mw.bind(wqe, user, target);
}

/**
 * Carries out a localInv work request; false when it is refused: an unknown STag, one of another
 * protection domain, a type 1 window, a type 2 window of another QP, a region that peers have no
 * right to or that windows are bound onto. What is invalid already stays so: the peer may have
 * been faster.
 */
export function invalidateLocally(host: StagHost, user: WindowUser, stag: number): boolean {
  const entry = host.stags.find(stag);
  if (entry === undefined || entry.pd !== user.pd) return false;
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

/** Invalidates on behalf of the peer (RFC 5040 §5.3). Nothing changes unless the result is none. */
export function invalidateRemotely(host: StagHost, user: WindowUser, stag: number): Fault {
  const fault = checkRemoteInvalidation(host.stags, user, stag);
  // RDMAP-5.3-10: an STag that may not be invalidated stays as it is.
  if (fault !== Fault.none) return fault;
  const entry = host.stags.find(stag);
  if (entry !== undefined) revoke(host, entry);
  return Fault.none;
}

function revoke(host: StagHost, entry: StagEntry): void {
  if (entry.isWindow) host.windows.get(entry.stag >>> 8)?.invalidate();
  else entry.remoteValid = false;
}
