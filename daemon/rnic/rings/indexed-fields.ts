/** Fields of a send work request in a ring with indices, translated to those of both kinds of rings. */
import { QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { SendFlag, WROpcode } from '#contract/verbs/enums';
import { SendElement as At } from './indexed-layout.ts';
import type { WorkRing } from './ring.ts';

/** `IBV_WR_SEND_WITH_IMM`, which iWARP's verbs lack. */
export const SEND_WITH_IMM = 3;
/** `IBV_WR_ATOMIC_WRITE`: a Write of 8 bytes that no reader sees in part. */
export const ATOMIC_WRITE = 15;

/** `enum ibv_wr_opcode` to `SQOpcode`. An unknown one is reported as a Send. */
export function shownOpcode(opcode: number): SQOpcode {
  switch (opcode) {
    case WROpcode.rdmaWrite:
    case ATOMIC_WRITE:
      return SQOpcode.write;
    case WROpcode.rdmaWriteWithImm:
      return SQOpcode.writeWithImm;
    case SEND_WITH_IMM:
      return SQOpcode.sendWithImm;
    case WROpcode.rdmaRead:
      return SQOpcode.read;
    case WROpcode.atomicCmpAndSwap:
      return SQOpcode.compAndSwap;
    case WROpcode.atomicFetchAndAdd:
      return SQOpcode.fetchAndAdd;
    case WROpcode.localInv:
      return SQOpcode.localInv;
    case WROpcode.bindMW:
      return SQOpcode.bindMW;
    case WROpcode.sendWithInv:
      return SQOpcode.sendRemoteInv;
    default:
      return SQOpcode.send;
  }
}

export function indexedOpcodeAt({ view, position }: WorkRing): number {
  return shownOpcode(view.getUint32(position + At.opcode, true));
}

/** Flags of the ring's next element, as bits of `QueueFlag`. */
export function indexedFlagsAt({ view, position }: WorkRing): number {
  const flags = view.getUint32(position + At.flags, true);
  return (
    ((flags & SendFlag.fence) !== 0 ? QueueFlag.readFence : 0) |
    ((flags & SendFlag.signaled) !== 0 ? QueueFlag.signalled : 0) |
    ((flags & SendFlag.solicited) !== 0 ? QueueFlag.solicited : 0) |
    ((flags & SendFlag.inline) !== 0 ? QueueFlag.inline : 0)
  );
}

/** Byte position of the key that an operation names. */
export function indexedKeyOf(opcode: number): number {
  switch (opcode) {
    case SQOpcode.compAndSwap:
    case SQOpcode.fetchAndAdd:
      return At.atomicKey;
    case SQOpcode.bindMW:
      return At.windowKey;
    case SQOpcode.sendRemoteInv:
    case SQOpcode.localInv:
      return At.immediate;
    default:
      return At.remoteKey;
  }
}
