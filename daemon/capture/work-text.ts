/** One line of text for a work request or a completion; not meant to be parsed. */
import { QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import {
  type CompletedWork,
  completionStatusName,
  type PostedWork,
  WorkQueue,
  workOpcodeName,
} from '#contract/protocol/work-records';
import { hex32, hex64 } from '#daemon/iwarp/wire/dump';

/** `WQE RDMA_WRITE wr_id 0x7, 64 bytes to STag 0x11223344 TO 0x00007f0010000000, signaled`. */
export function postedText(work: PostedWork): string {
  const { opcode, flags, lengthBytes } = work;
  const words = [`WQE ${workOpcodeName(opcode)} wr_id ${wrIdText(work)}`];
  if (work.queue !== WorkQueue.send) words.push(`room for ${lengthBytes} bytes`);
  else if (opcode !== SQOpcode.localInv) words.push(`${lengthBytes} bytes${placeText(work)}`);
  if (INVALIDATING.includes(opcode)) words.push(`invalidates ${hex32(work.stag)}`);
  if (work.queue === WorkQueue.sharedReceive) words.push('shared');
  if ((flags & QueueFlag.inline) !== 0) words.push('inline');
  if ((flags & QueueFlag.readFence) !== 0) words.push('fence');
  if ((flags & QueueFlag.solicited) !== 0) words.push('solicited');
  if ((flags & QueueFlag.signalled) !== 0) words.push('signaled');
  return words.join(', ');
}

/** `CQE RECV wr_id 0x7, IBV_WC_SUCCESS, 64 bytes, solicited`. */
export function completedText(work: CompletedWork): string {
  const { opcode, status, flags, lengthBytes, immediateHi, immediateLo } = work;
  const words = [
    `CQE ${workOpcodeName(opcode)} wr_id ${wrIdText(work)}`,
    completionStatusName(status),
    `${lengthBytes} bytes`,
  ];
  if ((flags & QueueFlag.solicited) !== 0) words.push('solicited');
  if ((flags & QueueFlag.remoteInvalidate) !== 0) words.push(`invalidated ${hex32(immediateLo)}`);
  if ((flags & QueueFlag.immediate) !== 0) words.push(`value ${hex64(immediateHi, immediateLo)}`);
  return words.join(', ');
}

/** A `wr_id` in the format of rdma-core's tools: hexadecimal, without leading zeros. */
export function wrIdText({ wrIdHi, wrIdLo }: { wrIdHi: number; wrIdLo: number }): string {
  if (wrIdHi === 0) return `0x${wrIdLo.toString(16)}`;
  return `0x${wrIdHi.toString(16)}${wrIdLo.toString(16).padStart(8, '0')}`;
}

const INVALIDATING: readonly number[] = [SQOpcode.sendRemoteInv, SQOpcode.localInv];

/** The remote address of a request, or the window and address it binds; '' for neither. */
function placeText({ opcode, stag, addressHi, addressLo }: PostedWork): string {
  const place = `STag ${hex32(stag)} TO ${hex64(addressHi, addressLo)}`;
  switch (opcode) {
    case SQOpcode.write:
    case SQOpcode.writeWithImm:
      return ` to ${place}`;
    case SQOpcode.read:
    case SQOpcode.readLocalInv:
      return ` from ${place}`;
    case SQOpcode.fetchAndAdd:
    case SQOpcode.compAndSwap:
      return ` at ${place}`;
    case SQOpcode.bindMW:
      return ` at ${hex64(addressHi, addressLo)} as STag ${hex32(stag)}`;
    default:
      return '';
  }
}
