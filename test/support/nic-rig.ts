/**
 * One device with the objects of a test: PD, registered memory, CQ, SRQ, QP and a stream that
 * is a script. The rings are written by hand here, byte by byte, so a test can also play a
 * misbehaving client.
 */
import { NEVER } from '#base/time';
import {
  CQE,
  CQE_BYTES,
  QueueFlag,
  RQE,
  RQE_BYTES,
  SGE_BYTES,
  SQE,
  SQE_BYTES,
} from '#contract/protocol/queue-layout';
import { Access, type AsyncEventType } from '#contract/verbs/enums';
import type { StreamPort } from '#daemon/iwarp/engine/stream-api';
import type { DeviceProfile } from '#daemon/rnic/device-profile';
import type { NicEffect } from '#daemon/rnic/effect';
import { makeAtomicAccess, makeInboundMessage } from '#daemon/rnic/inbound-records';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import { Nic } from '#daemon/rnic/nic';
import { makeOutboundMessage } from '#daemon/rnic/outbound-message';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import {
  AccessRefusal,
  type AtomicAccess,
  type InboundMessage,
  OutboundKind,
  type OutboundMessage,
  type WireFailure,
} from '#daemon/rnic/wire-port';
import { queueSizes } from './queue-sizes.ts';

/** A piece of memory as an SGE names it. */
interface Piece {
  readonly addr: number;
  readonly length: number;
  readonly lkey: number;
}

/** Fields of a send-queue element; omitted ones are zero. */
export interface SqeFields {
  readonly wrId?: number;
  readonly opcode: number;
  /** Bits beside VALID; signalled unless given. */
  readonly flags?: number;
  readonly sges?: readonly Piece[];
  /** Overrides the number of `sges`. */
  readonly numSge?: number;
  readonly rkey?: number;
  readonly raddr?: bigint;
  readonly inline?: Uint8Array;
  /** Overrides the length of `inline`. */
  readonly inlineLength?: number;
  readonly immediate?: bigint;
  readonly operand?: bigint;
  readonly compare?: bigint;
  readonly bind?: { key: number; access: number; lkey: number; length: bigint };
}

/** Writes elements into a send ring as a client does: body first, flags with VALID last. */
export class SendProducer {
  readonly view: DataView;
  readonly #bytes: Uint8Array;
  readonly #count: number;
  #put = 0;

  constructor(qp: QP) {
    this.#bytes = qp.ring;
    this.view = new DataView(qp.ring.buffer, qp.ring.byteOffset, qp.ring.byteLength);
    this.#count = qp.sqCount;
  }

  /** Byte position of the element that the next `post` writes. */
  get position(): number {
    return (this.#put % this.#count) * SQE_BYTES;
  }

  /** True when the slot of the next element still belongs to the device. */
  get full(): boolean {
    return (Atomics.load(this.#bytes, this.position + SQE.flags) & QueueFlag.valid) !== 0;
  }

  post(fields: SqeFields): void {
    if (this.full) throw new Error('the send ring is full');
    const { view, position } = this;
    this.#bytes.fill(0, position, position + SQE_BYTES);
    view.setBigUint64(position + SQE.wrId, BigInt(fields.wrId ?? 0), true);
    view.setUint8(position + SQE.opcode, fields.opcode);
    view.setUint8(position + SQE.numSge, fields.numSge ?? fields.sges?.length ?? 0);
    view.setUint32(position + SQE.rkey, fields.rkey ?? 0, true);
    view.setBigUint64(position + SQE.raddr, fields.raddr ?? 0n, true);
    putPieces(view, position + SQE.sge, fields.sges ?? []);
    if (fields.operand !== undefined) {
      view.setBigUint64(position + SQE.atomicOperand, fields.operand, true);
    }
    if (fields.compare !== undefined) {
      view.setBigUint64(position + SQE.atomicCompare, fields.compare, true);
    }
    if (fields.immediate !== undefined) {
      view.setBigUint64(position + SQE.immediate, fields.immediate, true);
    }
    if (fields.bind !== undefined) {
      view.setUint8(position + SQE.bindKey, fields.bind.key);
      view.setUint32(position + SQE.bindAccess, fields.bind.access, true);
      view.setUint32(position + SQE.bindLkey, fields.bind.lkey, true);
      view.setBigUint64(position + SQE.bindLength, fields.bind.length, true);
    }
    let flags = fields.flags ?? QueueFlag.signalled;
    if (fields.inline !== undefined) {
      flags |= QueueFlag.inline;
      this.#bytes.set(fields.inline, position + SQE.inline);
      view.setUint32(position + SQE.sge + 8, fields.inlineLength ?? fields.inline.length, true);
    }
    Atomics.store(this.#bytes, position + SQE.flags, flags | QueueFlag.valid);
    this.#put += 1;
  }
}

/** Writes elements into a receive ring. */
export class ReceiveProducer {
  readonly view: DataView;
  readonly #bytes: Uint8Array;
  readonly #start: number;
  readonly #count: number;
  #put = 0;

  constructor(ring: Uint8Array, start: number, count: number) {
    this.#bytes = ring;
    this.view = new DataView(ring.buffer, ring.byteOffset, ring.byteLength);
    this.#start = start;
    this.#count = count;
  }

  post(wrId: number, pieces: readonly Piece[], numSge = pieces.length): void {
    const position = this.#start + (this.#put % this.#count) * RQE_BYTES;
    this.view.setBigUint64(position + RQE.wrId, BigInt(wrId), true);
    this.view.setUint8(position + RQE.numSge, numSge);
    putPieces(this.view, position + RQE.sge, pieces);
    Atomics.store(this.#bytes, position + RQE.flags, QueueFlag.valid);
    this.#put += 1;
  }
}

function putPieces(view: DataView, position: number, pieces: readonly Piece[]): void {
  pieces.forEach((piece, index) => {
    const at = position + index * SGE_BYTES;
    view.setBigUint64(at, BigInt(piece.addr), true);
    view.setUint32(at + 8, piece.length, true);
    view.setUint32(at + 12, piece.lkey, true);
  });
}

/** A completion as it is in the ring. */
interface Completion {
  readonly wrId: number;
  readonly opcode: number;
  readonly status: number;
  readonly bytes: number;
  readonly flags: number;
  readonly immediate: bigint;
  readonly qpn: number;
}

/** Takes completions out of a ring. */
export class CompletionConsumer {
  readonly #cq: CQ;
  readonly #view: DataView;
  #get = 0;

  constructor(cq: CQ) {
    this.#cq = cq;
    this.#view = new DataView(cq.ring.buffer, cq.ring.byteOffset, cq.ring.byteLength);
  }

  /** All available completions. */
  poll(): Completion[] {
    const completions: Completion[] = [];
    for (;;) {
      const position = (this.#get % this.#cq.count) * CQE_BYTES;
      const flags = Atomics.load(this.#cq.ring, position + CQE.flags);
      if ((flags & QueueFlag.valid) === 0) return completions;
      completions.push({
        wrId: Number(this.#view.getBigUint64(position + CQE.wrId, true)),
        opcode: this.#view.getUint8(position + CQE.opcode),
        status: this.#view.getUint16(position + CQE.status, true),
        bytes: this.#view.getUint32(position + CQE.bytes, true),
        flags,
        immediate: this.#view.getBigUint64(position + CQE.immediate, true),
        qpn: Number(this.#view.getBigUint64(position + CQE.qpn, true)),
      });
      Atomics.store(this.#cq.ring, position + CQE.flags, 0);
      this.#get += 1;
    }
  }

  /** Work request ids and statuses of all available completions. */
  outcome(): [number, number][] {
    return this.poll().map(({ wrId, status }) => [wrId, status]);
  }

  /** Arms the queue. */
  arm(word: number): void {
    Atomics.store(new Int32Array(this.#cq.ring.buffer, this.#notifyOffset, 1), 0, word);
  }

  get armed(): number {
    return Atomics.load(new Int32Array(this.#cq.ring.buffer, this.#notifyOffset, 1), 0);
  }

  get #notifyOffset(): number {
    return this.#cq.ring.byteOffset + this.#cq.count * CQE_BYTES;
  }
}

/** A message as the stream would frame it. */
type SentMessage = OutboundMessage & {
  readonly payload: number[];
  readonly refusal: AccessRefusal;
};

/** A stream that frames messages at once, and records its calls. */
export class ScriptedStream implements StreamPort {
  readonly sent: SentMessage[] = [];
  readonly calls: string[] = [];
  sendable = true;
  midSend = false;
  /** False: `pump` only records the call. */
  open = true;
  /** Messages that a pump may frame; the one after the last stays current and is not sent. */
  budget = Number.POSITIVE_INFINITY;
  current: OutboundMessage | undefined = undefined;
  readonly #qp: QP;

  constructor(qp: QP) {
    this.#qp = qp;
  }

  pump(): void {
    if (!this.open) return;
    for (;;) {
      if (this.current === undefined) {
        const message = makeOutboundMessage();
        if (!this.#qp.nextMessage(message)) return;
        this.current = message;
      }
      if (this.budget <= 0 || !this.#frame(this.current)) return;
      this.budget -= 1;
    }
  }

  /** Frames the current message; false when its payload must be fetched first. */
  #frame(message: OutboundMessage): boolean {
    const carries =
      message.kind === OutboundKind.send ||
      message.kind === OutboundKind.sendWithInvalidate ||
      message.kind === OutboundKind.sendWithImmediate ||
      message.kind === OutboundKind.writeWithImmediate ||
      message.kind === OutboundKind.write;
    const length = carries ? message.lengthBytes : 0;
    const bytes = new Uint8Array(length);
    let refusal: AccessRefusal = AccessRefusal.none;
    if (length > 0) {
      if (!this.#qp.prepareGather(message.slot, 0, length)) return false;
      refusal = this.#qp.gather(message.slot, 0, length, bytes, 0);
    }
    this.sent.push({ ...message, payload: [...bytes], refusal });
    this.current = undefined;
    if (refusal === AccessRefusal.none) this.#qp.messageDone();
    return refusal === AccessRefusal.none;
  }

  connect(): void {}
  listen(): void {}
  accept(): void {}
  reject(): void {}
  leaveUnsealed(): void {}
  seal(): void {}
  refuse(): void {}
  handleAcknowledged(): void {}
  disconnect(): void {
    this.calls.push('disconnect');
  }
  abort(): void {
    this.calls.push('abort');
    this.open = false;
  }
  fail(failure: WireFailure): void {
    this.calls.push(`fail: ${failure.text}`);
    this.open = false;
  }
  handleBytes(): void {}
  handleFlushed(): void {}
  handlePeerClosed(): void {}
  handleClosed(): void {}
  handleDeadline(): void {}
  nextDeadline(): number {
    return NEVER;
  }
  pollTransmit(): undefined {}
  pollEvent(): undefined {}
}

/** Local rights and all remote ones. */
export const ALL_ACCESS =
  Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic | Access.mwBind;

/** Choices of `NicRig`. */
export interface RigOptions {
  readonly profile?: Partial<DeviceProfile>;
  readonly sqCount?: number;
  readonly rqCount?: number;
  readonly cqe?: number;
  readonly srq?: { maxWr: number; srqLimit: number };
  readonly sqSigAll?: boolean;
  readonly memoryBytes?: number;
  readonly access?: number;
  readonly depths?: { ird: number; ord: number };
  /** False: the QP stays in RESET, without a stream. */
  readonly connected?: boolean;
  readonly backing?: (bytes: Uint8Array) => MemoryBacking;
  /** Where the send queue stores its progress. */
  readonly progress?: Int32Array;
}

/** Address of the first byte of the rig's memory. */
export const MEMORY_ADDRESS = 0x10000;

const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);

/** A device, one QP and one region of memory. */
export class NicRig {
  readonly nic: Nic;
  readonly pd: PD;
  readonly memory: Uint8Array;
  readonly mr: MR;
  readonly sendCQ: CQ;
  readonly recvCQ: CQ;
  readonly srq: SRQ | undefined;
  readonly qp: QP;
  readonly stream: ScriptedStream;
  readonly sends: SendProducer;
  readonly receives: ReceiveProducer;
  readonly sendCompletions: CompletionConsumer;
  readonly recvCompletions: CompletionConsumer;
  readonly #options: RigOptions;

  constructor(options: RigOptions = {}) {
    this.#options = options;
    const profile = options.profile;
    this.nic = new Nic({ name: 'rnic0', seed: 1, ...(profile === undefined ? {} : { profile }) });
    this.pd = this.nic.allocPD();
    this.memory = new Uint8Array(options.memoryBytes ?? 4096);
    this.mr = this.register(this.pd, {
      access: options.access ?? ALL_ACCESS,
      backing: options.backing?.(this.memory) ?? new ViewBacking(this.memory),
    });
    const cqe = options.cqe ?? 64;
    this.sendCQ = this.nic.createCQ({ cqe, ring, tag: 'send' });
    this.recvCQ = this.nic.createCQ({ cqe, ring, tag: 'recv' });
    const { srq } = options;
    this.srq =
      srq === undefined
        ? undefined
        : this.nic.createSRQ(this.pd, { ...srq, maxSge: 6, ring, tag: 'srq' });
    this.qp = this.createQP(this.pd);
    this.stream = new ScriptedStream(this.qp);
    this.sends = new SendProducer(this.qp);
    this.receives =
      this.srq === undefined
        ? new ReceiveProducer(this.qp.ring, this.qp.rqOffset, this.qp.rqCount)
        : new ReceiveProducer(this.srq.ring, 0, this.srq.count);
    this.sendCompletions = new CompletionConsumer(this.sendCQ);
    this.recvCompletions = new CompletionConsumer(this.recvCQ);
    if (options.connected !== false) this.connect();
  }

  /** Another QP on the same queues. */
  createQP(pd: PD): QP {
    return this.nic.createQP(pd, {
      sendCQ: this.sendCQ,
      recvCQ: this.recvCQ,
      srq: this.srq,
      capabilities: queueSizes(this.#options.sqCount ?? 16, this.#options.rqCount ?? 16, 6, 80),
      sqSigAll: this.#options.sqSigAll ?? false,
      ring,
      progress: () => this.#options.progress,
      tag: undefined,
    });
  }

  /** Attaches the scripted stream and reports it established. */
  connect(): void {
    this.qp.attach(this.stream);
    this.qp.established(this.#options.depths ?? { ird: 4, ord: 4 }, 0);
  }

  /** Another QP of `pd` with its own stream, established. */
  connectedQP(pd: PD): QP {
    const qp = this.createQP(pd);
    qp.attach(new ScriptedStream(qp));
    qp.established({ ird: 4, ord: 4 }, 0);
    return qp;
  }

  /** Registers the rig's memory, or a part of it. */
  register(
    pd: PD,
    options: {
      access?: number;
      offset?: number;
      length?: number;
      iova?: number | bigint;
      key?: number;
      backing?: MemoryBacking;
    } = {},
  ): MR {
    const offset = options.offset ?? 0;
    return this.nic.regMR(pd, {
      backing: options.backing ?? new ViewBacking(this.memory),
      backingOffset: offset,
      lengthBytes: options.length ?? this.memory.length - offset,
      address: MEMORY_ADDRESS + offset,
      iova: options.iova ?? MEMORY_ADDRESS + offset,
      access: options.access ?? ALL_ACCESS,
      key: options.key,
    });
  }

  /** `length` bytes of the rig's memory from `offset` on, as an SGE. */
  piece(offset: number, length: number, mr: MR = this.mr): Piece {
    return { addr: MEMORY_ADDRESS + offset, length, lkey: mr.lkey };
  }

  /** Posts one work request and rings the doorbell. */
  send(fields: SqeFields): void {
    this.sends.post(fields);
    this.qp.doorbell(0);
  }

  /** All pending effects. */
  effects(): NicEffect[] {
    const effects: NicEffect[] = [];
    for (let effect = this.nic.pollEffect(); effect !== undefined; ) {
      effects.push(effect);
      effect = this.nic.pollEffect();
    }
    return effects;
  }

  /** Types of the asynchronous events among the pending effects. */
  asyncEvents(): AsyncEventType[] {
    return this.effects().flatMap((effect) => (effect.type === 'async' ? [effect.event] : []));
  }

  /** Delivers a Send of the peer in one segment. */
  receive(bytes: readonly number[], options: Partial<InboundMessage> = {}): AccessRefusal {
    const begun = this.qp.beginReceive();
    if (begun !== AccessRefusal.none) return begun;
    if (bytes.length > 0) {
      const placed = this.qp.placeReceive(0, Uint8Array.from(bytes), 0, bytes.length);
      if (placed !== AccessRefusal.none) return placed;
    }
    return this.qp.completeReceive({ ...NO_MESSAGE, lengthBytes: bytes.length, ...options });
  }

  /** A Write of the peer in one segment. */
  write(stag: number, to: bigint, bytes: readonly number[], qp: QP = this.qp): AccessRefusal {
    return qp.placeWrite(stag, hi(to), lo(to), Uint8Array.from(bytes), 0, bytes.length);
  }
}

/** A plain message of no bytes. */
export const NO_MESSAGE: Readonly<InboundMessage> = makeInboundMessage();

/** An Atomic Request with all fields zero but those given. */
export function atomicAccess(fields: Partial<AtomicAccess>): AtomicAccess {
  return { ...makeAtomicAccess(), ...fields };
}

/** Upper half of a 64-bit number. */
export function hi(value: bigint): number {
  return Number((value >> 32n) & 0xffffffffn);
}

/** Lower half of a 64-bit number. */
export function lo(value: bigint): number {
  return Number(value & 0xffffffffn);
}

/** A backing whose reads and writes take time, as the agent tier's do. */
export class SlowBacking implements MemoryBacking {
  readonly tier = 'agent';
  readonly view = undefined;
  pendingWrites = 0;
  writeLost = false;
  onReady: (() => void) | undefined = undefined;
  #fetched = false;
  readonly #bytes: Uint8Array;
  readonly #queue: (() => void)[] = [];

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  prepareRead(): boolean {
    return this.#fetched;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    target.set(this.#bytes.subarray(offset, offset + length), targetStart);
    return true;
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    const copy = bytes.slice(start, start + length);
    this.#queue.push(() => this.#bytes.set(copy, offset));
    this.pendingWrites += 1;
    return true;
  }

  /** Requested data have arrived. */
  fetch(): void {
    this.#fetched = true;
    this.onReady?.();
  }

  /** Written data have reached the owner's memory. */
  settle(): void {
    for (const write of this.#queue.splice(0)) write();
    this.pendingWrites = 0;
    this.onReady?.();
  }

  /** Written data did not reach the owner's memory. */
  lose(): void {
    this.#queue.length = 0;
    this.pendingWrites = 0;
    this.writeLost = true;
    this.onReady?.();
  }
}

/** A backing that keeps segments for one transfer, as that of another process does. */
export class KeepingBacking implements MemoryBacking {
  readonly tier = 'process_vm';
  readonly view = undefined;
  readonly pendingWrites = 0;
  onReady: (() => void) | undefined = undefined;
  /** The kept segments; their bytes are read when flushed. */
  readonly kept: { offset: number; bytes: Uint8Array }[] = [];
  flushes = 0;
  gone = false;
  /** The first offset that is gone. */
  goneFrom = Number.POSITIVE_INFINITY;
  #lost = false;
  readonly #inner: ViewBacking;

  constructor(bytes: Uint8Array) {
    this.#inner = new ViewBacking(bytes);
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    this.#carryOut();
    return this.#has(offset, length) && this.#inner.read(offset, length, target, targetStart);
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.#carryOut();
    return this.#has(offset, length) && this.#inner.write(offset, bytes, start, length);
  }

  writeLater(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    this.kept.push({ offset, bytes: bytes.subarray(start, start + length) });
    return true;
  }

  /** Says whether a piece was gone since the last call, whatever access had it written. */
  flush(): boolean {
    this.#carryOut();
    const lost = this.#lost;
    this.#lost = false;
    return !lost;
  }

  /** A transfer ends at its first piece that is gone. */
  #carryOut(): void {
    if (this.kept.length === 0) return;
    this.flushes += 1;
    const whole = this.kept.splice(0).every(({ offset, bytes }) => {
      return this.#has(offset, bytes.length) && this.#inner.write(offset, bytes, 0, bytes.length);
    });
    this.#lost ||= !whole;
  }

  #has(offset: number, length: number): boolean {
    return !this.gone && offset + length <= this.goneFrom;
  }
}

/** Mapped memory that notifies a test whenever the device queries it. */
export class WatchedBacking implements MemoryBacking {
  readonly view = undefined;
  onReady: (() => void) | undefined = undefined;
  onAsked: () => void = () => undefined;
  pending = 0;
  readonly #inner: ViewBacking;

  constructor(bytes: Uint8Array) {
    this.#inner = new ViewBacking(bytes);
  }

  get tier(): 'local' {
    this.onAsked();
    return 'local';
  }

  get pendingWrites(): number {
    this.onAsked();
    return this.pending;
  }

  prepareRead(): boolean {
    return true;
  }

  read(offset: number, length: number, target: Uint8Array, targetStart: number): boolean {
    return this.#inner.read(offset, length, target, targetStart);
  }

  write(offset: number, bytes: Uint8Array, start: number, length: number): boolean {
    return this.#inner.write(offset, bytes, start, length);
  }
}
