/**
 * Reports the work of a NIC to a host: each work request when the QP takes it out of its queue or
 * flushes it, and each completion that the CQ writes. Without an observer an element costs one test
 * of `observer`.
 *
 * This module reads an element a second time, so that unwatched elements cost nothing more. A client
 * that changes an element in between deceives only its own observers.
 */
import { QueueFlag, SGE_BYTES, SGE_MAX, SQE, SQOpcode } from '#contract/protocol/queue-layout';
import {
  type CompletedWork,
  type PostedWork,
  type WorkObserver,
  WorkQueue,
} from '#contract/protocol/work-records';
import { indexedFlagsAt, indexedKeyOf, indexedOpcodeAt } from '../rings/indexed-fields.ts';
import { SendElement } from '../rings/indexed-layout.ts';
import type { WorkRing } from '../rings/ring.ts';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Both kinds of rings start with the id. */
const WR_ID = 0;

/** Where a receive has its SGEs: see `ReceiveFormat` in queue-format.ts. */
interface ReceiveLayout {
  readonly numSge: number;
  readonly wide: boolean;
  readonly sge: number;
}

/** RFC 7306 §6.3: Immediate Data has a fixed length. */
const IMMEDIATE_BYTES = 8;

/** One for all queues of a NIC. */
export class WorkWatch {
  /** Receives the reports; undefined without an observer. */
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
  reportSend(qpn: number, elements: WorkRing, signalsAll: boolean): void {
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

  /** Like `reportSend`, for a ring with indices. */
  reportIndexedSend(qpn: number, elements: WorkRing, signalsAll: boolean): void {
    const work = this.#work;
    const { view, position } = elements;
    const opcode = indexedOpcodeAt(elements);
    const flags = indexedFlagsAt(elements);
    const numSge = Math.min(
      view.getUint32(position + SendElement.numSge, true),
      elements.sgeRoom(SendElement.sge),
    );
    const names = namesMemory(opcode);
    const places = names && opcode !== SQOpcode.sendRemoteInv && opcode !== SQOpcode.localInv;
    work.qpn = qpn;
    work.queue = WorkQueue.send;
    work.opcode = opcode;
    work.flags = signalsAll ? flags | QueueFlag.signalled : flags;
    work.wrIdLo = view.getUint32(position + SendElement.wrId, true);
    work.wrIdHi = view.getUint32(position + SendElement.wrId + 4, true);
    work.lengthBytes =
      numSge === 0
        ? view.getUint32(position + SendElement.length, true)
        : listedBytes(view, position + SendElement.sge, numSge);
    work.stag = names ? view.getUint32(position + indexedKeyOf(opcode), true) : 0;
    work.addressLo = places ? view.getUint32(position + SendElement.remoteAddress, true) : 0;
    work.addressHi = places ? view.getUint32(position + SendElement.remoteAddress + 4, true) : 0;
    this.observer?.posted(work);
  }

  /** Reports the next element of a receive queue, which is VALID; `qpn` takes it. */
  reportReceive(qpn: number, elements: WorkRing, format: ReceiveLayout, shared: boolean): void {
    const work = this.#work;
    const { view, position } = elements;
    work.qpn = qpn;
    work.queue = shared ? WorkQueue.sharedReceive : WorkQueue.receive;
    work.opcode = SQOpcode.receive;
    work.flags = 0;
    work.wrIdLo = view.getUint32(position + WR_ID, true);
    work.wrIdHi = view.getUint32(position + WR_ID + 4, true);
    const at = position + format.numSge;
    const numSge = format.wide ? view.getUint32(at, true) : view.getUint8(at);
    const count = Math.min(numSge, elements.sgeRoom(format.sge));
    work.lengthBytes = listedBytes(view, position + format.sge, count);
    work.stag = 0;
    work.addressLo = 0;
    work.addressHi = 0;
    this.observer?.posted(work);
  }

  reportCompletion(completion: CompletedWork): void {
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

/** Bytes that an element of a send queue transfers, according to its client. */
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
      return listedBytes(
        view,
        position + SQE.sge,
        Math.min(view.getUint8(position + SQE.numSge), SGE_MAX),
      );
  }
}

function listedBytes(view: DataView, position: number, count: number): number {
  let bytes = 0;
  for (let index = 0; index < count; index += 1) {
    bytes += view.getUint32(position + index * SGE_BYTES + 8, true);
  }
  return bytes;
}
