/**
 * Why a send work request could not be carried out. Repeats the checks that refused it, since
 * nothing has changed.
 */
import { CQEStatus } from '#contract/protocol/queue-layout';
import { Access, MWType } from '#contract/verbs/enums';
import { type Cause, type CauseHolder, refusedSGE } from '../failure-cause.ts';
import { hex } from '../failure-sentence.ts';
import { MemoryTarget } from '../memory/memory-check.ts';
import { REMOTE_ACCESS } from '../memory/memory-region.ts';
import type { MW, WindowUser } from '../memory/memory-window.ts';
import type { StagHost } from '../memory/stag-operations.ts';
import type { SendWqe } from '../rings/send-wqe.ts';
import { WorkKind } from '../rings/send-wqe.ts';
import { AccessRefusal } from '../wire-port.ts';

/** The cause for a work request that completes with `status` before any of it was sent. */
export function workRefusal(
  host: StagHost,
  user: WindowUser & CauseHolder,
  wqe: SendWqe,
  status: CQEStatus,
): Cause {
  if (status === CQEStatus.locProtErr) {
    const write = wqe.kind === WorkKind.read || wqe.kind === WorkKind.atomic;
    return refusedSGE(host.stags, user.pd, wqe.sges.refused, write);
  }
  return { kind: 'request', text: refusalText(host, user, wqe, status) };
}

function refusalText(host: StagHost, user: WindowUser, wqe: SendWqe, status: CQEStatus): string {
  if (wqe.refusal !== '') return wqe.refusal;
  if (status === CQEStatus.locLenErr) return lengthText(wqe);
  if (wqe.kind === WorkKind.bind) return bindText(host, user, wqe);
  if (wqe.kind === WorkKind.invalidate) return invalidateText(host, user, wqe.rkey);
  return 'opcode not supported, or the work request has more SGEs than max_send_sge of the queue pair';
}

function lengthText({ kind, lengthBytes, inlineMax, sges }: SendWqe): string {
  if (kind === WorkKind.atomic) return `an atomic needs 8 bytes, not ${lengthBytes}`;
  if (sges.lengthBytes > 0) return `message of ${sges.lengthBytes} bytes is too long`;
  return `inline payload exceeds ${inlineMax} bytes (max_inline_data)`;
}

function bindText(host: StagHost, user: WindowUser, wqe: SendWqe): string {
  const mw = host.windows.get(wqe.rkey >>> 8);
  const name = hex(wqe.rkey);
  if (mw === undefined || mw.pd !== user.pd) {
    return `rkey ${name} names no memory window in the protection domain of the queue pair`;
  }
  if (wqe.namesPresentKey && mw.rkey !== wqe.rkey) {
    return `rkey ${name} is stale: that of the memory window is ${hex(mw.rkey)}`;
  }
  return windowText(host, mw, wqe);
}

function windowText({ stags }: StagHost, mw: MW, wqe: SendWqe): string {
  const { access, lkey, addressHi, addressLo, lengthBytes } = wqe;
  if ((access & ~(REMOTE_ACCESS | Access.zeroBased)) !== 0) {
    return 'a memory window grants REMOTE_READ, REMOTE_WRITE and REMOTE_ATOMIC only';
  }
  if (mw.type === MWType.type2 && mw.bound) {
    return 'the memory window is bound; invalidate it first (type 2)';
  }
  if (lengthBytes === 0) return 'a type 2 memory window cannot be unbound by binding 0 bytes';
  const target = new MemoryTarget(stags);
  const refusal = target.checkLocal(mw.pd, lkey, addressHi, addressLo, lengthBytes, false);
  if (refusal !== AccessRefusal.none) {
    return refusal === AccessRefusal.bounds
      ? `the ${lengthBytes} bytes to bind are outside the MR of lkey ${hex(lkey)}`
      : `lkey ${hex(lkey)} names no MR in the protection domain of the window`;
  }
  if ((target.entry.access & Access.mwBind) === 0) {
    return `the MR of lkey ${hex(lkey)} was registered without MW_BIND`;
  }
  return `the MR of lkey ${hex(lkey)} lacks rights that the window would grant`;
}

function invalidateText(host: StagHost, user: WindowUser, stag: number): string {
  const entry = host.stags.find(stag);
  const name = hex(stag);
  if (entry === undefined || entry.pd !== user.pd) {
    return `rkey ${name} names no memory in the protection domain of the queue pair`;
  }
  if (!entry.isWindow) {
    if (host.ib !== undefined)
      return `rkey ${name} belongs to an MR; only type 2 windows can be invalidated`;
    return entry.windows > 0
      ? `memory windows are bound to the MR of rkey ${name}`
      : `the MR of rkey ${name} has no remote rights to invalidate`;
  }
  const mw = host.windows.get(stag >>> 8);
  if (mw?.type !== MWType.type2)
    return `rkey ${name} belongs to a type 1 window; only type 2 windows can be invalidated`;
  return `the window of rkey ${name} is bound to QP ${entry.qpn}`;
}
