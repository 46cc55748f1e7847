/**
 * One element of a send queue, copied out of the shared ring and checked.
 *
 * The client may write anything into the ring, and may go on writing while it is read: every
 * field is read exactly once, and only what was read is checked and used.
 */
import {
  CQEStatus,
  INLINE_MAX,
  QueueFlag,
  SGE_MAX,
  SQE,
  SQOpcode,
} from '../../verbs-api/contract/queue-layout.ts';
import { Fault, OutboundKind } from '../engine/placement.ts';
import { copyOctets } from './memory-backing.ts';
import type { BindRequest } from './memory-window.ts';
import type { PD } from './protection-domain.ts';
import type { ElementRing } from './ring.ts';
import { ScatterList } from './scatter-list.ts';
import type { StagTable } from './stag-table.ts';

/** Longest message: DDP counts its octets in 32 bits (RFC 5041 §4.3). */
const MESSAGE_BYTES_MAX = 0xffff_ffff;
/** Immediate Data of a Write stands where the end of the element is: this much is left before. */
const INLINE_MAX_WITH_IMMEDIATE = SQE.immediate - SQE.inline;
const SGE_MAX_WITH_IMMEDIATE = SGE_MAX - 1;
const ATOMIC_BYTES = 8;

/** How an element is carried out. */
export const WorkKind = {
  /** A message whose framing completes it. */
  message: 0,
  /** A request that its response completes; counts against ORD. */
  read: 1,
  atomic: 2,
  /** Done here, without a message. */
  bind: 3,
  invalidate: 4,
} as const;
export type WorkKind = (typeof WorkKind)[keyof typeof WorkKind];

/** The element that a send queue executes. One object per queue, filled anew for each element. */
export class SendWqe implements BindRequest {
  wrIdLo = 0;
  wrIdHi = 0;
  /** Bits of `QueueFlag`. */
  flags = 0;
  /** Of `SQOpcode`; an unknown one is told as a Send, which every client can name. */
  opcode: number = SQOpcode.send;
  kind: WorkKind = WorkKind.message;
  /** The (first) message on the wire. */
  outbound: OutboundKind = OutboundKind.none;
  lengthBytes = 0;
  rkey = 0;
  remoteHi = 0;
  remoteLo = 0;
  immediateHi = 0;
  immediateLo = 0;
  operandHi = 0;
  operandLo = 0;
  compareHi = 0;
  compareLo = 0;
  /** Of a bind: new key, rights, and key of the region behind the window. */
  key = 0;
  access = 0;
  lkey = 0;
  /** Of a bind: the window's start. */
  get addressHi(): number {
    return this.remoteHi;
  }
  get addressLo(): number {
    return this.remoteLo;
  }
  readonly sges = new ScatterList();
  private readonly inline = new Uint8Array(INLINE_MAX);

  /**
   * Reads the ring's next element, which is VALID, and checks it against `pd`. The result is the
   * status to complete it with: success when it may be executed.
   */
  read(ring: ElementRing, table: StagTable, pd: PD): CQEStatus {
    const { view, position } = ring;
    this.wrIdLo = view.getUint32(position + SQE.wrId, true);
    this.wrIdHi = view.getUint32(position + SQE.wrId + 4, true);
    this.flags = view.getUint16(position + SQE.flags, true);
    const numSge = view.getUint8(position + SQE.numSge);
    const opcode = view.getUint8(position + SQE.opcode);
    this.rkey = view.getUint32(position + SQE.rkey, true);
    this.remoteLo = view.getUint32(position + SQE.raddr, true);
    this.remoteHi = view.getUint32(position + SQE.raddr + 4, true);
    this.opcode = completionOpcode(opcode);
    this.lengthBytes = 0;
    this.sges.clear();
    switch (opcode) {
      case SQOpcode.send:
        return this.readMessage(OutboundKind.send, ring, table, pd, numSge, false);
      case SQOpcode.sendRemoteInv:
        return this.readMessage(OutboundKind.sendWithInvalidate, ring, table, pd, numSge, false);
      case SQOpcode.write:
        return this.readMessage(OutboundKind.write, ring, table, pd, numSge, false);
      case SQOpcode.writeWithImm:
        return this.readMessage(OutboundKind.write, ring, table, pd, numSge, true);
      case SQOpcode.immediate:
        return this.readImmediate(ring);
      case SQOpcode.read:
        return this.readSink(WorkKind.read, ring, table, pd, numSge);
      case SQOpcode.fetchAndAdd:
      case SQOpcode.compAndSwap:
        return this.readSink(WorkKind.atomic, ring, table, pd, numSge);
      case SQOpcode.bindMW:
        return this.readBind(ring);
      case SQOpcode.localInv:
        this.kind = WorkKind.invalidate;
        return CQEStatus.success;
      default:
        return CQEStatus.locQpOpErr;
    }
  }

  private readMessage(
    outbound: OutboundKind,
    ring: ElementRing,
    table: StagTable,
    pd: PD,
    numSge: number,
    immediate: boolean,
  ): CQEStatus {
    this.kind = WorkKind.message;
    this.outbound = outbound;
    if (immediate) this.takeImmediate(ring);
    if ((this.flags & QueueFlag.inline) !== 0) return this.readInline(ring, immediate);
    if (numSge > (immediate ? SGE_MAX_WITH_IMMEDIATE : SGE_MAX)) return CQEStatus.locQpOpErr;
    const { view, position } = ring;
    const fault = this.sges.resolve(table, pd, view, position + SQE.sge, numSge, false);
    if (fault !== Fault.none) return CQEStatus.locProtErr;
    if (this.sges.lengthBytes > MESSAGE_BYTES_MAX) return CQEStatus.locLenErr;
    this.lengthBytes = this.sges.lengthBytes;
    return CQEStatus.success;
  }

  private readInline(ring: ElementRing, immediate: boolean): CQEStatus {
    const { view, position, octets } = ring;
    // The length stands in the first SGE; what num_sge says means nothing here.
    const length = view.getUint32(position + SQE.sge + 8, true);
    if (length > (immediate ? INLINE_MAX_WITH_IMMEDIATE : INLINE_MAX)) {
      return CQEStatus.locLenErr;
    }
    copyOctets(octets, position + SQE.inline, length, this.inline, 0);
    this.lengthBytes = length;
    return CQEStatus.success;
  }

  private readImmediate(ring: ElementRing): CQEStatus {
    this.kind = WorkKind.message;
    this.outbound = OutboundKind.immediate;
    // RDMAPX-6.3-04: always 8 octets.
    this.lengthBytes = 8;
    this.takeImmediate(ring);
    return CQEStatus.success;
  }

  private takeImmediate(ring: ElementRing): void {
    this.immediateLo = ring.view.getUint32(ring.position + SQE.immediate, true);
    this.immediateHi = ring.view.getUint32(ring.position + SQE.immediate + 4, true);
  }

  private readSink(
    kind: WorkKind,
    ring: ElementRing,
    table: StagTable,
    pd: PD,
    numSge: number,
  ): CQEStatus {
    const { view, position } = ring;
    const atomic = kind === WorkKind.atomic;
    this.kind = kind;
    this.outbound = atomic ? OutboundKind.atomic : OutboundKind.readRequest;
    // One Read Response has one sink STag (RFC 5040 §4.4), and an atomic one result.
    if (numSge > 1 || (this.flags & QueueFlag.inline) !== 0) return CQEStatus.locQpOpErr;
    // RDMAP-5.2.2-07: an unusable sink is refused here, before any request goes out.
    const fault = this.sges.resolve(table, pd, view, position + SQE.sge, numSge, true);
    if (fault !== Fault.none) return CQEStatus.locProtErr;
    this.lengthBytes = this.sges.lengthBytes;
    if (!atomic) return CQEStatus.success;
    this.operandLo = view.getUint32(position + SQE.atomicOperand, true);
    this.operandHi = view.getUint32(position + SQE.atomicOperand + 4, true);
    this.compareLo = view.getUint32(position + SQE.atomicCompare, true);
    this.compareHi = view.getUint32(position + SQE.atomicCompare + 4, true);
    return this.lengthBytes === ATOMIC_BYTES ? CQEStatus.success : CQEStatus.locLenErr;
  }

  private readBind(ring: ElementRing): CQEStatus {
    const { view, position } = ring;
    this.kind = WorkKind.bind;
    this.key = view.getUint8(position + SQE.bindKey);
    this.access = view.getUint32(position + SQE.bindAccess, true);
    this.lkey = view.getUint32(position + SQE.bindLkey, true);
    const lengthLo = view.getUint32(position + SQE.bindLength, true);
    const lengthHi = view.getUint32(position + SQE.bindLength + 4, true);
    this.lengthBytes = lengthHi * 2 ** 32 + lengthLo;
    return CQEStatus.success;
  }

  /** True when payload octets can be gathered now. */
  prepare(offset: number, length: number): boolean {
    return (this.flags & QueueFlag.inline) !== 0 || this.sges.prepare(offset, length);
  }

  /** Copies payload octets into `target`. */
  gather(offset: number, length: number, target: Uint8Array, targetStart: number): Fault {
    if ((this.flags & QueueFlag.inline) === 0) {
      return this.sges.gather(offset, length, target, targetStart);
    }
    copyOctets(this.inline, offset, length, target, targetStart);
    return Fault.none;
  }
}

/** The opcode that a completion may carry: clients look it up in a table of the known ones. */
export function completionOpcode(opcode: number): number {
  return opcode <= SQOpcode.receive || (opcode >= SQOpcode.immediate && opcode <= SQOpcode.localInv)
    ? opcode
    : SQOpcode.send;
}
