/**
 * Where a host can watch the work of a NIC: each work request when it is taken out of its queue, or
 * flushed there, and each completion that is written. While nobody watches, an element costs a look
 * at `observer`.
 *
 * Elements are read here once more than they are used, so that using them costs nothing; a client
 * that changes an element while it is taken deceives those who watch it, and nobody else.
 */
import {
  type CQEStatus,
  QueueFlag,
  RQE,
  SGE_BYTES,
  SGE_MAX,
  SQE,
  SQOpcode,
} from '../../verbs-api/contract/queue-layout.ts';
import {
  type CompletedWork,
  type PostedWork,
  type WorkObserver,
  WorkQueue,
} from '../../verbs-api/contract/work-records.ts';
import type { ElementRing } from './ring.ts';

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** RFC 7306 §6.3: Immediate Data are always so many octets. */
const IMMEDIATE_BYTES = 8;

/** See the module's comment. One for all queues of a NIC. */
export class WorkWatch {
  /** Who watches. */
  observer: WorkObserver | undefined = undefined;
  private readonly work: Mutable<PostedWork> = {
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
  private readonly completion: Mutable<CompletedWork> = {
    qpn: 0,
    opcode: 0,
    status: 0,
    flags: 0,
    wrIdHi: 0,
    wrIdLo: 0,
    lengthBytes: 0,
    immediateHi: 0,
    immediateLo: 0,
  };

  /** Tells of the next element of a send queue, which is VALID. */
  tellSend(qpn: number, elements: ElementRing, signalsAll: boolean): void {
    const { work } = this;
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

  /** Tells of the next element of a receive queue, which is VALID; `qpn` is who takes it. */
  tellReceive(qpn: number, elements: ElementRing, shared: boolean): void {
    const { work } = this;
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

  /** Tells of a completion that was written. */
  tellCompletion(
    wrIdLo: number,
    wrIdHi: number,
    opcode: number,
    status: CQEStatus,
    bytes: number,
    qpn: number,
    flags: number,
    immediateHi: number,
    immediateLo: number,
  ): void {
    const { completion } = this;
    completion.qpn = qpn;
    completion.opcode = opcode;
    completion.status = status;
    completion.flags = flags;
    completion.wrIdLo = wrIdLo;
    completion.wrIdHi = wrIdHi;
    completion.lengthBytes = bytes;
    completion.immediateHi = immediateHi;
    completion.immediateLo = immediateLo;
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

/** Octets that an element of a send queue is about, as its client wrote it. */
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
      // The length of inline payload stands in the first SGE.
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
