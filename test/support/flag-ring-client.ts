/**
 * A client of rings with flags. It writes and reads them byte by byte, so a test can also play a
 * misbehaving client.
 */
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
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';

/** A piece of memory as an SGE names it. */
export interface Piece {
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
