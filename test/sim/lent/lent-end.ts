/** A queue pair of the simulation of lent payload, with a model of all that its peer sends to it. */
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState } from '#contract/verbs/enums';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import { CompletionConsumer, ReceiveProducer, SendProducer } from '#test/support/flag-ring-client';
import type { Prng } from '#test/support/prng';
import { queueSizes } from '#test/support/queue-sizes';
import {
  type MemoryProgram,
  PIECE_BYTES,
  type Piece,
  type Region,
} from '../roce/memory-program.ts';
import { must } from '../roce/rules.ts';

const DEPTH = 16;
const CQ_ENTRIES = 256;
const MESSAGE_BYTES_MAX = 6000;
/** Fewer bytes may be in memory by chance. */
const SEEN_BYTES_MIN = 32;
const WORD_BYTES = 8;
/** Memory that its program has got back; never part of a message. */
const REUSED = 0x5a;
export const UNUSED = 0xee;

/** The bytes from which messages are taken. */
const NOISE = (() => {
  const bytes = new Uint8Array(65_536);
  for (let index = 0; index < bytes.length; index += 1) {
    const byte = (Math.imul(index, (index >> 3) + 7) >> 2) & 0xff;
    bytes[index] = byte === REUSED || byte === UNUSED ? 1 : byte;
  }
  return bytes;
})();

/** A message of the peer that is not known to have arrived. */
interface Due {
  readonly id: number;
  readonly data: Uint8Array;
  /** Of a Write: memory of this end. */
  readonly piece: Piece | undefined;
}

/** A work request that has not completed. */
interface Posted {
  readonly id: number;
  readonly signalled: boolean;
  readonly own: Piece | undefined;
  /** Data that a Read must return. */
  readonly reads: Uint8Array | undefined;
  /** Value that an atomic must return. */
  readonly original: bigint | undefined;
  /** Messages to the peer before it. */
  readonly before: number;
}

/** See the module's comment. */
export class LentEnd {
  readonly program: MemoryProgram;
  readonly qp: QP;
  readonly cq: CQ;
  readonly targets: Region;
  /** Why it may fail; undefined while it must not. */
  excuse: string | undefined = undefined;
  failed = false;
  completed = 0;
  readonly #host: RnicHost;
  readonly #prng: Prng;
  readonly sources: Region;
  readonly #sinks: Region;
  readonly #words: Region;
  readonly #word: Piece;
  readonly #sends: SendProducer;
  readonly #receives: ReceiveProducer;
  readonly #completions: CompletionConsumer;
  readonly #posted: Posted[] = [];
  readonly #receiving = new Map<number, Piece>();
  /** Messages of the peer, oldest first; `#arrivedCount` are no longer in the list. */
  readonly #due: Due[] = [];
  #arrivedCount = 0;
  /** Memory of Writes that have arrived. */
  readonly #used: Piece[] = [];
  #sentCount = 0;
  #added = 0n;
  #nextId = 1;
  #over = false;
  /** Given up with work that may still read its sources. */
  #sourcesKept = false;
  peer: LentEnd = this;

  constructor(host: RnicHost, program: MemoryProgram, prng: Prng) {
    this.#host = host;
    this.program = program;
    this.#prng = prng;
    const { nic } = program.device;
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    this.cq = nic.createCQ({ cqe: CQ_ENTRIES, ring, tag: undefined });
    this.qp = nic.createQP(program.pd, {
      sendCQ: this.cq,
      recvCQ: this.cq,
      srq: undefined,
      ring,
      capabilities: queueSizes(DEPTH, DEPTH, 2, 32),
      sqSigAll: false,
      tag: undefined,
    });
    this.#sends = new SendProducer(this.qp);
    this.#receives = new ReceiveProducer(this.qp.ring, this.qp.rqOffset, this.qp.rqCount);
    this.#completions = new CompletionConsumer(this.cq);
    this.sources = program.register('process_vm');
    this.#sinks = program.register('process_vm');
    this.targets = program.register('process_vm');
    this.#words = program.register('process_vm');
    const word = this.#words.take();
    if (word === undefined) throw new Error('new memory is free');
    this.#word = word;
    word.bytes(WORD_BYTES).fill(0);
  }

  get state(): QPState {
    return this.qp.state;
  }

  get up(): boolean {
    return this.state === QPState.RTS && !this.#over;
  }

  get idle(): boolean {
    return this.#posted.every(({ signalled }) => !signalled) || this.#over;
  }

  get unfinished(): string {
    return `${this.#posted.length} of QP ${this.qp.qpn}, first ${this.#posted[0]?.id}`;
  }

  mayFail(text: string): void {
    this.excuse ??= text;
    this.peer.excuse ??= text;
  }

  /** Registered memory of this end. */
  get regions(): readonly Region[] {
    return [this.sources, this.#sinks, this.targets];
  }

  ring(): void {
    this.#host.doorbell(this.qp);
  }

  // Work

  /** Posts something, if there is room and memory for it, without a doorbell. */
  post(): void {
    if (!this.up || this.#posted.length >= DEPTH - 2 || this.#sends.full) return;
    const draw = this.#prng.below(16);
    if (draw < 8) this.#postWrite();
    else if (draw < 13) this.#postSend();
    else if (draw < 15) this.#postRead();
    else this.#postAtomic();
  }

  #length(): number {
    const prng = this.#prng;
    return prng.oneIn(4) ? prng.below(64) : prng.between(400, MESSAGE_BYTES_MAX);
  }

  #take(region: Region): Piece | undefined {
    return region.lost ? undefined : region.take();
  }

  #postWrite(): void {
    const own = this.#take(this.sources);
    if (own === undefined) return;
    const piece = this.#take(this.peer.targets);
    if (piece === undefined) {
      this.sources.give(own);
      return;
    }
    const data = this.#fill(own);
    const at = { raddr: BigInt(piece.address), rkey: piece.region.mr.rkey };
    const id = this.#post(SQOpcode.write, own, data.length, at);
    this.#await({ id, data, piece });
  }

  #postSend(): void {
    if (!this.peer.#postReceive()) return;
    const own = this.#take(this.sources);
    // A receive too many does no harm.
    if (own === undefined) return;
    const data = this.#fill(own);
    const id = this.#post(SQOpcode.send, own, data.length, {});
    this.#await({ id, data, piece: undefined });
  }

  /** Reads what an earlier Write has written. */
  #postRead(): void {
    const written = this.peer.#due.findLast(({ piece }) => piece !== undefined);
    const own = written === undefined ? undefined : this.#take(this.#sinks);
    if (written?.piece === undefined || own === undefined) return;
    const { piece, data } = written;
    const at = { raddr: BigInt(piece.address), rkey: piece.region.mr.rkey };
    this.#post(SQOpcode.read, own, data.length, at, data);
  }

  #postAtomic(): void {
    const own = this.#take(this.#sinks);
    if (own === undefined) return;
    const operand = BigInt(1 + this.#prng.below(1000));
    const original = this.#added;
    this.#added += operand;
    const { peer } = this;
    const at = { raddr: BigInt(peer.#word.address), rkey: peer.#words.mr.rkey, operand };
    this.#post(SQOpcode.fetchAndAdd, own, WORD_BYTES, at, undefined, original);
  }

  #fill(own: Piece): Uint8Array {
    const length = this.#length();
    const start = this.#prng.below(NOISE.length - length);
    const data = NOISE.subarray(start, start + length);
    own.bytes(length).set(data);
    return data;
  }

  #post(
    opcode: SQOpcode,
    own: Piece,
    length: number,
    at: { readonly raddr?: bigint; readonly rkey?: number; readonly operand?: bigint },
    reads?: Uint8Array,
    original?: bigint,
  ): number {
    const id = this.#nextId++;
    const prng = this.#prng;
    const signalled = this.#posted.length >= DEPTH / 2 || !prng.oneIn(4);
    const one = opcode !== SQOpcode.send && opcode !== SQOpcode.write;
    const cut = one || prng.oneIn(2) ? length : prng.below(length + 1);
    const sges = cut === length ? [own.sge(length)] : [own.sge(cut), own.sge(length - cut, cut)];
    const flags = signalled ? QueueFlag.signalled : 0;
    this.#posted.push({ id, signalled, own, reads, original, before: this.#sentCount });
    this.#sends.post({ opcode, wrId: id, flags, sges, ...at });
    return id;
  }

  /** A later completion covers unsignalled work before it. */
  postSignal(): void {
    const last = this.#posted.at(-1);
    if (last === undefined || last.signalled || !this.up || this.#sends.full) return;
    const id = this.#nextId++;
    const nothing = { own: undefined, reads: undefined, original: undefined };
    this.#posted.push({ id, signalled: true, ...nothing, before: this.#sentCount });
    this.#sends.post({ opcode: SQOpcode.write, wrId: id, flags: QueueFlag.signalled });
    this.ring();
  }

  #await(due: Due): void {
    this.#sentCount += 1;
    this.peer.#due.push(due);
  }

  #postReceive(): boolean {
    if (this.#over || this.#receiving.size >= DEPTH) return false;
    const piece = this.#take(this.#sinks);
    if (piece === undefined) return false;
    const id = this.#nextId++;
    this.#receiving.set(id, piece);
    const first = this.#prng.below(MESSAGE_BYTES_MAX);
    this.#receives.post(id, [piece.sge(first), piece.sge(MESSAGE_BYTES_MAX - first, first)]);
    return true;
  }

  // Completions

  poll(): void {
    for (const { wrId, opcode, status, bytes } of this.#completions.poll()) {
      this.completed += 1;
      if (opcode === SQOpcode.receive) this.#handleReceive(wrId, status, bytes);
      else this.#handleSend(wrId, status);
    }
  }

  #handleSend(id: number, status: number): void {
    for (;;) {
      const work = this.#posted.shift();
      must(work !== undefined, 'once', `work ${id} completes, but is not outstanding`);
      if (work === undefined) return;
      const named = work.id === id;
      must(named || !work.signalled, 'order', `work ${id} completes before work ${work.id}`);
      this.#settle(work, named ? status : CQEStatus.success, named);
      if (this.#posted.length === 0) this.#reuseSources();
      if (named) return;
    }
  }

  #settle(work: Posted, status: number, named: boolean): void {
    const { own, reads, original, id, before } = work;
    if (status !== CQEStatus.success) {
      must(this.excuse !== undefined, 'fails', `work ${id} has status ${status}`);
      this.failed = true;
      return;
    }
    if (!named && this.failed) return;
    must(!this.failed, 'order', `work ${id} succeeds after work that failed`);
    const sure = own?.region.lost === false && (named || this.excuse === undefined);
    if (reads !== undefined && own !== undefined && sure) {
      must(same(own, reads), 'payload', `Read ${id} returned other data`);
      this.peer.#arrived(before, `Read ${id}`);
    }
    if (original !== undefined && own !== undefined && sure) {
      const result = Buffer.from(own.bytes(WORD_BYTES)).readBigUInt64LE();
      must(result === original, 'atomic', `atomic ${id} gave ${result}, not ${original}`);
      this.peer.#arrived(before, `atomic ${id}`);
    }
    if (own !== undefined) own.region.give(own);
  }

  #handleReceive(id: number, status: number, bytes: number): void {
    const piece = this.#receiving.get(id);
    must(piece !== undefined, 'once', `receive ${id} completes, but is not outstanding`);
    if (piece === undefined) return;
    this.#receiving.delete(id);
    if (status !== CQEStatus.success) {
      must(this.excuse !== undefined, 'fails', `receive ${id} has status ${status}`);
      return;
    }
    let index = this.#due.findIndex((due) => due.piece === undefined);
    must(index >= 0, 'once', 'a message that was not sent arrived');
    const { data, id: message } = this.#due[index] as Due;
    must(bytes === data.length, 'payload', `Send ${message} has ${bytes} bytes`);
    const known = piece.region.lost;
    must(known || same(piece, data), 'payload', `Send ${message} has other data`);
    piece.region.give(piece);
    index += this.#arrivedCount;
    this.#arrived(index, `Send ${message}`);
    this.#due.shift();
    this.#arrivedCount += 1;
  }

  /** Writes among the first `count` messages of the peer are in memory; `by` says so. */
  #arrived(count: number, by: string): void {
    while (this.#arrivedCount < count) {
      const [due] = this.#due;
      // A Send is over when its receive completes.
      if (due?.piece === undefined) return;
      const { piece, data, id } = due;
      must(
        piece.region.lost || same(piece, data),
        'placed',
        `Write ${id} is not there, after ${by}`,
      );
      this.#due.shift();
      this.#arrivedCount += 1;
      this.#used.push(piece);
    }
    // The peer may still read what it has written.
    if (this.peer.#posted.some(({ reads }) => reads !== undefined)) return;
    for (const piece of this.#used.splice(0)) piece.region.give(piece);
  }

  /** No Write is in memory before an earlier one, and none has other bytes. */
  checkMemory(deep: boolean): void {
    if (this.targets.lost) return;
    let missing: number | undefined;
    for (const { id, piece, data } of this.#due) {
      if (piece === undefined || data.length < SEEN_BYTES_MIN) continue;
      const arrived = same(piece, data);
      if (!arrived) missing ??= id;
      must(!arrived || missing === undefined, 'order', `Write ${id} overtakes Write ${missing}`);
      if (deep && !arrived) checkBytes(piece, data, id);
    }
  }

  // The end

  /** The program moves the queue pair to ERR, or destroys it, and then uses its memory for something else. */
  giveUp(destroys: boolean): void {
    if (this.#over) return;
    this.mayFail('its program gave it up');
    this.#over = true;
    if (destroys) this.qp.close(this.#host.now());
    else this.qp.modify(QPState.ERR, this.#host.now());
    this.#host.drain();
    const gone = this.sources.lost;
    this.sources.lost = true;
    this.#whenReplied(() => {
      this.#sourcesKept = !gone;
      // In ERR, sources are the program's once their work has completed.
      if (destroys || this.#posted.length === 0) this.#reuseSources();
      this.reuse(this.targets);
    });
  }

  #reuseSources(): void {
    if (!this.#sourcesKept) return;
    this.#sourcesKept = false;
    this.sources.area.bytes.fill(REUSED);
  }

  /** The program is told that its connection has ended or failed, and uses its memory for something else. */
  learnEnd(): void {
    if (this.#over || this.excuse === undefined || this.targets.reused) return;
    this.targets.lost = true;
    this.targets.reuse();
  }

  /** The program uses the memory for something else: nothing may be written there. */
  reuse(region: Region): void {
    if (region.reused) return;
    region.lost = true;
    this.#whenReplied(() => region.reuse());
  }

  #whenReplied(run: () => void): void {
    const { incoming } = this.program.memory;
    if (incoming.ending) incoming.whenOver(run);
    else run();
  }

  finish(): void {
    must(this.idle || this.excuse !== undefined, 'progress', `left: ${this.unfinished}`);
    if (this.excuse !== undefined) return;
    this.#arrived(this.#arrivedCount + this.#due.length, 'the end');
    must(this.#due.length === 0, 'arrived', `${this.#due.length} messages did not arrive`);
  }

  close(): void {
    this.qp.close(this.#host.now());
    this.#host.drain();
    this.cq.close();
  }
}

function same(piece: Piece, data: Uint8Array): boolean {
  return Buffer.compare(piece.bytes(data.length), data) === 0;
}

/** Bytes of a Write that has not arrived: its own, or none. */
function checkBytes(piece: Piece, data: Uint8Array, id: number): void {
  const bytes = piece.bytes(data.length);
  for (let at = 0; at < data.length; at += 1) {
    const right = bytes[at] === data[at] || bytes[at] === UNUSED;
    must(right, 'payload', `byte ${at} of Write ${id} is ${bytes[at]}`);
  }
}

/** So that no piece is shorter than a message. */
must(PIECE_BYTES >= MESSAGE_BYTES_MAX, 'model', 'a piece holds a message');
