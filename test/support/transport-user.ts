/**
 * A model of a queue pair for transports: a list of work requests, a list of receives, one piece of
 * memory that peers may access. It throws as soon as the wire breaks the rules of the port.
 */
import { makeOutboundMessage } from '#daemon/rnic/outbound-message';
import {
  AccessRefusal,
  type AtomicAccess,
  type DeferringUser,
  type InboundMessage,
  type MessageFailure,
  OutboundKind,
  type OutboundMessage,
} from '#daemon/rnic/wire-port';

export const REMOTE_KEY = 0x1234_0077;
/** High half of every address; the low half begins near its end, so that ranges cross it. */
const BASE_HI = 0x7fff;
const BASE_LO = 0xffff_f000;
const WORD = 2 ** 32;

/** A work request. */
export interface Work {
  readonly id: number;
  readonly message: Partial<OutboundMessage>;
  readonly payload?: Uint8Array;
  /** For a Read: where its data go. */
  readonly sink?: Uint8Array;
  readonly fenced?: boolean;
}

/** A message that arrived. */
export interface Arrival {
  readonly bytes: Uint8Array;
  readonly message: InboundMessage;
}

/** A completion: of `id`, with the original value for an atomic. */
export interface Done {
  readonly id: number;
  readonly original?: number;
}

/** The remote address at `offset` of a model's memory. */
export function addressAt(offset: number): { remoteToHi: number; remoteToLo: number } {
  const lo = BASE_LO + offset;
  return { remoteToHi: BASE_HI + (lo >= WORD ? 1 : 0), remoteToLo: lo >>> 0 };
}

function rule(holds: boolean, text: string): asserts holds {
  if (!holds) throw new Error(`the wire broke a rule of the port: ${text}`);
}

/** See the module's comment. */
export class TransportUser implements DeferringUser {
  readonly memory: Uint8Array;
  readonly arrivals: Arrival[] = [];
  readonly done: Done[] = [];
  /** Capacities of posted receives. */
  readonly receives: number[] = [];
  readonly failures: MessageFailure[] = [];
  /** Work that has not been taken. */
  readonly work: Work[] = [];
  atomics = 0;
  writes = 0;
  /** Reads and atomics that may be open (ORD). */
  ord = 8;
  /** Asked before payload is ready; false delays it until the next pump. */
  ready: () => boolean = () => true;
  /** Received data is not in memory yet. */
  placing = false;
  /** Called at each completion. */
  onDone: (done: Done) => void = () => undefined;
  onArrival: (arrival: Arrival) => void = () => undefined;
  /** Refusals to return, by the name of a method. */
  refusals: Partial<Record<string, AccessRefusal>> = {};
  mostOpen = 0;
  readonly #open: { work: Work; slot: number; answered: boolean; original?: number }[] = [];
  readonly #slots = new Map<number, Work>();
  #receive: Uint8Array | undefined = undefined;
  #received = 0;
  readonly #later: (() => AccessRefusal)[] = [];
  readonly #sourcesLater: (() => AccessRefusal)[] = [];

  constructor(bytes: number) {
    this.memory = new Uint8Array(bytes);
  }

  // Outbound

  nextMessage(message: OutboundMessage): boolean {
    const [work] = this.work;
    if (work === undefined) return false;
    const { kind } = work.message;
    const asking = this.#open.filter((entry) => isRequest(entry.work) && !entry.answered).length;
    if (work.fenced === true && asking > 0) return false;
    const request = kind === OutboundKind.readRequest || kind === OutboundKind.atomic;
    if (request && asking >= this.ord) return false;
    this.work.shift();
    let slot = 0;
    while (this.#slots.has(slot)) slot += 1;
    this.#slots.set(slot, work);
    this.#open.push({ work, slot, answered: false });
    this.mostOpen = Math.max(this.mostOpen, this.#open.length);
    const lengthBytes = work.payload?.length ?? work.sink?.length ?? 0;
    Object.assign(message, makeOutboundMessage(), { lengthBytes }, work.message, { slot });
    return true;
  }

  prepareGather(slot: number, offset: number, length: number): boolean {
    this.#payload(slot, offset, length);
    return this.ready();
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

  gatherReadSourceLater(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    this.#sourcesLater.push(() => {
      return this.gatherReadSource(stag, toHi, toLo, length, target, targetStart);
    });
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
    const entry = this.#open.shift();
    rule(entry !== undefined, 'a message that is done was open');
    rule(!isRequest(entry.work) || entry.answered, 'a Read or atomic is done when it is answered');
    this.#slots.delete(entry.slot);
    const { id } = entry.work;
    const { original } = entry;
    const done = original === undefined ? { id } : { id, original };
    this.done.push(done);
    this.onDone(done);
  }

  messageFailed(failure: MessageFailure): void {
    rule(this.#open.length > 0, 'a message that failed is open');
    this.failures.push(failure);
  }

  placeReadPart(offset: number, bytes: Uint8Array, start: number, length: number): AccessRefusal {
    const entry = this.#oldestRequest();
    const { sink } = entry.work;
    rule(sink !== undefined, 'data come for a Read');
    rule(offset + length <= sink.length, 'data fit the Read');
    sink.set(bytes.subarray(start, start + length), offset);
    return this.refusals['placeReadPart'] ?? AccessRefusal.none;
  }

  readCompleted(): void {
    const entry = this.#oldestRequest();
    rule(entry.work.sink !== undefined, 'a Read is completed');
    entry.answered = true;
  }

  atomicCompleted(originalHi: number, originalLo: number): void {
    const entry = this.#oldestRequest();
    rule(entry.work.message.kind === OutboundKind.atomic, 'an atomic is completed');
    entry.answered = true;
    entry.original = originalHi * WORD + originalLo;
  }

  #oldestRequest(): { work: Work; answered: boolean; original?: number } {
    const entry = this.#open.find(({ work, answered }) => isRequest(work) && !answered);
    rule(entry !== undefined, 'an answer has its request');
    rule(entry === this.#open[0], 'all before an answer is done');
    return entry;
  }

  // Inbound

  placeReadResponse(): AccessRefusal {
    throw new Error('a Read response of RoCE names no sink');
  }

  checkWriteTarget(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    return this.refusals['checkWriteTarget'] ?? this.#checkAll(stag, toHi, toLo, length);
  }

  placeWrite(
    stag: number,
    toHi: number,
    toLo: number,
    bytes: Uint8Array,
    start: number,
    length: number,
  ): AccessRefusal {
    const refusal = this.#check(stag, toHi, toLo, length);
    if (refusal !== AccessRefusal.none) return refusal;
    this.memory.set(bytes.subarray(start, start + length), offsetOf(toHi, toLo));
    return AccessRefusal.none;
  }

  writeCompleted(): void {
    this.writes += 1;
  }

  inputEnded(): AccessRefusal {
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
    const arrival = { bytes, message: { ...message } };
    this.arrivals.push(arrival);
    this.onArrival(arrival);
    return this.refusals['completeReceive'] ?? AccessRefusal.none;
  }

  checkReadSource(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    return this.refusals['checkReadSource'] ?? this.#checkAll(stag, toHi, toLo, length);
  }

  /** A whole request may have no data, and then needs no memory. */
  #checkAll(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    return length === 0 ? AccessRefusal.none : this.#check(stag, toHi, toLo, length);
  }

  prepareReadSource(): boolean {
    return this.ready();
  }

  gatherReadSource(
    stag: number,
    toHi: number,
    toLo: number,
    length: number,
    target: Uint8Array,
    targetStart: number,
  ): AccessRefusal {
    const refusal = this.refusals['gatherReadSource'] ?? this.#check(stag, toHi, toLo, length);
    if (refusal !== AccessRefusal.none) return refusal;
    const offset = offsetOf(toHi, toLo);
    target.set(this.memory.subarray(offset, offset + length), targetStart);
    return AccessRefusal.none;
  }

  executeAtomic(access: AtomicAccess): AccessRefusal {
    const refusal = this.#check(access.stag, access.toHi, access.toLo, 8);
    if (refusal !== AccessRefusal.none) return refusal;
    this.atomics += 1;
    const view = new DataView(this.memory.buffer, offsetOf(access.toHi, access.toLo), 8);
    const original = Number(view.getBigUint64(0, true));
    const operand = access.operandHi * WORD + access.operandLo;
    const compare = access.compareHi * WORD + access.compareLo;
    access.originalHi = Math.floor(original / WORD);
    access.originalLo = original % WORD;
    if (access.operation === 0) view.setBigUint64(0, BigInt(original + operand), true);
    else if (original === compare) view.setBigUint64(0, BigInt(operand), true);
    return AccessRefusal.none;
  }

  #check(stag: number, toHi: number, toLo: number, length: number): AccessRefusal {
    if (stag !== REMOTE_KEY) return AccessRefusal.stagInvalid;
    const offset = offsetOf(toHi, toLo);
    return offset < 0 || offset + length > this.memory.length
      ? AccessRefusal.bounds
      : AccessRefusal.none;
  }
}

function isRequest({ message }: Work): boolean {
  return message.kind === OutboundKind.readRequest || message.kind === OutboundKind.atomic;
}

function offsetOf(toHi: number, toLo: number): number {
  return (toHi - BASE_HI) * WORD + toLo - BASE_LO;
}
