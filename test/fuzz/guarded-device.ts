/**
 * The device of `wire-stream`: registered memory between guards, memory that peers may only read,
 * memory of another protection domain, and unreachable memory that holds a secret.
 */
import { Access } from '#contract/verbs/enums';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import { ViewBacking } from '#daemon/rnic/memory/memory-backing';
import type { PD } from '#daemon/rnic/memory/protection-domain';
import { Nic } from '#daemon/rnic/nic';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import { CompletionRing } from '#verbs-api/client/completion-ring';
import { bytesOf } from '../support/hex.ts';
import { KeepingBacking } from '../support/test-memory.ts';
import { ANSWERS, OPEN_STAG, SEGMENTS } from './corpus.ts';
import { claim } from './target.ts';

/** Length of the device's memory. */
export const MEMORY_BYTES = 0x6000;
/** Ranges of each kind of memory; everything else is guard. */
export const RANGES = {
  open: [0x1000, 0x2000],
  local: [0x3000, 0x3800],
  secret: [0x4000, 0x4400],
  foreign: [0x4800, 0x4c00],
  readable: [0x5000, 0x5400],
} as const;
/** Ranges that no peer may change. Peers may not read the secret and the foreign range either. */
const CONSTANT_SPANS = [
  [0x0000, 0x1000],
  [0x2000, 0x3000],
  [0x3800, MEMORY_BYTES],
] as const;
/** Must never be sent. */
export const SECRET = bytesOf('5ec7e7b1a9d3');
/** Overwrites a buffer once it is returned to its owner. */
export const REUSED_BYTE = 0xdb;
const REUSED = Buffer.alloc(6, REUSED_BYTE);
/** Initial contents of the memory. */
function pristineMemory(): Uint8Array {
  const memory = new Uint8Array(MEMORY_BYTES).fill(0x5a);
  for (const [start, end] of [RANGES.secret, RANGES.foreign]) {
    for (let at = start; at < end; at++) memory[at] = SECRET[(at - start) % SECRET.length] ?? 0;
  }
  return memory;
}

/** The corpus with this device's STags instead of `OPEN_STAG`. */
function withStag(segments: readonly Uint8Array[], stag: number): Uint8Array[] {
  return segments.map((segment) => {
    const copy = segment.slice();
    const view = new DataView(copy.buffer);
    for (let at = 0; at + 4 <= copy.length; at++) {
      if (view.getUint32(at) === OPEN_STAG) view.setUint32(at, stag);
    }
    return copy;
  });
}

/** One device and its memory; connections come and go. */
export class Device {
  readonly memory = pristineMemory();
  readonly pristine = pristineMemory();
  readonly nic: Nic;
  readonly pd: PD;
  readonly cq: CQ;
  readonly completions: CompletionRing;
  readonly pool = new ChunkPool();
  readonly stags: readonly number[];
  readonly openStag: number;
  readonly localStag: number;
  readonly requests: readonly Uint8Array[];
  readonly answers: readonly Uint8Array[];
  readonly all: readonly Uint8Array[];
  readonly #closers: (() => void)[] = [];
  readonly #keeps: boolean;

  /** With `keeps`, writes stay views of the input until it ends. */
  constructor(seed: number, keeps: boolean) {
    this.#keeps = keeps;
    this.nic = new Nic({ name: 'fuzzed', seed });
    this.pd = this.nic.allocPD();
    const foreign = this.nic.allocPD();
    const { localWrite, remoteWrite, remoteRead, remoteAtomic } = Access;
    const every = localWrite | remoteWrite | remoteRead | remoteAtomic;
    this.openStag = this.#register(this.pd, 'open', every);
    this.localStag = this.#register(this.pd, 'local', localWrite);
    this.stags = [
      this.openStag,
      this.localStag,
      this.#register(this.pd, 'secret', localWrite),
      this.#register(foreign, 'foreign', every),
      this.#register(this.pd, 'readable', remoteRead),
    ];
    this.cq = this.nic.createCQ({ cqe: 1024, ring: newRing, tag: undefined });
    this.completions = new CompletionRing(this.cq.ring, this.cq.count);
    this.requests = withStag(SEGMENTS, this.openStag);
    this.answers = withStag(ANSWERS, this.openStag);
    this.all = [...this.requests, ...this.answers];
    this.#closers.push(
      () => foreign.close(),
      () => this.pd.close(),
      () => this.cq.close(),
    );
  }

  #register(pd: PD, range: keyof typeof RANGES, access: number): number {
    const [start, end] = RANGES[range];
    const mr = this.nic.regMR(pd, {
      backing: this.#keeps ? new KeepingBacking(this.memory) : new ViewBacking(this.memory),
      backingOffset: start,
      lengthBytes: end - start,
      address: start,
      iova: start,
      access,
      key: undefined,
    });
    this.#closers.unshift(() => mr.close());
    return mr.stag;
  }

  /** Throws if a byte changed that no peer may change. */
  check(): void {
    for (const [start, end] of CONSTANT_SPANS) {
      const order = Buffer.compare(
        this.memory.subarray(start, end),
        this.pristine.subarray(start, end),
      );
      claim(order === 0, `a byte between ${start} and ${end} changed`);
    }
    claim(!Buffer.from(this.memory.buffer).includes(REUSED), 'a released buffer was read');
  }

  close(): void {
    claim(this.nic.listQPs().length === 0, 'a queue pair is left');
    claim(this.pool.inUseCount === 0, `${this.pool.inUseCount} chunks are left`);
    for (const close of this.#closers) close();
  }
}

export function newRing(bytes: number): Uint8Array {
  return new Uint8Array(new ArrayBuffer(Math.ceil(bytes / 8) * 8), 0, bytes);
}
