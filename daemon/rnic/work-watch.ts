/**
 * Lets a host watch the work of a NIC: each work request when the QP takes it out of its queue or
 * flushes it, and each completion that the CQ writes. Without an observer an element costs one test
 * of `observer`.
 *
 * This module reads an element a second time, so an unwatched one costs nothing more. A client that
 * changes an element in between deceives only its own observers.
 */
import {
  QueueFlag,
  RQE,
  SGE_BYTES,
  SGE_MAX,
  SQE,
  SQOpcode,
} from '../../verbs-api/contract/protocol/queue-layout.ts';
import {
  type CompletedWork,
  type PostedWork,
  type WorkObserver,
  WorkQueue,
} from '../../verbs-api/contract/protocol/work-records.ts';
import type { ElementRing } from './ring.ts';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** RFC 7306 §6.3: Immediate Data has a fixed length. */
const IMMEDIATE_BYTES = 8;

/** See the module's comment. One for all queues of a NIC. */
export class WorkWatch {
  /** Sees the work; undefined without one. */
  observer: WorkObserver | undefined = undefined;
  readonly #work: Mutable<PostedWork> = {
    qpn: 0,
    queue: WorkQueue.send,
    opcode: 0,
    flags: 0,
    wrIdHi: 0,
    wrIdLo: 0,
    lengthBytes: 0,
    stag: 0,
    addressHi: 0,
    addressLo: 0,
  };
  /** Reports the next element of a send queue, which is VALID. */
  tellSend(qpn: number, elements: ElementRing, signalsAll: boolean): void {
    const work = this.#work;
    const { view, position } = elements;
    const opcode = view.getUint8(position + SQE.opcode);
    const flags = view.getUint16(position + SQE.flags, true) & ~QueueFlag.valid;
    const names = namesMemory(opcode);
    const places = names && opcode !== SQOpcode.sendRemoteInv && opcode !== SQOpcode.localInv;
    work.qpn = qpn;
    work.queue = WorkQueue.send;
    work.opcode = opcode;
    work.flags = signalsAll ? flags | QueueFlag.signalled : flags;
    work.wrIdLo = view.getUint32(position + SQE.wrId, true);
    work.wrIdHi = view.getUint32(position + SQE.wrId + 4, true);
    work.lengthBytes = sendBytes(view, position, opcode, flags);
    work.stag = names ? view.getUint32(position + SQE.rkey, true) : 0;
    work.addressLo = places ? view.getUint32(position + SQE.raddr, true) : 0;
    work.addressHi = places ? view.getUint32(position + SQE.raddr + 4, true) : 0;
    this.observer?.posted(work);
  }

  /** Reports the next element of a receive queue, which is VALID; `qpn` takes it. */
  tellReceive(qpn: number, elements: ElementRing, shared: boolean): void {
    const work = this.#work;
    const { view, position } = elements;
    work.qpn = qpn;
    work.queue = shared ? WorkQueue.sharedReceive : WorkQueue.receive;
    work.opcode = SQOpcode.receive;
    work.flags = 0;
    work.wrIdLo = view.getUint32(position + RQE.wrId, true);
    work.wrIdHi = view.getUint32(position + RQE.wrId + 4, true);
    work.lengthBytes = listedBytes(view, position + RQE.sge, view.getUint8(position + RQE.numSge));
    work.stag = 0;
    work.addressLo = 0;
    work.addressHi = 0;
    this.observer?.posted(work);
  }

  /** Reports a completion that was written. */
  tellCompletion(completion: CompletedWork): void {
    this.observer?.completed(completion);
  }
}

/** True for a work request with an STag in its `rkey`. */
function namesMemory(opcode: number): boolean {
  switch (opcode) {
    case SQOpcode.write:
    case SQOpcode.writeWithImm:
    case SQOpcode.read:
    case SQOpcode.readLocalInv:
    case SQOpcode.sendRemoteInv:
    case SQOpcode.fetchAndAdd:
    case SQOpcode.compAndSwap:
    case SQOpcode.bindMW:
    case SQOpcode.localInv:
      return true;
    default:
      return false;
  }
}

/** Bytes that an element of a send queue transfers, as its client wrote it. */
function sendBytes(view: DataView, position: number, opcode: number, flags: number): number {
  switch (opcode) {
    case SQOpcode.localInv:
      return 0;
    case SQOpcode.immediate:
      return IMMEDIATE_BYTES;
    case SQOpcode.bindMW: {
      const low = view.getUint32(position + SQE.bindLength, true);
      return view.getUint32(position + SQE.bindLength + 4, true) * 2 ** 32 + low;
    }
    default:
      // The first SGE holds the length of inline payload.
      if ((flags & QueueFlag.inline) !== 0) return view.getUint32(position + SQE.sge + 8, true);
      return listedBytes(view, position + SQE.sge, view.getUint8(position + SQE.numSge));
  }
}

function listedBytes(view: DataView, position: number, count: number): number {
  let bytes = 0;
  for (let index = 0; index < count && index < SGE_MAX; index += 1) {
    bytes += view.getUint32(position + index * SGE_BYTES + 8, true);
  }
  return bytes;
}
