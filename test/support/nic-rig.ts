/**
 * One device with the objects of a test: PD, registered memory, CQ, SRQ, QP and a scripted stream.
 */
import { NEVER } from '#base/time';
import type { AsyncEventType } from '#contract/verbs/enums';
import type { StreamPort } from '#daemon/iwarp/engine/stream-api';
import type { DeviceProfile } from '#daemon/rnic/device-profile';
import type { NicEffect } from '#daemon/rnic/effect';
import { type MemoryBacking, ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { MR } from '#daemon/rnic/memory/memory-region';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import { Nic } from '#daemon/rnic/nic';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import type { SRQ } from '#daemon/rnic/queues/shared-receive-queue';
import {
  AccessRefusal,
  AtomicAccess,
  InboundMessage,
  OutboundKind,
  OutboundMessage,
  type WireFailure,
} from '#daemon/rnic/wire-port';
import {
  CompletionConsumer,
  type Piece,
  ReceiveProducer,
  SendProducer,
  type SqeFields,
} from './flag-ring-client.ts';
import { queueSizes } from './queue-sizes.ts';
import { ALL_ACCESS, MEMORY_ADDRESS } from './test-memory.ts';

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
  /** Messages that a pump may frame; the next one stays current and is not sent. */
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
        const message = new OutboundMessage();
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
export const NO_MESSAGE: Readonly<InboundMessage> = new InboundMessage();

/** An Atomic Request with all fields zero but those given. */
export function atomicAccess(fields: Partial<AtomicAccess>): AtomicAccess {
  return { ...new AtomicAccess(), ...fields };
}

/** Upper half of a 64-bit number. */
export function hi(value: bigint): number {
  return Number((value >> 32n) & 0xffffffffn);
}

/** Lower half of a 64-bit number. */
export function lo(value: bigint): number {
  return Number(value & 0xffffffffn);
}
