/**
 * One element of a send queue, copied out of the shared ring and checked.
 *
 * The client may write anything into the ring, even during the read. So every field is read exactly
 * once, and only the value read is checked and used.
 */
import {
  CQEStatus,
  INLINE_MAX,
  QueueFlag,
  SGE_MAX,
  SQE,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import type { PayloadReader } from '../memory/deferred-reads.ts';
import { type Copier, ViewBacking } from '../memory/memory-backing.ts';
import type { BindRequest } from '../memory/memory-window.ts';
import type { PD } from '../memory/protection-domain.ts';
import type { StagTable } from '../memory/stag-table.ts';
import { AccessRefusal, OutboundKind } from '../wire-port.ts';
import type { WorkRing } from './ring.ts';
import { ScatterList } from './scatter-list.ts';

/** Maximum length of a message: DDP counts its bytes in 32 bits (RFC 5041 §4.3). */
const MESSAGE_BYTES_MAX = 0xffff_ffff;
/** Immediate Data of a Write is at the end of the element; this many bytes remain before it. */
const INLINE_MAX_WITH_IMMEDIATE = SQE.immediate - SQE.inline;
const SGE_MAX_WITH_IMMEDIATE = SGE_MAX - 1;
/** Size of an atomic operand, in bytes. */
export const ATOMIC_BYTES = 8;

/** How an element is executed. */
export const WorkKind = {
  /** A message; it is done once it is framed. */
  message: 0,
  /** A request that completes with its response; counts against ORD. */
  read: 1,
  atomic: 2,
  /** Done locally, without a message. */
  bind: 3,
  invalidate: 4,
} as const;
export type WorkKind = (typeof WorkKind)[keyof typeof WorkKind];

export interface WqeLimits {
  readonly sgeMax: number;
  readonly inlineMax: number;
  /** The operations are InfiniBand's: its program connects the queue pair. */
  readonly infiniband: boolean;
}

/** An element that a send queue executes. Reused for later ones. */
export class SendWqe implements BindRequest {
  wrIdLo = 0;
  wrIdHi = 0;
  /** Bits of `QueueFlag`. */
  flags = 0;
  /** An `SQOpcode`; an unknown one is reported as a Send, which every client can name. */
  opcode: number = SQOpcode.send;
  kind: WorkKind = WorkKind.message;
  /** The (first) message on the wire. */
  outbound: OutboundKind = OutboundKind.none;
  lengthBytes = 0;
  /** The reason why `read` rejected the element, if the status is not specific enough. */
  refusal = '';
  rkey = 0;
  remoteHi = 0;
  remoteLo = 0;
  immediateHi = 0;
  immediateLo = 0;
  operandHi = 0;
  operandLo = 0;
  compareHi = 0;
  compareLo = 0;
  /** Bind: new key, rights, and key of the region to bind to. */
  key = 0;
  access = 0;
  lkey = 0;
  /** Bind: `rkey` has the window's current key, which must match. */
  namesPresentKey = false;
  /** Bind: the window's start. */
  get addressHi(): number {
    return this.remoteHi;
  }
  get addressLo(): number {
    return this.remoteLo;
  }
  readonly sges: ScatterList;
  /** Index among the WQEs of its queue. `OpenMessages` owns the following fields. */
  readonly slot: number;
  open = false;
  /** Part of the payload had to be fetched after the message was opened. */
  awaited = false;
  /** See `LentMessage`. */
  lent = 0;
  started = 0;
  /** Index of its element in the ring, modulo 2^32. */
  order = 0;
  next: SendWqe | undefined = undefined;
  /** Datagrams: the number of the address handle, the destination's QP number and key. */
  addressHandle = 0;
  remoteQpn = 0;
  qkey = 0;
  /** Maximum bytes of inline payload. */
  readonly inlineMax: number;
  /** Allocated with the first inline payload. */
  #inline: ViewBacking | undefined = undefined;
  readonly #infiniband: boolean;

  constructor(table: StagTable, slot: number, limits: WqeLimits) {
    this.slot = slot;
    this.#infiniband = limits.infiniband;
    this.sges = new ScatterList(table, limits.sgeMax);
    this.inlineMax = limits.inlineMax;
  }

  /** Copies inline payload of at most `inlineMax` bytes, and makes the copy the payload. */
  takeInline(view: DataView, start: number, length: number): void {
    this.#inline ??= new ViewBacking(new Uint8Array(this.inlineMax));
    this.#inline.take(view, start, length);
    this.lengthBytes = length;
  }

  /**
   * Reads the ring's next element, which is VALID, and checks it against `pd`. Returns the status
   * to complete it with: success when it may be executed.
   */
  read(ring: WorkRing, pd: PD): CQEStatus {
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
    this.refusal = '';
    this.sges.clear();
    switch (opcode) {
      case SQOpcode.send:
        return this.#readMessage(OutboundKind.send, ring, pd, numSge, false);
      case SQOpcode.sendRemoteInv:
        return this.#readMessage(OutboundKind.sendWithInvalidate, ring, pd, numSge, false);
      case SQOpcode.write:
        return this.#readMessage(OutboundKind.write, ring, pd, numSge, false);
      case SQOpcode.writeWithImm: {
        // RDMAPX-6-01: iWARP sends the Immediate Data in a separate message.
        const { write, writeWithImmediate } = OutboundKind;
        const kind = this.#infiniband ? writeWithImmediate : write;
        return this.#readMessage(kind, ring, pd, numSge, true);
      }
      case SQOpcode.sendWithImm:
        if (!this.#infiniband) return CQEStatus.locQpOpErr;
        return this.#readMessage(OutboundKind.sendWithImmediate, ring, pd, numSge, true);
      case SQOpcode.immediate:
        return this.#infiniband ? CQEStatus.locQpOpErr : this.#readImmediate(ring);
      case SQOpcode.read:
        return this.#readSink(WorkKind.read, ring, pd, numSge);
      case SQOpcode.fetchAndAdd:
      case SQOpcode.compAndSwap:
        return this.#readSink(WorkKind.atomic, ring, pd, numSge);
      case SQOpcode.bindMW:
        return this.#readBind(ring);
      case SQOpcode.localInv:
        this.kind = WorkKind.invalidate;
        return CQEStatus.success;
      default:
        return CQEStatus.locQpOpErr;
    }
  }

  #readMessage(
    outbound: OutboundKind,
    ring: WorkRing,
    pd: PD,
    numSge: number,
    immediate: boolean,
  ): CQEStatus {
    this.kind = WorkKind.message;
    this.outbound = outbound;
    // For datagrams. Other messages have an address at this offset; it is ignored.
    this.qkey = this.rkey;
    this.remoteQpn = this.remoteLo;
    this.addressHandle = this.remoteHi;
    if (immediate) this.#takeImmediate(ring);
    if ((this.flags & QueueFlag.inline) !== 0) return this.#readInline(ring, immediate);
    if (numSge > (immediate ? SGE_MAX_WITH_IMMEDIATE : SGE_MAX)) return CQEStatus.locQpOpErr;
    const { view, position } = ring;
    const refusal = this.sges.resolve(pd, view, position + SQE.sge, numSge, false);
    if (refusal !== AccessRefusal.none) return CQEStatus.locProtErr;
    if (this.sges.lengthBytes > MESSAGE_BYTES_MAX) return CQEStatus.locLenErr;
    this.lengthBytes = this.sges.lengthBytes;
    return CQEStatus.success;
  }

  #readInline(ring: WorkRing, immediate: boolean): CQEStatus {
    const { view, position } = ring;
    // The first SGE holds the length; num_sge is ignored.
    const length = view.getUint32(position + SQE.sge + 8, true);
    if (length > (immediate ? INLINE_MAX_WITH_IMMEDIATE : INLINE_MAX)) {
      return CQEStatus.locLenErr;
    }
    this.takeInline(view, position + SQE.inline, length);
    return CQEStatus.success;
  }

  #readImmediate(ring: WorkRing): CQEStatus {
    this.kind = WorkKind.message;
    this.outbound = OutboundKind.immediate;
    // RDMAPX-6.3-04: always 8 bytes.
    this.lengthBytes = 8;
    this.#takeImmediate(ring);
    return CQEStatus.success;
  }

  #takeImmediate(ring: WorkRing): void {
    this.immediateLo = ring.view.getUint32(ring.position + SQE.immediate, true);
    this.immediateHi = ring.view.getUint32(ring.position + SQE.immediate + 4, true);
  }

  #readSink(kind: WorkKind, ring: WorkRing, pd: PD, numSge: number): CQEStatus {
    const { view, position } = ring;
    const atomic = kind === WorkKind.atomic;
    this.kind = kind;
    this.outbound = atomic ? OutboundKind.atomic : OutboundKind.readRequest;
    // One Read Response has one sink STag (RFC 5040 §4.4), and an atomic one result.
    if (numSge > 1) {
      const what = atomic ? 'an atomic' : `an RDMA Read${this.#infiniband ? '' : ' over iWARP'}`;
      this.refusal = `${what} takes one SGE, not ${numSge}`;
    }
    if (numSge > 1 || (this.flags & QueueFlag.inline) !== 0) return CQEStatus.locQpOpErr;
    // RDMAP-5.2.2-07: an unusable sink fails here, before any request is sent.
    const refusal = this.sges.resolve(pd, view, position + SQE.sge, numSge, true);
    if (refusal !== AccessRefusal.none) return CQEStatus.locProtErr;
    this.lengthBytes = this.sges.lengthBytes;
    if (!atomic) return CQEStatus.success;
    this.operandLo = view.getUint32(position + SQE.atomicOperand, true);
    this.operandHi = view.getUint32(position + SQE.atomicOperand + 4, true);
    this.compareLo = view.getUint32(position + SQE.atomicCompare, true);
    this.compareHi = view.getUint32(position + SQE.atomicCompare + 4, true);
    return this.lengthBytes === ATOMIC_BYTES ? CQEStatus.success : CQEStatus.locLenErr;
  }

  #readBind(ring: WorkRing): CQEStatus {
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

  /** True if payload bytes can be gathered now. */
  prepare(offset: number, length: number): boolean {
    if ((this.flags & QueueFlag.inline) !== 0 || this.sges.prepare(offset, length)) return true;
    this.awaited = true;
    return false;
  }

  /** The one that copies payload bytes straight into other memory, if there is one. */
  copier(offset: number, length: number): Copier | undefined {
    if ((this.flags & QueueFlag.inline) !== 0) return undefined;
    return this.sges.copier(offset, length);
  }

  /** Drops prepared payload: the wire no longer needs it to repeat the message. */
  abandon(): void {
    this.awaited = false;
    this.sges.abandon();
  }

  /** Copies payload bytes into `target`, at once or through `reader`. */
  gather(
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
    reader?: PayloadReader,
  ): AccessRefusal {
    if ((this.flags & QueueFlag.inline) === 0) {
      return this.sges.gather(offset, length, target, targetStart, reader);
    }
    const copied = this.#inline?.read(offset, length, target, targetStart) === true;
    return copied ? AccessRefusal.none : AccessRefusal.bounds;
  }
}

/** An opcode that clients can look up in their table of known ones. */
export function completionOpcode(opcode: number): number {
  return opcode <= SQOpcode.receive || (opcode >= SQOpcode.immediate && opcode <= SQOpcode.localInv)
    ? opcode
    : SQOpcode.send;
}
