/**
 * A model of a queue pair, for tests of wires: a list of work requests, a list of receives, and memory
 * by its key. It records what happens, and throws as soon as the wire breaks a rule of the port.
 */
import {
  AccessRefusal,
  type AtomicAccess,
  type DeferringUser,
  type InboundMessage,
  type MessageFailure,
  OutboundKind,
  OutboundMessage,
} from '#daemon/rnic/wire-port';
import { hexOf } from './hex.ts';

/** Key of the memory that a model for RoCE has from the start. */
export const REMOTE_KEY = 0x1234_0077;
/** Its address. The low half is near its maximum, so that ranges cross that boundary. */
const BASE = 0x7fff_ffff_f000n;
const HALF = 32n;

/** Memory of a key. By default it has all rights and is bound to no stream. */
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

export interface Work {
  /** By default, its place in the order of posting. */
  readonly id?: number;
  readonly message: Partial<OutboundMessage>;
  readonly payload?: Uint8Array;
  /** For a Read on RoCE: where its data go. */
  readonly sink?: Uint8Array;
  /** Waits for all outstanding Reads and atomics. */
  readonly fenced?: boolean;
}

/** A message that arrived. */
export interface Arrival {
  readonly bytes: Uint8Array;
  readonly message: InboundMessage;
}

/** An arrival as text. */
interface Delivered {
  readonly payload: string;
  readonly length: number;
  readonly solicited: boolean;
  readonly invalidated: number | undefined;
  readonly immediate: string | undefined;
}

/** A completion: of `id`, with the original value for an atomic. */
export interface Done {
  readonly id: number;
  readonly original?: number;
}

/** A message from `nextMessage` on. */
interface Taken {
  readonly work: Work;
  readonly slot: number;
  original?: bigint;
}

function join(hi: number, lo: number): bigint {
  return (BigInt(hi) << HALF) | BigInt(lo);
}

/** The halves of a 64-bit number. */
function halves(value: bigint): { hi: number; lo: number } {
  return { hi: Number((value >> HALF) & 0xffff_ffffn), lo: Number(value & 0xffff_ffffn) };
}

/** A remote key and address, as fields of a message. */
function remote(remoteStag: number, to: bigint | number): Partial<OutboundMessage> {
  const { hi, lo } = halves(BigInt(to));
  return { remoteStag, remoteToHi: hi, remoteToLo: lo };
}

/** The remote address at `offset` of the memory of `REMOTE_KEY`. */
export function addressAt(offset: number): { remoteToHi: number; remoteToLo: number } {
  const { hi, lo } = halves(BASE + BigInt(offset));
  return { remoteToHi: hi, remoteToLo: lo };
}

function rule(holds: boolean, text: string): asserts holds {
  if (!holds) throw new Error(`the wire broke a rule of the port: ${text}`);
}

function isRequest({ kind }: Partial<OutboundMessage>): boolean {
  return kind === OutboundKind.readRequest || kind === OutboundKind.atomic;
}

export class ModelUser implements DeferringUser {
  readonly regions = new Map<number, Region>();
  /** The bytes of `REMOTE_KEY`. */
  readonly memory: Uint8Array;
  readonly arrivals: Arrival[] = [];
  readonly done: Done[] = [];
  /** Recorded calls, in order: `sent`, `read`, `atomic <original>`, `received <length>`. */
  readonly log: string[] = [];
  /** Capacities of posted receives. */
  readonly receives: number[] = [];
  readonly failures: MessageFailure[] = [];
  /** Work that has not been taken. */
  readonly work: Work[] = [];
  atomics = 0;
  writes = 0;
  /** How often a wire asked to place bytes in memory or in a receive. */
  placements = 0;
  mostOpen = 0;
  /** Reads and atomics that may be open (ORD). */
  ord = Number.POSITIVE_INFINITY;
  /** Returns whether payload is ready; false delays it until the next pump. */
  ready: () => boolean = () => true;
  /** Refuse this many `prepareGather`, `prepareReadSource` calls. */
  stallGather = 0;
  stallSource = 0;
  /** Received data is not in memory yet. */
  placing = false;
  readonly lending = false;
  readonly unread = false;
  readonly copiesOrdered = 0;
  readonly copiesDone = 0;
  /** Called at each completion. */
  onDone: (done: Done) => void = () => undefined;
  onArrival: (arrival: Arrival) => void = () => undefined;
  /** Refusals to return, by the name of a method. */
  refusals: Partial<Record<string, AccessRefusal>> = {};
  /** Bytes of Read sources that are gathered before `refusals.gatherReadSource` takes effect. */
  sourceFailsAt = 0;
  readonly #retransmits: boolean;
  /** Messages that are not done, and requests without an answer. */
  readonly #open: Taken[] = [];
  readonly #asked: Taken[] = [];
  readonly #slots = new Map<number, Work>();
  #receive: Uint8Array | undefined = undefined;
  #received = 0;
  #sourceBytes = 0;
  /** Writes since the last end of input. */
  readonly #placed: (() => void)[] = [];
  readonly #later: (() => AccessRefusal)[] = [];
  readonly #sourcesLater: (() => AccessRefusal)[] = [];

  /** `wire`: the protocol whose rules apply. `memoryBytes`: the size of `REMOTE_KEY`'s memory. */
  constructor(wire: 'iwarp' | 'roce' = 'iwarp', memoryBytes = 0) {
    this.#retransmits = wire === 'roce';
    this.memory = this.register(REMOTE_KEY, memoryBytes, BASE);
  }

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

  awaitCopies(): void {}

  mayLend(): boolean {
    return false;
  }

  lend(): AccessRefusal {
    return AccessRefusal.memoryLost;
  }

  postReceive(size: number, count = 1): void {
    for (let i = 0; i < count; i++) this.receives.push(size);
  }

  post(work: Work): void {
    this.work.push(work);
  }

  send(payload: Uint8Array, change: Partial<OutboundMessage> = {}): void {
    this.post({ message: { kind: OutboundKind.send, ...change }, payload });
  }

  write(payload: Uint8Array, stag: number, to: bigint | number): void {
    this.post({ message: { kind: OutboundKind.write, ...remote(stag, to) }, payload });
  }

  /** A Read on iWARP, which names its sink. */
  read(
    lengthBytes: number,
    source: readonly [stag: number, to: bigint | number],
    [sinkStag, sinkTo]: readonly [stag: number, to: bigint | number],
    fenced = false,
  ): void {
    const { hi: sinkToHi, lo: sinkToLo } = halves(BigInt(sinkTo));
    const sink = { sinkStag, sinkToHi, sinkToLo };
    const kind = OutboundKind.readRequest;
    this.post({ message: { kind, lengthBytes, ...remote(...source), ...sink }, fenced });
  }

  immediate(value: bigint, solicited = false): void {
    const { hi: immediateHi, lo: immediateLo } = halves(value);
    const kind = OutboundKind.immediate;
    this.post({ message: { kind, lengthBytes: 8, solicited, immediateHi, immediateLo } });
  }

  /** A FetchAdd without field boundaries. */
  fetchAdd(addend: bigint, stag: number, to: bigint | number): void {
    const { hi, lo } = halves(addend);
    this.#atomic(stag, to, { atomicOperandHi: hi, atomicOperandLo: lo });
  }

  /** A CmpSwap of all 64 bits. */
  compareSwap(compare: bigint, swap: bigint, stag: number, to: bigint | number): void {
    const old = halves(compare);
    const next = halves(swap);
    this.#atomic(stag, to, {
      atomicOperation: 2,
      atomicOperandHi: next.hi,
      atomicOperandLo: next.lo,
      atomicOperandMaskHi: 0xffff_ffff,
      atomicOperandMaskLo: 0xffff_ffff,
      atomicCompareHi: old.hi,
      atomicCompareLo: old.lo,
    });
  }

  #atomic(stag: number, to: bigint | number, change: Partial<OutboundMessage>): void {
    const mask = { atomicCompareMaskHi: 0xffff_ffff, atomicCompareMaskLo: 0xffff_ffff };
    this.post({ message: { kind: OutboundKind.atomic, ...remote(stag, to), ...mask, ...change } });
  }

  // Records

  /** Work requests that are not done. */
  get jobCount(): number {
    return this.#open.length + this.work.length;
  }

  get delivered(): Delivered[] {
    return this.arrivals.map(({ bytes, message }) => {
      const value = join(message.immediateHi, message.immediateLo);
      return {
        payload: hexOf(bytes),
        length: message.lengthBytes,
        solicited: message.solicited,
        invalidated: message.invalidates ? message.invalidateStag : undefined,
        immediate: message.hasImmediate ? value.toString(16).padStart(16, '0') : undefined,
      };
    });
  }

  // WireUser: outbound

  nextMessage(message: OutboundMessage): boolean {
    rule(this.#retransmits || this.#open.length === 0, 'iWARP has one open message');
    const [work] = this.work;
    if (work === undefined || (work.fenced === true && this.#asked.length > 0)) return false;
    const request = isRequest(work.message);
    if (request && this.#asked.length >= this.ord) return false;
    this.work.shift();
    let slot = 0;
    while (this.#slots.has(slot)) slot += 1;
    this.#slots.set(slot, work);
    const taken = { work, slot };
    this.#open.push(taken);
    if (request) this.#asked.push(taken);
    this.mostOpen = Math.max(this.mostOpen, this.#open.length);
    const lengthBytes = work.payload?.length ?? work.sink?.length ?? 0;
    Object.assign(message, new OutboundMessage(), { lengthBytes }, work.message, { slot });
    return true;
  }

  prepareGather(slot: number, offset: number, length: number): boolean {
    this.#payload(slot, offset, length);
    return this.stallGather-- <= 0 && this.ready();
  }

  gather(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): AccessRefusal {
    target.set(this.#payload(slot, offset, length), start);
    return this.refusals['gather'] ?? AccessRefusal.none;
  }

  gatherLater(
    slot: number,
    offset: number,
    length: number,
    target: Uint8Array,
    start: number,
  ): AccessRefusal {
    this.#later.push(() => this.gather(slot, offset, length, target, start));
    return AccessRefusal.none;
  }

  gatherReadSourceLater(...args: Parameters<ModelUser['gatherReadSource']>): AccessRefusal {
    this.#sourcesLater.push(() => this.gatherReadSource(...args));
    return AccessRefusal.none;
  }

  gatheringEnded(): AccessRefusal {
    const isRefusal = (refusal: AccessRefusal): boolean => refusal !== AccessRefusal.none;
    const refusals = this.#later.splice(0).map((gather) => gather());
    const sources = this.#sourcesLater.splice(0).map((gather) => gather());
    if (refusals.some(isRefusal)) return AccessRefusal.memoryLost;
    return sources.some(isRefusal) ? AccessRefusal.stagInvalid : AccessRefusal.none;
  }

  #payload(slot: number, offset: number, length: number): Uint8Array {
    const payload = this.#slots.get(slot)?.payload;
    rule(payload !== undefined, 'gathers from open messages with payload only');
    rule(offset + length <= payload.length && length > 0, 'gathers within the payload');
    return payload.subarray(offset, offset + length);
  }

  messageDone(): void {
    const taken = this.#open.shift();
    rule(taken !== undefined, 'a message that is done was open');
    const answered = !this.#asked.includes(taken);
    rule(!this.#retransmits || answered, 'a Read or atomic is done when it is answered');
    this.#slots.delete(taken.slot);
    this.log.push('sent');
    const { id = this.done.length } = taken.work;
    const { original } = taken;
    const done = original === undefined ? { id } : { id, original: Number(original) };
    this.done.push(done);
    this.onDone(done);
  }

  messageFailed(failure: MessageFailure): void {
    rule(this.#retransmits, 'messages of iWARP are done before they can fail');
    rule(this.#open.length > 0, 'a message that failed is open');
    this.failures.push(failure);
  }

  placeReadPart(offset: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    rule(this.#retransmits, 'a Read Response of iWARP names its sink');
    const { sink } = this.#oldestRequest(OutboundKind.readRequest).work;
    rule(sink !== undefined && offset + length <= sink.length, 'data fit the Read');
    sink.set(bytes.subarray(start, start + length), offset);
    return this.refusals['placeReadPart'] ?? AccessRefusal.none;
  }

  placeReadResponse(...args: Parameters<ModelUser['placeWrite']>): AccessRefusal {
    rule(!this.#retransmits, 'a Read Response of RoCE names no sink');
    this.#oldestRequest(OutboundKind.readRequest);
    return this.placeWrite(...args);
  }

  readCompleted(): void {
    this.#oldestRequest(OutboundKind.readRequest);
    this.#asked.shift();
    this.log.push('read');
  }

  atomicCompleted(originalHi: number, originalLo: number): void {
    const taken = this.#oldestRequest(OutboundKind.atomic);
    taken.original = join(originalHi, originalLo);
    this.#asked.shift();
    this.log.push(`atomic ${taken.original.toString(16)}`);
  }

  #oldestRequest(kind: OutboundKind): Taken {
    const [taken] = this.#asked;
    rule(taken?.work.message.kind === kind, 'an answer has its request');
    const [open] = this.#open;
    rule(this.#retransmits ? taken === open : taken !== open, 'all before an answer is done');
    return taken;
  }

  // WireUser: inbound

  checkWriteTarget(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    rule(this.#retransmits, 'iWARP checks a Write segment by segment');
    return this.refusals['checkWriteTarget'] ?? this.#check(stag, toHi, toLo, length, 'writable');
  }

  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    rule(length > 0, 'places no empty segment');
    this.placements += 1;
    const refusal = this.#check(stag, toHi, toLo, length, 'writable');
    if (refusal !== AccessRefusal.none) return refusal;
    const target = this.#range(stag, toHi, toLo, length);
    this.#placed.push(() => target.set(bytes.subarray(start, start + length)));
    return AccessRefusal.none;
  }

  writeCompleted(): void {
    this.writes += 1;
  }

  /** Carries out Writes, as a read of memory does; until then, memory is unchanged. */
  inputEnded(): AccessRefusal {
    this.#carryOut();
    return this.refusals['inputEnded'] ?? AccessRefusal.none;
  }

  beginReceive(): AccessRefusal {
    rule(this.#receive === undefined, 'one receive at a time');
    const capacity = this.receives.shift();
    if (capacity === undefined) return AccessRefusal.noBuffer;
    this.#receive = new Uint8Array(capacity);
    this.#received = 0;
    return AccessRefusal.none;
  }

  placeReceive(mo: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    rule(this.#receive !== undefined, 'data come for a receive');
    rule(length > 0, 'places no empty segment');
    this.placements += 1;
    if (mo + length > this.#receive.length) return AccessRefusal.messageTooLong;
    rule(mo === this.#received || mo === 0, 'data of a message come in order');
    this.#receive.set(bytes.subarray(start, start + length), mo);
    this.#received = mo + length;
    return AccessRefusal.none;
  }

  completeReceive(message: InboundMessage): AccessRefusal {
    rule(this.#receive !== undefined, 'a message has its receive');
    // Without payload, leftovers of a dropped message stay in the receive.
    if (message.written || message.lengthBytes === 0) this.#received = 0;
    rule(message.written || message.lengthBytes === this.#received, 'lengths agree');
    const bytes = this.#receive.slice(0, this.#received);
    this.#receive = undefined;
    const refusal = this.refusals['completeReceive'] ?? this.#invalidate(message);
    if (refusal !== AccessRefusal.none) return refusal;
    const arrival = { bytes, message: { ...message } };
    this.arrivals.push(arrival);
    this.log.push(`received ${message.lengthBytes}`);
    this.onArrival(arrival);
    return AccessRefusal.none;
  }

  #invalidate({ invalidates, invalidateStag }: InboundMessage): AccessRefusal {
    if (!invalidates) return AccessRefusal.none;
    const region = this.regions.get(invalidateStag);
    if (region === undefined) return AccessRefusal.stagInvalid;
    if (!region.associated) return AccessRefusal.stagNotAssociated;
    if (!region.invalidatable) return AccessRefusal.cannotInvalidate;
    this.regions.delete(invalidateStag);
    return AccessRefusal.none;
  }

  checkReadSource(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    return this.refusals['checkReadSource'] ?? this.#check(stag, toHi, toLo, length, 'readable');
  }

  prepareReadSource(_stag: number, _toHi: number, _toLo: number, _length: number): boolean {
    return this.stallSource-- <= 0 && this.ready();
  }

  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    const failing = this.#sourceBytes >= this.sourceFailsAt;
    const refusal =
      (failing ? this.refusals['gatherReadSource'] : undefined) ??
      this.#check(stag, toHi, toLo, length, 'readable');
    if (refusal !== AccessRefusal.none) return refusal;
    this.#carryOut();
    this.#sourceBytes += length;
    target.set(this.#range(stag, toHi, toLo, length), targetStart);
    return AccessRefusal.none;
  }

  executeAtomic(access: AtomicAccess): AccessRefusal {
    const { stag, toHi, toLo } = access;
    const refusal = this.#check(stag, toHi, toLo, 8, 'writable');
    if (refusal !== AccessRefusal.none) return refusal;
    const { address, base } = this.regions.get(stag) as Region;
    if ((BigInt(address) + join(toHi, toLo) - base) % 8n !== 0n) return AccessRefusal.misaligned;
    this.#carryOut();
    this.atomics += 1;
    const target = this.#range(stag, toHi, toLo, 8);
    const view = new DataView(target.buffer, target.byteOffset, 8);
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
    ({ hi: access.originalHi, lo: access.originalLo } = halves(original));
    return AccessRefusal.none;
  }

  #check(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    right: 'readable' | 'writable',
  ): AccessRefusal {
    if (this.#retransmits && length === 0) return AccessRefusal.none;
    const region = this.regions.get(stag);
    if (region === undefined) return AccessRefusal.stagInvalid;
    if (!region.associated) return AccessRefusal.stagNotAssociated;
    if (!region[right]) return AccessRefusal.access;
    const to = join(toHi, toLo);
    const end = region.base + BigInt(region.bytes.length);
    return to < region.base || to + BigInt(length) > end
      ? AccessRefusal.bounds
      : AccessRefusal.none;
  }

  #carryOut(): void {
    for (const place of this.#placed.splice(0)) place();
  }

  /** A range that has passed the check. */
  #range(stag: number, toHi: number, toLo: number, length: number): Uint8Array {
    const { base, bytes } = this.regions.get(stag) as Region;
    const at = Number(join(toHi, toLo) - base);
    return bytes.subarray(at, at + length);
  }
}
