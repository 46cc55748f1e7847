/**
 * Completions in a ring with indices: `struct ibv_wc`, as rxe writes it and rdma-core's provider
 * copies it. A completion in error has its status, work request id and queue pair; the rest is 0.
 */
import { CQEStatus, Notify, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { WCFlag, WCOpcode, WCStatus } from '#contract/verbs/enums';
import { invalid } from '#contract/verbs/errors';
import type {
  CompletionRecord,
  CompletionWriter,
  UntakenCompletions,
} from './completion-writer.ts';
import { IndexProducer, ringBytes, ringGeometry } from './index-ring.ts';
import { CompletionElement as At } from './indexed-layout.ts';
import { requestRing } from './ring.ts';

/** `CQEStatus` to `WCStatus`, by index. */
const STATUSES = new Uint8Array(Object.keys(CQEStatus).length);
for (const name of Object.keys(CQEStatus) as (keyof typeof CQEStatus)[]) {
  STATUSES[CQEStatus[name]] = WCStatus[name];
}

/** `SQOpcode` to `WCOpcode`, by index; receives depend on their flags. */
const OPCODES = new Uint8Array(32);
for (const [opcode, shown] of [
  [SQOpcode.write, WCOpcode.rdmaWrite],
  [SQOpcode.writeWithImm, WCOpcode.rdmaWrite],
  [SQOpcode.read, WCOpcode.rdmaRead],
  [SQOpcode.compAndSwap, WCOpcode.compSwap],
  [SQOpcode.fetchAndAdd, WCOpcode.fetchAdd],
  [SQOpcode.bindMW, WCOpcode.bindMW],
  [SQOpcode.localInv, WCOpcode.localInv],
] as const) {
  OPCODES[opcode] = shown;
}

/** Linux's flag for an invalidated key; rdma-core's programs use another one. */
const KERNEL_WITH_INVALIDATE = 4;
const PORT = 1;

function makeRing(entries: number, memory: (bytes: number) => Uint8Array): IndexProducer {
  const geometry = ringGeometry(entries, At.end);
  return new IndexProducer(requestRing(memory, ringBytes(geometry)), geometry);
}

/** Clients arm it in the ring, or by command. */
export class IndexedCompletionWriter implements CompletionWriter {
  #ring: IndexProducer;

  constructor(entries: number, memory: (bytes: number) => Uint8Array) {
    this.#ring = makeRing(entries, memory);
  }

  /** Entries that fit: one slot stays empty. */
  get count(): number {
    return this.#ring.slots - 1;
  }

  get bytes(): Uint8Array {
    return this.#ring.bytes;
  }

  /** Moves the entries that the client has not taken to the first slots. */
  resize(entries: number, memory: (bytes: number) => Uint8Array): void {
    const { used } = this.#ring;
    if (entries < used) throw invalid(`the queue holds ${used} completions`);
    const ring = makeRing(entries, memory);
    this.#ring.moveTo(ring);
    this.#ring = ring;
  }

  write(completion: CompletionRecord): boolean {
    const ring = this.#ring;
    const position = ring.free;
    if (position < 0) return false;
    const { view } = ring;
    const { status, opcode } = completion;
    view.setUint32(position + At.wrId, completion.wrIdLo, true);
    view.setUint32(position + At.wrId + 4, completion.wrIdHi, true);
    view.setUint32(position + At.status, STATUSES[status] ?? WCStatus.generalErr, true);
    for (let at: number = At.opcode; at < At.end; at += 4) view.setUint32(position + at, 0, true);
    view.setUint32(position + At.qpn, completion.qpn, true);
    if (status === CQEStatus.success) {
      view.setUint32(position + At.byteLen, completion.lengthBytes, true);
      if (opcode === SQOpcode.receive) this.#writeReceive(view, position, completion);
      else {
        view.setUint32(position + At.opcode, OPCODES[opcode] ?? WCOpcode.send, true);
        const immediate = opcode === SQOpcode.sendWithImm || opcode === SQOpcode.writeWithImm;
        view.setUint32(position + At.flags, immediate ? WCFlag.withImm : 0, true);
      }
    }
    ring.publish();
    return true;
  }

  #writeReceive(view: DataView, position: number, completion: CompletionRecord): void {
    const { flags, written } = completion;
    // Every RoCE packet has the fields of a GRH.
    let shown: number = WCFlag.grh;
    if ((flags & QueueFlag.immediate) !== 0) {
      shown |= WCFlag.withImm;
      view.setUint32(position + At.immediate, completion.immediateLo, false);
    } else if ((flags & QueueFlag.remoteInvalidate) !== 0) {
      shown |= WCFlag.withInv | KERNEL_WITH_INVALIDATE;
      view.setUint32(position + At.immediate, completion.immediateLo, true);
    }
    view.setUint32(position + At.opcode, written ? WCOpcode.recvImmediate : WCOpcode.recv, true);
    view.setUint32(position + At.flags, shown, true);
    view.setUint32(position + At.sourceQpn, completion.sourceQpn, true);
    view.setUint8(position + At.sl, completion.sl);
    view.setUint8(position + At.port, PORT);
  }

  armed(): number {
    return this.#ring.armed;
  }

  disarm(): void {
    this.#ring.disarm();
  }

  untaken(): UntakenCompletions {
    const { used: count, view } = this.#ring;
    let successes = 0;
    for (let entry = 0; entry < count; entry += 1) {
      const status = view.getUint32(this.#ring.positionOf(entry) + At.status, true);
      if (status === WCStatus.success) successes += 1;
    }
    return { count, successes };
  }

  writtenSince(count: number): number {
    return this.#ring.shownSince(count);
  }

  /** Requests one notification. A wider request that is still armed stays. */
  arm(solicitedOnly: boolean): void {
    this.#ring.arm(solicitedOnly ? Notify.solicited : Notify.any);
  }
}
