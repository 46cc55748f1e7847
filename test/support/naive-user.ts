/**
 * A minimal queue pair: memory is a map of regions, queues are arrays, and everything that happens
 * is recorded. It plays the RNIC above a stream.
 */
import {
  AccessRefusal,
  type AtomicAccess,
  type InboundMessage,
  OutboundKind,
  type OutboundMessage,
  type WireUser,
} from '#daemon/rnic/wire-port';
import { hexOf } from './hex.ts';

/** Memory of an STag. By default it has all rights and is bound to no stream. */
interface Region {
  readonly bytes: Uint8Array;
  /** TO of the first byte. */
  readonly base: bigint;
  /** Address of the first byte, for the alignment of atomics. */
  readonly address: number;
  readable: boolean;
  writable: boolean;
  associated: boolean;
  invalidatable: boolean;
}

/** A consumer's post to the send queue. */
interface Job {
  readonly message: Partial<OutboundMessage> & { readonly kind: OutboundKind };
  readonly payload?: Uint8Array;
  /** Wait for all outstanding reads and atomics. */
  readonly fenced?: boolean;
}

/** A delivered message of QN 0. */
interface Delivered {
  readonly payload: string;
  readonly length: number;
  readonly solicited: boolean;
  readonly invalidated: number | undefined;
  readonly immediate: string | undefined;
}

const HALF = 32n;

function join(hi: number, lo: number): bigint {
  return (BigInt(hi) << HALF) | BigInt(lo);
}

/** The halves of a 64-bit number. */
function halves(value: bigint): { hi: number; lo: number } {
  return { hi: Number((value >> HALF) & 0xffff_ffffn), lo: Number(value & 0xffff_ffffn) };
}

export class NaiveUser implements WireUser {
  readonly regions = new Map<number, Region>();
  readonly delivered: Delivered[] = [];
  /** Recorded calls, in order: `sent`, `read`, `atomic <original>`, `received <length>`. */
  readonly log: string[] = [];
  /** Refuse this many `prepareGather`, `prepareReadSource` calls. */
  stallGather = 0;
  stallSource = 0;
  /** Refusals of the local memory, by call. */
  gatherRefusal: AccessRefusal = AccessRefusal.none;
  /** Fails the gathering of a Read's source from this many bytes on. */
  sourceFailsAt = Number.POSITIVE_INFINITY;
  sourceRefusal: AccessRefusal = AccessRefusal.memoryLost;
  /** How often a stream asked to place something. */
  placements = 0;
  readonly #jobs: Job[] = [];
  readonly #receives: Uint8Array[] = [];
  #receive: Uint8Array | undefined = undefined;
  #outstanding = 0;
  #sourceBytes = 0;

  // Actions of a consumer

  register(stag: number, size: number, base: bigint | number = 0, change: Partial<Region> = {}) {
    const region: Region = {
      bytes: new Uint8Array(size),
      base: BigInt(base),
      address: 0,
      readable: true,
      writable: true,
      associated: true,
      invalidatable: true,
      ...change,
    };
    this.regions.set(stag, region);
    return region.bytes;
  }

  postReceive(size: number, count = 1): void {
    for (let i = 0; i < count; i++) this.#receives.push(new Uint8Array(size).fill(0xee));
  }

  post(job: Job): void {
    this.#jobs.push(job);
  }

  send(payload: Uint8Array, change: Partial<OutboundMessage> = {}): void {
    this.post({ message: { kind: OutboundKind.send, ...change }, payload });
  }

  write(payload: Uint8Array, stag: number, to: bigint | number): void {
    const { hi, lo } = halves(BigInt(to));
    const message = { kind: OutboundKind.write, remoteStag: stag, remoteToHi: hi, remoteToLo: lo };
    this.post({ message, payload });
  }

  read(
    length: number,
    source: readonly [stag: number, to: bigint | number],
    sink: readonly [stag: number, to: bigint | number],
    fenced = false,
  ): void {
    const from = halves(BigInt(source[1]));
    const into = halves(BigInt(sink[1]));
    const message = {
      kind: OutboundKind.readRequest,
      lengthBytes: length,
      remoteStag: source[0],
      remoteToHi: from.hi,
      remoteToLo: from.lo,
      sinkStag: sink[0],
      sinkToHi: into.hi,
      sinkToLo: into.lo,
    };
    this.post({ message, fenced });
  }

  immediate(value: bigint, solicited = false): void {
    const { hi, lo } = halves(value);
    const message = { kind: OutboundKind.immediate, lengthBytes: 8, solicited };
    this.post({ message: { ...message, immediateHi: hi, immediateLo: lo } });
  }

  /** A FetchAdd without field boundaries. */
  fetchAdd(addend: bigint, stag: number, to: bigint | number): void {
    const at = halves(BigInt(to));
    const add = halves(addend);
    this.post({
      message: {
        kind: OutboundKind.atomic,
        atomicOperation: 0,
        remoteStag: stag,
        remoteToHi: at.hi,
        remoteToLo: at.lo,
        atomicOperandHi: add.hi,
        atomicOperandLo: add.lo,
        atomicCompareMaskHi: 0xffff_ffff,
        atomicCompareMaskLo: 0xffff_ffff,
      },
    });
  }

  /** A CmpSwap of all 64 bits. */
  compareSwap(compare: bigint, swap: bigint, stag: number, to: bigint | number): void {
    const at = halves(BigInt(to));
    const old = halves(compare);
    const next = halves(swap);
    this.post({
      message: {
        kind: OutboundKind.atomic,
        atomicOperation: 2,
        remoteStag: stag,
        remoteToHi: at.hi,
        remoteToLo: at.lo,
        atomicOperandHi: next.hi,
        atomicOperandLo: next.lo,
        atomicOperandMaskHi: 0xffff_ffff,
        atomicOperandMaskLo: 0xffff_ffff,
        atomicCompareHi: old.hi,
        atomicCompareLo: old.lo,
        atomicCompareMaskHi: 0xffff_ffff,
        atomicCompareMaskLo: 0xffff_ffff,
      },
    });
  }

  /** Jobs whose last byte is not framed. */
  get jobCount(): number {
    return this.#jobs.length;
  }

  get postedReceives(): number {
    return this.#receives.length;
  }

  // WireUser: inbound

  inputEnded(): AccessRefusal {
    return AccessRefusal.none;
  }

  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    return this.#place(stag, join(toHi, toLo), bytes.subarray(start, start + length));
  }

  writeCompleted(): void {}

  placeReadResponse(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    return this.#place(stag, join(toHi, toLo), bytes.subarray(start, start + length));
  }

  checkWriteTarget(): AccessRefusal {
    throw new Error('iWARP checks a Write segment by segment');
  }

  placeReadPart(): AccessRefusal {
    throw new Error('a Read Response of iWARP names its sink');
  }

  messageFailed(): void {
    throw new Error('iWARP completes messages before they can fail');
  }

  readCompleted(): void {
    this.#outstanding--;
    this.log.push('read');
  }

  atomicCompleted(originalHi: number, originalLo: number): void {
    this.#outstanding--;
    this.log.push(`atomic ${join(originalHi, originalLo).toString(16)}`);
  }

  beginReceive(): AccessRefusal {
    this.#receive = this.#receives.shift();
    return this.#receive === undefined ? AccessRefusal.noBuffer : AccessRefusal.none;
  }

  placeReceive(mo: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    this.placements++;
    const target = this.#receive;
    if (target === undefined) throw new Error('no receive has begun');
    if (mo + length > target.length) return AccessRefusal.messageTooLong;
    target.set(bytes.subarray(start, start + length), mo);
    return AccessRefusal.none;
  }

  completeReceive(message: InboundMessage): AccessRefusal {
    const target = this.#receive;
    if (target === undefined) throw new Error('no receive has begun');
    this.#receive = undefined;
    if (message.invalidates) {
      const region = this.regions.get(message.invalidateStag);
      if (region === undefined) return AccessRefusal.stagInvalid;
      if (!region.associated) return AccessRefusal.stagNotAssociated;
      if (!region.invalidatable) return AccessRefusal.cannotInvalidate;
      this.regions.delete(message.invalidateStag);
    }
    const value = join(message.immediateHi, message.immediateLo);
    this.delivered.push({
      payload: hexOf(target.subarray(0, message.lengthBytes)),
      length: message.lengthBytes,
      solicited: message.solicited,
      invalidated: message.invalidates ? message.invalidateStag : undefined,
      immediate: message.hasImmediate ? value.toString(16).padStart(16, '0') : undefined,
    });
    this.log.push(`received ${message.lengthBytes}`);
    return AccessRefusal.none;
  }

  checkReadSource(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    return this.#check(stag, join(toHi, toLo), length, 'readable');
  }

  prepareReadSource(): boolean {
    return this.stallSource-- <= 0;
  }

  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    if (this.#sourceBytes >= this.sourceFailsAt) return this.sourceRefusal;
    this.#sourceBytes += length;
    const to = join(toHi, toLo);
    const refusal = this.#check(stag, to, length, 'readable');
    if (refusal !== AccessRefusal.none) return refusal;
    const region = this.regions.get(stag) as Region;
    const at = Number(to - region.base);
    target.set(region.bytes.subarray(at, at + length), targetStart);
    return AccessRefusal.none;
  }

  executeAtomic(access: AtomicAccess): AccessRefusal {
    const to = join(access.toHi, access.toLo);
    const refusal = this.#check(access.stag, to, 8, 'writable');
    if (refusal !== AccessRefusal.none) return refusal;
    const region = this.regions.get(access.stag) as Region;
    const at = Number(to - region.base);
    if ((region.address + at) % 8 !== 0) return AccessRefusal.misaligned;
    const view = new DataView(region.bytes.buffer, region.bytes.byteOffset + at, 8);
    const original = view.getBigUint64(0, true);
    const operand = join(access.operandHi, access.operandLo);
    if (access.operation === 0) view.setBigUint64(0, BigInt.asUintN(64, original + operand), true);
    else {
      const mask = join(access.compareMaskHi, access.compareMaskLo);
      const equal = (original & mask) === (join(access.compareHi, access.compareLo) & mask);
      const swapMask = join(access.operandMaskHi, access.operandMaskLo);
      const swapped = (original & ~swapMask) | (operand & swapMask);
      if (equal) view.setBigUint64(0, BigInt.asUintN(64, swapped), true);
    }
    const { hi, lo } = halves(original);
    access.originalHi = hi;
    access.originalLo = lo;
    return AccessRefusal.none;
  }

  // WireUser: outbound

  nextMessage(message: OutboundMessage): boolean {
    const job = this.#jobs[0];
    if (job === undefined || (job.fenced === true && this.#outstanding > 0)) return false;
    Object.assign(message, EMPTY_MESSAGE, { lengthBytes: job.payload?.length ?? 0 }, job.message);
    return true;
  }

  prepareGather(): boolean {
    return this.stallGather-- <= 0;
  }

  gather(
    _slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    if (this.gatherRefusal !== AccessRefusal.none) return this.gatherRefusal;
    const payload = this.#jobs[0]?.payload;
    if (payload === undefined) throw new Error('the current message has no payload');
    target.set(payload.subarray(offset, offset + length), targetStart);
    return AccessRefusal.none;
  }

  messageDone(): void {
    const kind = this.#jobs.shift()?.message.kind;
    if (kind === OutboundKind.readRequest || kind === OutboundKind.atomic) this.#outstanding++;
    this.log.push('sent');
  }

  #place(stag: number, to: bigint, bytes: Uint8Array): AccessRefusal {
    this.placements++;
    const refusal = this.#check(stag, to, bytes.length, 'writable');
    if (refusal !== AccessRefusal.none) return refusal;
    const region = this.regions.get(stag) as Region;
    region.bytes.set(bytes, Number(to - region.base));
    return AccessRefusal.none;
  }

  #check(stag: number, to: bigint, length: number, right: 'readable' | 'writable'): AccessRefusal {
    const region = this.regions.get(stag);
    if (region === undefined) return AccessRefusal.stagInvalid;
    if (!region.associated) return AccessRefusal.stagNotAssociated;
    if (!region[right]) return AccessRefusal.access;
    const end = region.base + BigInt(region.bytes.length);
    return to < region.base || to + BigInt(length) > end
      ? AccessRefusal.bounds
      : AccessRefusal.none;
  }
}

const EMPTY_MESSAGE: Omit<OutboundMessage, 'kind' | 'lengthBytes'> = {
  slot: 0,
  address: undefined,
  remoteQpn: 0,
  qkey: 0,
  solicited: false,
  remoteStag: 0,
  remoteToHi: 0,
  remoteToLo: 0,
  sinkStag: 0,
  sinkToHi: 0,
  sinkToLo: 0,
  invalidateStag: 0,
  immediateHi: 0,
  immediateLo: 0,
  atomicOperation: 0,
  atomicOperandHi: 0,
  atomicOperandLo: 0,
  atomicOperandMaskHi: 0,
  atomicOperandMaskLo: 0,
  atomicCompareHi: 0,
  atomicCompareLo: 0,
  atomicCompareMaskHi: 0,
  atomicCompareMaskLo: 0,
};
