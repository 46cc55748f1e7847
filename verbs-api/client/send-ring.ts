/** The producer of a send ring. */
import {
  INLINE_MAX,
  QueueFlag,
  SGE_MAX,
  SQE,
  SQE_BYTES,
  SQOpcode,
  sqBytes,
} from '#contract/protocol/queue-layout';
import { SendFlag, WROpcode } from '#contract/verbs/enums';
import type { ErrnoCode } from '#contract/verbs/errors';
import { sendRefusal } from '#contract/verbs/post-refusal';
import type { PD } from '#contract/verbs/provider';
import { lostPayload, SEND_FLAGS } from '#contract/verbs/request-fields';
import type { SendFields, SGE } from '#contract/verbs/work-request';
import { isUint32, putLong, type RingMemory, ringMemory } from './ring-memory.ts';
import { putScatterGather } from './scatter-gather.ts';

const ELEMENT_WORDS = SQE_BYTES >>> 2;
const WR_ID = SQE.wrId >>> 2;
const CONTROL = SQE.flags >>> 2;
const RKEY = SQE.rkey >>> 2;
const RADDR = SQE.raddr >>> 2;
const SGES = SQE.sge >>> 2;
/** Length of the first SGE, or of inline payload if the flag says so. */
const FIRST_LENGTH = SGES + 2;
const IMMEDIATE = SQE.immediate >>> 2;
const ATOMIC_OPERAND = SQE.atomicOperand >>> 2;
const ATOMIC_COMPARE = SQE.atomicCompare >>> 2;
const BIND_KEY = SQE.bindKey >>> 2;
const BIND_ACCESS = SQE.bindAccess >>> 2;
const BIND_LKEY = SQE.bindLkey >>> 2;
const BIND_LENGTH = SQE.bindLength >>> 2;
const NUM_SGE_SHIFT = (SQE.numSge - SQE.flags) * 8;
const OPCODE_SHIFT = (SQE.opcode - SQE.flags) * 8;

/** Immediate Data occupies the place of the sixth SGE and of the end of inline payload. */
const SGE_MAX_WITH_IMMEDIATE = SGE_MAX - 1;
const INLINE_MAX_WITH_IMMEDIATE = INLINE_MAX - 16;
/** An RDMA Read names one sink (RFC 5040 §4.4), an atomic returns one value. */
const READ_SGE_MAX = 1;
const ATOMIC_BYTES = 8;
/** On RoCE. */
const IMMEDIATE_MAX = 0xffff_ffff;
const KEY_MASK = 0xff;

const NO_SGES: readonly SGE[] = [];

/** Result of `#writeOperation` for a malformed request, or an opcode that the transport lacks. */
const INVALID = -1;
const UNSUPPORTED = -2;

interface SendRingLimits {
  /** Elements, a power of two. */
  readonly count: number;
  readonly maxSge: number;
  /** Bytes. */
  readonly maxInline: number;
  /** Every request completes, flagged or not. */
  readonly sqSigAll: boolean;
  /** The device speaks RoCE: immediate data has 32 bits. Default: iWARP. */
  readonly roce?: boolean;
  /** The protection domain of a queue pair that sends datagrams. Default: it sends none. */
  readonly datagramsOf?: PD | undefined;
}

/**
 * Writes send work requests into the ring. Layout and protocol: daemon/contract/protocol/queue-layout.ts.
 *
 * `post` writes elements; once per batch, `doorbellDue` determines whether the device may have gone
 * idle without seeing the batch's first element.
 */
export class SendRing {
  readonly #memory: RingMemory;
  readonly #mask: number;
  readonly #limits: SendRingLimits;
  #put = 0;
  #batchStart = 0;

  constructor(mapping: Uint8Array, limits: SendRingLimits) {
    this.#memory = ringMemory(mapping, 0, sqBytes(limits.count));
    this.#mask = limits.count - 1;
    this.#limits = limits;
  }

  /** Posts one request. undefined when posted; ENOMEM when the ring is full; EINVAL; EOPNOTSUPP. */
  post(wr: SendFields): ErrnoCode | undefined {
    const control = this.#memory.control;
    const base = (this.#put & this.#mask) * ELEMENT_WORDS;
    if ((Atomics.load(control, base + CONTROL) & QueueFlag.valid) !== 0) return 'ENOMEM';
    const flags = wr.flags ?? 0;
    // Also refuses values that are not numbers: `flags & ~SEND_FLAGS` is 0 for words.
    if (flags !== (flags & SEND_FLAGS)) return 'EINVAL';
    if (!putLong(this.#memory, base + WR_ID, wr.wrId ?? 0)) return 'EINVAL';
    const inline = (flags & SendFlag.inline) !== 0 || hasInlineData(wr);
    const operation = this.#writeOperation(wr, base, inline);
    if (operation < 0) return operation === UNSUPPORTED ? 'EOPNOTSUPP' : 'EINVAL';
    Atomics.store(control, base + CONTROL, operation | this.#queueFlags(flags));
    this.#put = (this.#put + 1) >>> 0;
    return undefined;
  }

  /** Explains why `post` refused a request with `code`. */
  explain(wr: SendFields | undefined, code: ErrnoCode): string {
    const { datagramsOf, ...limits } = this.#limits;
    const datagrams = datagramsOf !== undefined;
    return sendRefusal(wr, code, { ...limits, datagrams, maxReadSge: READ_SGE_MAX });
  }

  /** True if something was posted since the last call and the device needs a doorbell. */
  doorbellDue(): boolean {
    const posted = (this.#put - this.#batchStart) >>> 0;
    if (posted === 0) return false;
    const before = (this.#batchStart - 1) & this.#mask;
    this.#batchStart = this.#put;
    // A batch that fills the ring has overwritten the element before it, so that one was consumed.
    if (posted > this.#mask) return true;
    const flags = Atomics.load(this.#memory.control, before * ELEMENT_WORDS + CONTROL);
    return (flags & QueueFlag.valid) === 0;
  }

  #queueFlags(flags: number): number {
    let queueFlags: number = QueueFlag.valid;
    if (this.#limits.sqSigAll || (flags & SendFlag.signaled) !== 0)
      queueFlags |= QueueFlag.signalled;
    if ((flags & SendFlag.solicited) !== 0) queueFlags |= QueueFlag.solicited;
    if ((flags & SendFlag.fence) !== 0) queueFlags |= QueueFlag.readFence;
    return queueFlags;
  }

  /** Writes the body for the opcode. Returns opcode, SGE count and INLINE, or why it refused. */
  #writeOperation(wr: SendFields, base: number, inline: boolean): number {
    switch (wr.opcode) {
      case WROpcode.send:
        if (!this.#putDestination(wr, base)) return INVALID;
        return this.#writePayload(wr, base, inline, SQOpcode.send, false);
      case WROpcode.sendWithImm:
        if (this.#limits.roce !== true) return UNSUPPORTED;
        if (!this.#putDestination(wr, base)) return INVALID;
        return this.#writePayload(wr, base, inline, SQOpcode.sendWithImm, true);
      case WROpcode.sendWithInv:
        if (!this.#putRkey(base, wr.invalidateRkey)) return INVALID;
        return this.#writePayload(wr, base, inline, SQOpcode.sendRemoteInv, false);
      case WROpcode.rdmaWrite:
        if (!this.#putRemote(wr, base)) return INVALID;
        return this.#writePayload(wr, base, inline, SQOpcode.write, false);
      case WROpcode.rdmaWriteWithImm:
        if (!this.#putRemote(wr, base)) return INVALID;
        return this.#writePayload(wr, base, inline, SQOpcode.writeWithImm, true);
      case WROpcode.immediate:
        if (this.#limits.roce === true) return UNSUPPORTED;
        if (inline || !this.#putImmediate(wr, base)) return INVALID;
        return SQOpcode.immediate << OPCODE_SHIFT;
      case WROpcode.rdmaRead:
        return inline ? INVALID : this.#writeRead(wr, base);
      case WROpcode.atomicCmpAndSwap:
      case WROpcode.atomicFetchAndAdd:
        return inline ? INVALID : this.#writeAtomic(wr, base);
      case WROpcode.localInv:
        if (inline || !this.#putRkey(base, wr.invalidateRkey)) return INVALID;
        return SQOpcode.localInv << OPCODE_SHIFT;
      case WROpcode.bindMW:
        return inline ? INVALID : this.#writeBind(wr, base);
      default:
        return INVALID;
    }
  }

  #writePayload(
    wr: SendFields,
    base: number,
    inline: boolean,
    opcode: SQOpcode,
    immediate: boolean,
  ): number {
    const operation = inline
      ? this.#writeInline(wr, base, immediate)
      : this.#writeSges(wr, base, immediate ? SGE_MAX_WITH_IMMEDIATE : this.#limits.maxSge);
    if (operation < 0) return INVALID;
    // Last, since an inline payload or a sixth SGE would overlap the Immediate Data.
    if (immediate && !this.#putImmediate(wr, base)) return INVALID;
    return operation | (opcode << OPCODE_SHIFT);
  }

  #writeSges(wr: SendFields, base: number, max: number): number {
    const list = wr.sgList ?? NO_SGES;
    // In this form the comparison also refuses a list without a length.
    if (!(list.length <= max && list.length <= this.#limits.maxSge)) return INVALID;
    if (list.length === 0 && (!Array.isArray(list) || lostPayload(wr))) return INVALID;
    if (!putScatterGather(this.#memory, base + SGES, list)) return INVALID;
    return list.length << NUM_SGE_SHIFT;
  }

  #writeInline(wr: SendFields, base: number, immediate: boolean): number {
    const payload = wr.inlineData;
    if (wr.sgList !== undefined && wr.sgList.length > 0) return INVALID;
    if (payload !== undefined && !ArrayBuffer.isView(payload)) return INVALID;
    const lengthBytes = payload === undefined ? 0 : payload.length;
    if (lengthBytes === 0 && lostPayload(wr)) return INVALID;
    if (lengthBytes > this.#limits.maxInline) return INVALID;
    if (immediate && lengthBytes > INLINE_MAX_WITH_IMMEDIATE) return INVALID;
    if (payload !== undefined) this.#memory.bytes.set(payload, base * 4 + SQE.inline);
    this.#memory.words[base + FIRST_LENGTH] = lengthBytes;
    return QueueFlag.inline | (1 << NUM_SGE_SHIFT);
  }

  #writeRead(wr: SendFields, base: number): number {
    if (!this.#putRemote(wr, base)) return INVALID;
    const operation = this.#writeSges(wr, base, READ_SGE_MAX);
    return operation < 0 ? INVALID : operation | (SQOpcode.read << OPCODE_SHIFT);
  }

  #writeAtomic(wr: SendFields, base: number): number {
    const memory = this.#memory;
    if (!this.#putRemote(wr, base)) return INVALID;
    if (wr.sgList?.length !== 1 || wr.sgList[0]?.length !== ATOMIC_BYTES) return INVALID;
    const sges = this.#writeSges(wr, base, READ_SGE_MAX);
    if (sges < 0 || wr.compareAdd === undefined) return INVALID;
    if (wr.opcode === WROpcode.atomicFetchAndAdd) {
      if (!putLong(memory, base + ATOMIC_OPERAND, wr.compareAdd)) return INVALID;
      return sges | (SQOpcode.fetchAndAdd << OPCODE_SHIFT);
    }
    if (wr.swap === undefined || !putLong(memory, base + ATOMIC_OPERAND, wr.swap)) return INVALID;
    if (!putLong(memory, base + ATOMIC_COMPARE, wr.compareAdd)) return INVALID;
    return sges | (SQOpcode.compAndSwap << OPCODE_SHIFT);
  }

  #writeBind(wr: SendFields, base: number): number {
    const { bind } = wr;
    const { words } = this.#memory;
    if (bind === undefined || !this.#putRkey(base, bind.rkey)) return INVALID;
    if (!isUint32(bind.lkey) || !isUint32(bind.access)) return INVALID;
    if (!putLong(this.#memory, base + RADDR, bind.addr)) return INVALID;
    if (!putLong(this.#memory, base + BIND_LENGTH, bind.length)) return INVALID;
    words[base + BIND_KEY] = bind.rkey & KEY_MASK;
    words[base + BIND_ACCESS] = bind.access;
    words[base + BIND_LKEY] = bind.lkey;
    return SQOpcode.bindMW << OPCODE_SHIFT;
  }

  // DDP-5.2-07: the sender of a tagged message must supply STag and offset.
  #putRemote(wr: SendFields, base: number): boolean {
    const { remoteAddr } = wr;
    if (remoteAddr === undefined || !this.#putRkey(base, wr.rkey)) return false;
    return putLong(this.#memory, base + RADDR, remoteAddr);
  }

  /** Writes the queue pair and key of a datagram in the places of remote address and key. */
  #putDestination(wr: SendFields, base: number): boolean {
    const { datagramsOf } = this.#limits;
    if (datagramsOf === undefined) return true;
    const { ud } = wr;
    if (ud?.ah?.pd !== datagramsOf || !isUint32(ud.ah.number)) return false;
    if (!isUint32(ud.remoteQpNum) || !this.#putRkey(base, ud.remoteQkey)) return false;
    const { words } = this.#memory;
    words[base + RADDR] = ud.remoteQpNum;
    words[base + RADDR + 1] = ud.ah.number;
    return true;
  }

  #putRkey(base: number, rkey: number | undefined): boolean {
    if (rkey === undefined || !isUint32(rkey)) return false;
    this.#memory.words[base + RKEY] = rkey;
    return true;
  }

  #putImmediate(wr: SendFields, base: number): boolean {
    const { immData } = wr;
    if (immData === undefined || (this.#limits.roce === true && immData > IMMEDIATE_MAX))
      return false;
    return putLong(this.#memory, base + IMMEDIATE, immData);
  }
}

/** `inlineData` implies inline, with or without the flag. */
function hasInlineData(wr: SendFields): boolean {
  return wr.inlineData !== undefined && wr.inlineData.length > 0;
}
