/**
 * Reads a send work request of a ring with indices into the WQE that both kinds of rings share.
 *
 * The client may write anything, even during the read: each field is read once. Lengths are summed
 * up here, since librxe before rdma-core 64 miscounts them. A length without SGEs means inline
 * payload, since `ibv_wr_set_inline_data` does not set the flag.
 */
import { CQEStatus, QueueFlag, SGE_BYTES } from '#contract/protocol/queue-layout';
import { Access, WROpcode } from '#contract/verbs/enums';
import type { PD } from '../memory/protection-domain.ts';
import { AccessRefusal, OutboundKind } from '../wire-port.ts';
import { ATOMIC_WRITE, indexedFlagsAt, SEND_WITH_IMM, shownOpcode } from './indexed-fields.ts';
import { SendElement as At } from './indexed-layout.ts';
import type { WorkRing } from './ring.ts';
import { ATOMIC_BYTES, type SendWqe, WorkKind } from './send-wqe.ts';

/** Longest message of InfiniBand. */
const MESSAGE_BYTES_MAX = 2 ** 31;

export function readIndexedSend(wqe: SendWqe, ring: WorkRing, pd: PD): CQEStatus {
  const { view, position } = ring;
  const opcode = view.getUint32(position + At.opcode, true);
  wqe.wrIdLo = view.getUint32(position + At.wrId, true);
  wqe.wrIdHi = view.getUint32(position + At.wrId + 4, true);
  wqe.flags = indexedFlagsAt(ring);
  wqe.opcode = shownOpcode(opcode);
  wqe.kind = WorkKind.message;
  wqe.lengthBytes = 0;
  wqe.refusal = '';
  wqe.addressHandle = 0;
  wqe.sges.clear();
  switch (opcode) {
    case WROpcode.send:
      return readMessage(wqe, ring, pd, OutboundKind.send);
    case SEND_WITH_IMM:
      readImmediate(wqe, ring);
      return readMessage(wqe, ring, pd, OutboundKind.sendWithImmediate);
    case WROpcode.sendWithInv:
      wqe.rkey = view.getUint32(position + At.immediate, true);
      return readMessage(wqe, ring, pd, OutboundKind.sendWithInvalidate);
    case WROpcode.rdmaWrite:
      readRemote(wqe, ring, At.remoteKey);
      return readMessage(wqe, ring, pd, OutboundKind.write);
    case WROpcode.rdmaWriteWithImm:
      readRemote(wqe, ring, At.remoteKey);
      readImmediate(wqe, ring);
      return readMessage(wqe, ring, pd, OutboundKind.writeWithImmediate);
    case ATOMIC_WRITE:
      return readAtomicWrite(wqe, ring);
    case WROpcode.rdmaRead:
      readRemote(wqe, ring, At.remoteKey);
      return readSink(wqe, ring, pd, WorkKind.read);
    case WROpcode.atomicCmpAndSwap:
    case WROpcode.atomicFetchAndAdd:
      readRemote(wqe, ring, At.atomicKey);
      readOperands(wqe, ring, opcode === WROpcode.atomicFetchAndAdd);
      return readSink(wqe, ring, pd, WorkKind.atomic);
    case WROpcode.localInv:
      wqe.kind = WorkKind.invalidate;
      wqe.rkey = view.getUint32(position + At.immediate, true);
      return CQEStatus.success;
    case WROpcode.bindMW:
      return readBind(wqe, ring);
    default:
      wqe.refusal = `opcode ${opcode} is not supported by this device`;
      return CQEStatus.locQpOpErr;
  }
}

function readRemote(wqe: SendWqe, { view, position }: WorkRing, key: number): void {
  wqe.remoteLo = view.getUint32(position + At.remoteAddress, true);
  wqe.remoteHi = view.getUint32(position + At.remoteAddress + 4, true);
  wqe.rkey = view.getUint32(position + key, true);
}

function readImmediate(wqe: SendWqe, { view, position }: WorkRing): void {
  wqe.immediateHi = 0;
  wqe.immediateLo = view.getUint32(position + At.immediate, false);
}

function readMessage(wqe: SendWqe, ring: WorkRing, pd: PD, outbound: OutboundKind): CQEStatus {
  const { view, position } = ring;
  wqe.outbound = outbound;
  // For datagrams. Other messages have an address at this offset; it is ignored.
  wqe.remoteQpn = view.getUint32(position + At.remoteQpn, true);
  wqe.qkey = view.getUint32(position + At.qkey, true);
  wqe.addressHandle = view.getUint32(position + At.addressHandle, true);
  const numSge = view.getUint32(position + At.numSge, true);
  const length = view.getUint32(position + At.length, true);
  const inline = (wqe.flags & QueueFlag.inline) !== 0 || (numSge === 0 && length > 0);
  if (inline) return readInline(wqe, ring, length);
  if (numSge > sgeRoom(wqe, ring)) return CQEStatus.locQpOpErr;
  const refusal = wqe.sges.resolve(pd, view, position + At.sge, numSge, false);
  if (refusal !== AccessRefusal.none) return CQEStatus.locProtErr;
  if (wqe.sges.lengthBytes > MESSAGE_BYTES_MAX) return CQEStatus.locLenErr;
  wqe.lengthBytes = wqe.sges.lengthBytes;
  return CQEStatus.success;
}

/** SGEs that the slot holds. */
function sgeRoom(wqe: SendWqe, ring: WorkRing): number {
  return Math.min(wqe.sges.max, ring.sgeRoom(At.sge));
}

function readInline(wqe: SendWqe, ring: WorkRing, length: number): CQEStatus {
  if (length > Math.min(wqe.inlineMax, ring.sgeRoom(At.sge) * SGE_BYTES)) {
    return CQEStatus.locLenErr;
  }
  wqe.flags |= QueueFlag.inline;
  wqe.takeInline(ring.view, ring.position + At.sge, length);
  return CQEStatus.success;
}

// Its 8 bytes leave in one packet and are placed at once. So a plain Write keeps the promise, and a
// peer that does not know the operation can serve it.
function readAtomicWrite(wqe: SendWqe, ring: WorkRing): CQEStatus {
  readRemote(wqe, ring, At.remoteKey);
  wqe.outbound = OutboundKind.write;
  return readInline(wqe, ring, ATOMIC_BYTES);
}

function readSink(wqe: SendWqe, ring: WorkRing, pd: PD, kind: WorkKind): CQEStatus {
  const { view, position } = ring;
  const atomic = kind === WorkKind.atomic;
  const numSge = view.getUint32(position + At.numSge, true);
  wqe.kind = kind;
  wqe.outbound = atomic ? OutboundKind.atomic : OutboundKind.readRequest;
  if (numSge > (atomic ? 1 : sgeRoom(wqe, ring)) || (wqe.flags & QueueFlag.inline) !== 0) {
    return CQEStatus.locQpOpErr;
  }
  const refusal = wqe.sges.resolve(pd, view, position + At.sge, numSge, true);
  if (refusal !== AccessRefusal.none) return CQEStatus.locProtErr;
  wqe.lengthBytes = wqe.sges.lengthBytes;
  if (wqe.lengthBytes > MESSAGE_BYTES_MAX) return CQEStatus.locLenErr;
  return !atomic || wqe.lengthBytes === ATOMIC_BYTES ? CQEStatus.success : CQEStatus.locLenErr;
}

function readOperands(wqe: SendWqe, { view, position }: WorkRing, add: boolean): void {
  const operand = position + (add ? At.compareAdd : At.swap);
  wqe.operandLo = view.getUint32(operand, true);
  wqe.operandHi = view.getUint32(operand + 4, true);
  wqe.compareLo = view.getUint32(position + At.compareAdd, true);
  wqe.compareHi = view.getUint32(position + At.compareAdd + 4, true);
}

function readBind(wqe: SendWqe, { view, position }: WorkRing): CQEStatus {
  wqe.kind = WorkKind.bind;
  wqe.remoteLo = view.getUint32(position + At.windowAddress, true);
  wqe.remoteHi = view.getUint32(position + At.windowAddress + 4, true);
  const lengthLo = view.getUint32(position + At.windowLength, true);
  const lengthHi = view.getUint32(position + At.windowLength + 4, true);
  wqe.lengthBytes = lengthHi * 2 ** 32 + lengthLo;
  wqe.lkey = view.getUint32(position + At.regionKey, true);
  wqe.rkey = view.getUint32(position + At.windowKey, true);
  wqe.namesPresentKey = true;
  wqe.key = view.getUint32(position + At.newKey, true) & 0xff;
  // Programs set this right as well; it has no meaning for a window.
  wqe.access = view.getUint32(position + At.access, true) & ~Access.localWrite;
  return CQEStatus.success;
}
