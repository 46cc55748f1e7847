/** The consumer of a completion ring. */
import {
  CQE,
  CQE_BYTES,
  CQEStatus,
  cqBytes,
  Notify,
  QueueFlag,
  SOURCE_QPN_MASK,
  SQOpcode,
} from '#contract/protocol/queue-layout';
import { Completion } from '#contract/verbs/completion';
import { WCFlag, WCOpcode, WCStatus } from '#contract/verbs/enums';
import { type RingMemory, ringMemory } from './ring-memory.ts';

const ELEMENT_WORDS = CQE_BYTES >>> 2;
const CONTROL = CQE.flags >>> 2;
const BYTES = CQE.bytes >>> 2;
const IMMEDIATE = CQE.immediate >>> 2;
const QPN = CQE.qpn >>> 2;
const SOURCE = CQE.source >>> 2;
const OPCODE_SHIFT = (CQE.opcode - CQE.flags) * 8;
const STATUS_SHIFT = (CQE.status - CQE.flags) * 8;
const BYTE = 0xff;

/** `SQOpcode` to `WCOpcode`, by index. */
const WC_OPCODES: readonly WCOpcode[] = indexed(
  [
    [SQOpcode.write, WCOpcode.rdmaWrite],
    [SQOpcode.read, WCOpcode.rdmaRead],
    [SQOpcode.readLocalInv, WCOpcode.rdmaRead],
    [SQOpcode.send, WCOpcode.send],
    [SQOpcode.sendWithImm, WCOpcode.send],
    [SQOpcode.sendRemoteInv, WCOpcode.send],
    [SQOpcode.fetchAndAdd, WCOpcode.fetchAdd],
    [SQOpcode.compAndSwap, WCOpcode.compSwap],
    [SQOpcode.receive, WCOpcode.recv],
    [SQOpcode.immediate, WCOpcode.send],
    [SQOpcode.writeWithImm, WCOpcode.rdmaWrite],
    [SQOpcode.bindMW, WCOpcode.bindMW],
    [SQOpcode.localInv, WCOpcode.localInv],
    [SQOpcode.receiveWithImm, WCOpcode.recv],
  ],
  WCOpcode.send,
);

/** `CQEStatus` to `WCStatus`, by index. */
const WC_STATUSES: readonly WCStatus[] = indexed(
  [
    [CQEStatus.success, WCStatus.success],
    [CQEStatus.locLenErr, WCStatus.locLenErr],
    [CQEStatus.locProtErr, WCStatus.locProtErr],
    [CQEStatus.locQpOpErr, WCStatus.locQpOpErr],
    [CQEStatus.wrFlushErr, WCStatus.wrFlushErr],
    [CQEStatus.badRespErr, WCStatus.badRespErr],
    [CQEStatus.locAccessErr, WCStatus.locAccessErr],
    [CQEStatus.remAccessErr, WCStatus.remAccessErr],
    [CQEStatus.remInvReqErr, WCStatus.remInvReqErr],
    [CQEStatus.generalErr, WCStatus.generalErr],
    [CQEStatus.mwBindErr, WCStatus.mwBindErr],
    [CQEStatus.remOpErr, WCStatus.remOpErr],
    [CQEStatus.retryExcErr, WCStatus.retryExcErr],
    [CQEStatus.rnrRetryExcErr, WCStatus.rnrRetryExcErr],
  ],
  WCStatus.generalErr,
);

/** Takes completions out of the ring and arms it. Layout: daemon/contract/protocol/queue-layout.ts. */
export class CompletionRing {
  #memory: RingMemory;
  #mask: number;
  #notifyWord: number;
  #get = 0;

  /** `count` elements, a power of two; the control block follows them. */
  constructor(mapping: Uint8Array, count: number) {
    this.#memory = ringMemory(mapping, 0, cqBytes(count));
    this.#mask = count - 1;
    this.#notifyWord = count * ELEMENT_WORDS;
  }

  take(): Completion | undefined {
    const memory = this.#memory;
    const base = (this.#get & this.#mask) * ELEMENT_WORDS;
    const control = Atomics.load(memory.control, base + CONTROL);
    if ((control & QueueFlag.valid) === 0) return undefined;
    const wc = this.#read(base, control);
    Atomics.store(memory.control, base + CONTROL, 0);
    this.#get = (this.#get + 1) >>> 0;
    return wc;
  }

  /** Empties the ring of a destroyed queue for good, even if its memory is reused. */
  end(): void {
    this.#memory = ringMemory(new Uint8Array(cqBytes(1)), 0, cqBytes(1));
    this.#mask = 0;
    this.#notifyWord = ELEMENT_WORDS;
  }

  /** Arms one notification; a wider request that is still armed stays. */
  arm(solicitedOnly: boolean): void {
    const word = solicitedOnly ? Notify.solicited : Notify.solicited | Notify.any;
    Atomics.or(this.#memory.control, this.#notifyWord, word);
  }

  #read(base: number, control: number): Completion {
    const { words, longs } = this.#memory;
    const carriesImmediate = (control & QueueFlag.immediate) !== 0;
    const invalidated = (control & QueueFlag.remoteInvalidate) !== 0;
    const opcode = (control >>> OPCODE_SHIFT) & BYTE;
    let wcOpcode = WC_OPCODES[opcode] ?? WCOpcode.send;
    if (carriesImmediate && opcode === SQOpcode.receive) wcOpcode = WCOpcode.recvImmediate;
    const wc = new Completion();
    wc.wrId = longs[base >>> 1] ?? 0n;
    wc.status = WC_STATUSES[control >>> STATUS_SHIFT] ?? WCStatus.generalErr;
    wc.opcode = wcOpcode;
    wc.byteLen = words[base + BYTES] ?? 0;
    wc.qpNum = words[base + QPN] ?? 0;
    wc.wcFlags = (carriesImmediate ? WCFlag.withImm : 0) | (invalidated ? WCFlag.withInv : 0);
    const source = words[base + SOURCE] ?? 0;
    if (source !== 0) {
      wc.wcFlags |= WCFlag.grh;
      wc.srcQp = source & SOURCE_QPN_MASK;
    }
    if (carriesImmediate) wc.immData = longs[(base + IMMEDIATE) >>> 1] ?? 0n;
    if (invalidated) wc.invalidatedRkey = words[base + IMMEDIATE] ?? 0;
    return wc;
  }
}

function indexed<T>(pairs: readonly (readonly [number, T])[], fallback: T): T[] {
  const table: T[] = [];
  for (const [index, value] of pairs) table[index] = value;
  return Array.from(table, (value) => value ?? fallback);
}
