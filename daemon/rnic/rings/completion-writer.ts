/** Writes completions to the memory that a completion queue shares with its client. */
import {
  CQE,
  CQE_BYTES,
  CQEStatus,
  Notify,
  QueueFlag,
  SOURCE_QPN_MASK,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import type { CompletedWork } from '#contract/protocol/work-records';

const SOURCE_KIND_SHIFT = 24;

/** A completion to write. Callers reuse one. */
export class CompletionRecord implements CompletedWork {
  qpn = 0;
  opcode = 0;
  status: CQEStatus = CQEStatus.success;
  flags = 0;
  wrIdHi = 0;
  wrIdLo = 0;
  lengthBytes = 0;
  immediateHi = 0;
  immediateLo = 0;
  /** Fires a queue armed for solicited events. */
  solicited = false;
  /** A receive consumed by an RDMA Write with immediate; the data is not in it. */
  written = false;
  /** Datagrams: the sender and the service level, which is 0 otherwise. */
  sourceQpn = 0;
  sl = 0;

  /** Copies all fields by hand: `Object.assign` is several times slower. */
  copy(from: CompletionRecord): void {
    this.qpn = from.qpn;
    this.opcode = from.opcode;
    this.status = from.status;
    this.flags = from.flags;
    this.wrIdHi = from.wrIdHi;
    this.wrIdLo = from.wrIdLo;
    this.lengthBytes = from.lengthBytes;
    this.immediateHi = from.immediateHi;
    this.immediateLo = from.immediateLo;
    this.solicited = from.solicited;
    this.written = from.written;
    this.sourceQpn = from.sourceQpn;
    this.sl = from.sl;
  }
}

/** Entries of a completion queue that its client has not taken. */
export interface UntakenCompletions {
  readonly count: number;
  /** Completions without an error. */
  readonly successes: number;
}

/** Writes completions, and knows whether the client waits for a notification. */
export interface CompletionWriter {
  /** Entries: at least as many as the client asked for; in a ring with flags, a power of two. */
  readonly count: number;
  readonly bytes: Uint8Array;
  /** Returns false if the ring is full. */
  write(completion: CompletionRecord): boolean;
  /** The notifications that the client has armed, as bits of `Notify`. */
  armed(): number;
  disarm(): void;
  /** Counts the entries that the client has not taken. */
  untaken(): UntakenCompletions;
  /** Requests one notification, for rings that clients arm by command. */
  arm?(solicitedOnly: boolean): void;
  /** Completions shown since the count was `count`, for the same rings. */
  writtenSince?(count: number): number;
  /** Moves to a new ring of `entries` entries. EINVAL if the queued entries do not fit. */
  resize?(entries: number, memory: (bytes: number) => Uint8Array): void;
}

/** A ring whose elements carry a flag, followed by a notify word that the client writes. */
export class SlotCompletionWriter implements CompletionWriter {
  readonly count: number;
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  readonly #notify: Int32Array;
  readonly #mask: number;
  readonly #infiniband: boolean;
  #tail = 0;

  /** `bytes` has the length `cqBytes(count)`. See `WqeLimits` for `infiniband`. */
  constructor(bytes: Uint8Array, count: number, infiniband = false) {
    this.bytes = bytes;
    this.count = count;
    this.#infiniband = infiniband;
    this.#mask = count - 1;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#notify = new Int32Array(bytes.buffer, bytes.byteOffset + count * CQE_BYTES, 2);
  }

  write(completion: CompletionRecord): boolean {
    const position = (this.#tail & this.#mask) * CQE_BYTES;
    if (Atomics.load(this.bytes, position + CQE.flags) !== 0) return false;
    const view = this.#view;
    const { wrIdLo, wrIdHi, status, lengthBytes } = completion;
    const { qpn, flags, immediateHi, immediateLo } = completion;
    let { opcode } = completion;
    let source = 0;
    if (this.#infiniband && opcode === SQOpcode.receive && status === CQEStatus.success) {
      const sent = (flags & QueueFlag.immediate) !== 0 && !completion.written;
      if (sent) opcode = SQOpcode.receiveWithImm;
      if (completion.sl !== 0) {
        source = (completion.sourceQpn & SOURCE_QPN_MASK) | (completion.sl << SOURCE_KIND_SHIFT);
      }
    }
    view.setUint32(position + CQE.wrId, wrIdLo, true);
    view.setUint32(position + CQE.wrId + 4, wrIdHi, true);
    view.setUint8(position + CQE.opcode, opcode);
    view.setUint16(position + CQE.status, status, true);
    view.setUint32(position + CQE.bytes, lengthBytes, true);
    view.setUint32(position + CQE.immediate, immediateLo, true);
    view.setUint32(position + CQE.immediate + 4, immediateHi, true);
    view.setUint32(position + CQE.qpn, qpn, true);
    view.setUint32(position + CQE.source, source >>> 0, true);
    Atomics.store(this.bytes, position + CQE.flags, flags | QueueFlag.valid);
    this.#tail = (this.#tail + 1) >>> 0;
    this.#notify[1] = this.#tail;
    return true;
  }

  armed(): number {
    return Atomics.load(this.#notify, 0);
  }

  disarm(): void {
    Atomics.store(this.#notify, 0, Notify.none);
  }

  untaken(): UntakenCompletions {
    let [count, successes] = [0, 0];
    for (let position = 0; position < this.count * CQE_BYTES; position += CQE_BYTES) {
      if (Atomics.load(this.bytes, position + CQE.flags) === 0) continue;
      count += 1;
      const status = this.#view.getUint16(position + CQE.status, true);
      if (status === CQEStatus.success) successes += 1;
    }
    return { count, successes };
  }
}
