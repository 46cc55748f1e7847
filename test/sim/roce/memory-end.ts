/** A queue pair of the memory simulation, with a model of all its work. */
import { CQEStatus, QueueFlag, SQOpcode } from '#contract/protocol/queue-layout';
import { QPState, QPType } from '#contract/verbs/enums';
import type { RnicHost } from '#daemon/host/rnic-host';
import type { QPModification } from '#daemon/rnic/qp-attributes';
import type { QP } from '#daemon/rnic/queue-pair';
import type { CQ } from '#daemon/rnic/queues/completion-queue';
import {
  CompletionConsumer,
  ReceiveProducer,
  SendProducer,
  type SqeFields,
} from '#test/support/flag-ring-client';
import type { Prng } from '#test/support/prng';
import { MASKS, mappedGid, PEER, VALUES } from '#test/support/program-steps';
import { queueSizes } from '#test/support/queue-sizes';
import {
  anyTier,
  type MemoryProgram,
  PIECE_BYTES,
  type Piece,
  type Region,
} from './memory-program.ts';
import { must } from './rules.ts';

const DEPTH = 16;
const RECEIVES = 8;
const MESSAGE_BYTES_MAX = 6000;
const WORD_BYTES = 8;
const ALL_RIGHTS = 15;
const UNREACHED = -1;
/** Fewer bytes may be in memory by chance. */
const SEEN_BYTES_MIN = 32;

/** The bytes from which messages are taken. */
const NOISE = (() => {
  const bytes = new Uint8Array(65_536);
  for (let index = 0; index < bytes.length; index += 1)
    bytes[index] = Math.imul(index, index >> 3) >> 2;
  return bytes;
})();

/** A work request that has not completed. */
interface Posted {
  readonly id: number;
  readonly opcode: number;
  readonly signalled: boolean;
  /** The payload of a message, or the expected data of a Read. */
  readonly data: Uint8Array;
  /** Memory of this end: given back when it completes. */
  readonly own: Piece | undefined;
  /** Memory of the peer that it writes or reads. */
  readonly remote: Piece | undefined;
  /** Its place among the peer's arrivals, or `UNREACHED`. */
  readonly arrival: number;
  /** The peer's word before and after an atomic. */
  readonly original: bigint | undefined;
  readonly sum: bigint;
}

interface Due {
  readonly data: Uint8Array;
  readonly length: number;
  readonly immediate: bigint | undefined;
}

/** See the module's comment. */
export class MemoryEnd {
  readonly program: MemoryProgram;
  readonly qp: QP;
  readonly cq: CQ;
  readonly sends: SendProducer;
  readonly completions: CompletionConsumer;
  /** Why it may fail; undefined while it must not. */
  excuse: string | undefined = undefined;
  /** A work request failed. */
  failed = false;
  /** The program moved the queue pair to ERR: nothing more is posted. */
  #givenUp = false;
  completed = 0;
  /** The program rings the doorbell once for several work requests. */
  ringsLate = false;
  readonly #host: RnicHost;
  readonly #prng: Prng;
  readonly #sources: Region;
  readonly #sinks: Region;
  /** The peer's target and source, and its words. */
  readonly targets: Region;
  readonly words: Region;
  readonly word: Piece;
  readonly #posted: Posted[] = [];
  /** Ids and statuses of completions of sends that are not looked at yet. */
  #busy = false;
  readonly #sent: [id: number, status: number][] = [];
  #nextId = 1;
  readonly #receives: ReceiveProducer;
  readonly #ownReceives = new Map<number, Piece>();
  #nextReceive = 1;
  readonly #due: Due[] = [];
  arrived = 0;
  /** The peer's word: the sum of all our additions, and that of completed ones. */
  #added = 0n;
  #certain = 0n;
  #peer: MemoryEnd | undefined = undefined;

  constructor(host: RnicHost, program: MemoryProgram, prng: Prng) {
    this.#host = host;
    this.program = program;
    this.#prng = prng;
    const { nic } = program.device;
    const ring = (bytes: number): Uint8Array => new Uint8Array(bytes);
    this.cq = nic.createCQ({ cqe: 64, ring, tag: undefined });
    const capabilities = queueSizes(DEPTH, DEPTH, 2, 32);
    const queues = { sendCQ: this.cq, recvCQ: this.cq, srq: program.shared?.srq, ring };
    this.qp = nic.createQP(program.pd, {
      type: QPType.rc,
      ...queues,
      capabilities,
      sqSigAll: false,
      tag: undefined,
    });
    this.sends = new SendProducer(this.qp);
    this.#receives = new ReceiveProducer(
      this.qp.ring,
      this.qp.rqOffset,
      Math.max(this.qp.rqCount, 1),
    );
    this.completions = new CompletionConsumer(this.cq);
    this.#sources = program.register(anyTier(prng));
    this.#sinks = program.register(anyTier(prng));
    this.targets = program.register(anyTier(prng));
    this.words = program.register(prng.choose(['local', 'process_vm']));
    const word = this.words.take();
    if (word === undefined) throw new Error('new memory is free');
    this.word = word;
    word.bytes(WORD_BYTES).fill(0);
    for (const region of [this.#sources, this.#sinks, this.targets, this.words]) {
      region.users.add(this);
    }
    program.join(this);
  }

  get state(): QPState {
    return this.qp.state;
  }

  get peer(): MemoryEnd {
    if (this.#peer === undefined) throw new Error('an end has a peer');
    return this.#peer;
  }

  /** Nothing is outstanding, except work of a failed queue pair that needs no completion. */
  get idle(): boolean {
    const named = this.#over && this.qp.state === QPState.ERR;
    return named ? !this.#posted.some(({ signalled }) => signalled) : this.#posted.length === 0;
  }

  get unfinished(): string {
    return `${this.#posted.length} of QP ${this.qp.qpn}, first ${this.#posted[0]?.id}`;
  }

  connect(peer: MemoryEnd, values: Partial<QPModification>): void {
    this.#peer = peer;
    const [init, rtr, rts] = MASKS[QPType.rc];
    const path = {
      ahAttr: { ...PEER, dgid: mappedGid(127, 0, 0, 2 + peer.program.index) },
      destQpNum: peer.qp.qpn,
      accessFlags: ALL_RIGHTS,
      ...values,
    };
    for (const [state, mask] of [
      [QPState.INIT, init],
      [QPState.RTR, rtr],
      [QPState.RTS, rts],
    ] as const) {
      this.#modify({ ...VALUES, state, curState: this.qp.state, ...path, mask });
    }
  }

  /** The program moves the queue pair to ERR: outstanding work is flushed. */
  giveUp(): void {
    this.#givenUp = true;
    if (this.qp.state === QPState.ERR) return;
    this.#modify({ ...VALUES, state: QPState.ERR, curState: this.qp.state, mask: 1 });
  }

  #modify(change: QPModification): void {
    this.program.noteCommand();
    this.qp.modifyPath(change, this.#host.now());
    this.#host.drain();
  }

  mayFail(text: string): void {
    this.excuse ??= text;
    const peer = this.#peer;
    if (peer !== undefined) peer.excuse ??= text;
  }

  get #over(): boolean {
    return this.failed || this.#givenUp;
  }

  // Work

  ring(): void {
    this.#host.doorbell(this.qp);
  }

  postReceives(count: number): void {
    for (let index = 0; index < count; index += 1) {
      if (this.program.shared !== undefined) this.program.postShared(MESSAGE_BYTES_MAX);
      else this.#postReceive();
    }
  }

  #postReceive(): void {
    if (this.#over || this.#ownReceives.size >= RECEIVES) return;
    const piece = this.#sinks.lost ? undefined : this.#sinks.take();
    if (piece === undefined) return;
    const id = this.#nextReceive++;
    this.#ownReceives.set(id, piece);
    const first = this.#prng.below(MESSAGE_BYTES_MAX);
    const sges = [piece.sge(first), piece.sge(MESSAGE_BYTES_MAX - first, first)];
    this.#receives.post(id, sges);
  }

  /** Posts something, if there is room and memory for it. */
  post(): void {
    if (this.#over || this.#posted.length >= DEPTH - 2 || this.sends.full) return;
    const opcode = this.#prng.choose([
      SQOpcode.send,
      SQOpcode.sendWithImm,
      SQOpcode.write,
      SQOpcode.write,
      SQOpcode.writeWithImm,
      SQOpcode.read,
      SQOpcode.read,
      SQOpcode.fetchAndAdd,
    ]);
    if (opcode === SQOpcode.fetchAndAdd) this.#postAtomic();
    else if (opcode === SQOpcode.read) this.#postRead();
    else this.#postMessage(opcode);
  }

  /** A later completion covers unsignalled work before it. */
  postSignal(): void {
    const last = this.#posted.at(-1);
    if (last === undefined || last.signalled || this.#over || this.sends.full) return;
    const id = this.#nextId++;
    const opcode = SQOpcode.write;
    const nothing = { own: undefined, remote: undefined, data: NOISE.subarray(0, 0) };
    const rest = { arrival: UNREACHED, original: undefined, sum: 0n };
    this.#posted.push({ ...nothing, ...rest, id, opcode, signalled: true });
    this.sends.post({ opcode, wrId: id });
    this.ring();
  }

  #data(length: number): Uint8Array {
    const start = this.#prng.below(NOISE.length - length);
    return NOISE.subarray(start, start + length);
  }

  #postMessage(opcode: number): void {
    const writes = opcode === SQOpcode.write || opcode === SQOpcode.writeWithImm;
    const own = this.#sources.lost ? undefined : this.#sources.take();
    if (own === undefined) return;
    const remote = writes && !this.peer.targets.lost ? this.peer.targets.take() : undefined;
    if (writes && remote === undefined) {
      this.#sources.give(own);
      return;
    }
    const length = this.#prng.length(MESSAGE_BYTES_MAX);
    const data = this.#data(length);
    own.bytes(length).set(data);
    const hasImmediate = opcode === SQOpcode.sendWithImm || opcode === SQOpcode.writeWithImm;
    const immediate = hasImmediate ? BigInt(this.#prng.next()) : undefined;
    let arrival = UNREACHED;
    if (opcode !== SQOpcode.write) {
      arrival = this.peer.#due.length;
      this.peer.#due.push({ data: writes ? NOISE.subarray(0, 0) : data, length, immediate });
    }
    const cut = this.#prng.below(length + 1);
    const sges = this.#prng.oneIn(3)
      ? [own.sge(cut), own.sge(length - cut, cut)]
      : [own.sge(length)];
    const at =
      remote === undefined ? {} : { raddr: BigInt(remote.address), rkey: remote.region.mr.rkey };
    this.#post(
      { opcode, data, own, remote, arrival, original: undefined, sum: 0n },
      { sges, ...at, ...(immediate === undefined ? {} : { immediate }) },
    );
  }

  #postRead(): void {
    const own = this.#sinks.lost ? undefined : this.#sinks.take();
    if (own === undefined) return;
    const remote = this.peer.targets.lost ? undefined : this.peer.targets.take();
    if (remote === undefined) {
      this.#sinks.give(own);
      return;
    }
    const length = this.#prng.length(MESSAGE_BYTES_MAX);
    const data = this.#data(length);
    if (!remote.region.closed) remote.bytes(length).set(data);
    const at = { raddr: BigInt(remote.address), rkey: remote.region.mr.rkey };
    const opcode = SQOpcode.read;
    this.#post(
      { opcode, data, own, remote, arrival: UNREACHED, original: undefined, sum: 0n },
      { sges: [own.sge(length)], ...at },
    );
  }

  #postAtomic(): void {
    const own = this.#sinks.lost ? undefined : this.#sinks.take();
    if (own === undefined) return;
    const operand = BigInt(1 + this.#prng.below(1000));
    const original = this.#added;
    this.#added += operand;
    const at = { raddr: BigInt(this.peer.word.address), rkey: this.peer.words.mr.rkey };
    const opcode = SQOpcode.fetchAndAdd;
    const data = NOISE.subarray(0, 0);
    this.#post(
      { opcode, data, own, remote: undefined, arrival: UNREACHED, original, sum: this.#added },
      { sges: [own.sge(WORD_BYTES)], operand, ...at },
    );
  }

  #post(work: Omit<Posted, 'id' | 'signalled'>, fields: Omit<SqeFields, 'opcode' | 'wrId'>): void {
    const id = this.#nextId++;
    const signalled = this.#posted.length >= DEPTH / 2 || !this.#prng.oneIn(4);
    const fence = this.#prng.oneIn(5) ? QueueFlag.readFence : 0;
    const flags = (signalled ? QueueFlag.signalled : 0) | fence;
    this.#posted.push({ ...work, id, signalled });
    this.sends.post({ ...fields, opcode: work.opcode, wrId: id, flags });
    if (!this.ringsLate) this.ring();
  }

  // Completions

  /** No Write is in memory before an earlier one: programs poll for the last byte that they expect. */
  checkOrder(): void {
    if (this.excuse !== undefined) return;
    let missing: number | undefined;
    for (const { opcode, remote, data, id } of this.#posted) {
      const writes = opcode === SQOpcode.write || opcode === SQOpcode.writeWithImm;
      if (!writes || remote === undefined || data.length < SEEN_BYTES_MIN) continue;
      const arrived = Buffer.compare(remote.bytes(data.length), data) === 0;
      if (!arrived) missing ??= id;
      must(!arrived || missing === undefined, 'order', `Write ${id} overtakes Write ${missing}`);
    }
  }

  /** Receives first: a completion of the peer may promise them. */
  poll(): void {
    for (const { wrId, opcode, status, bytes, flags, immediate, qpn } of this.completions.poll()) {
      must(qpn === this.qp.qpn, 'once', 'a completion names another queue pair');
      const hasImmediate = (flags & QueueFlag.immediate) !== 0;
      if (opcode !== SQOpcode.receive && opcode !== SQOpcode.receiveWithImm) {
        this.#sent.push([wrId, status]);
      } else this.#handleReceive(wrId, status, bytes, hasImmediate ? immediate : undefined);
    }
    // The peer's query of arrivals queries this end again.
    if (this.#busy) return;
    this.#busy = true;
    for (let next = this.#sent.shift(); next !== undefined; next = this.#sent.shift()) {
      this.#handleSend(...next);
    }
    this.#busy = false;
  }

  #handleSend(id: number, status: number): void {
    for (;;) {
      const work = this.#posted.shift();
      must(work !== undefined, 'once', `work ${id} completes, but is not outstanding`);
      if (work === undefined) return;
      const named = work.id === id;
      must(named || !work.signalled, 'order', `work ${id} completes before work ${work.id}`);
      must(work.id <= id, 'once', `work ${id} completes again`);
      this.#settle(work, named ? status : CQEStatus.success, named);
      if (named) return;
    }
  }

  #settle(work: Posted, status: number, named: boolean): void {
    const { own, remote, arrival, data, original, sum, id } = work;
    this.completed += 1;
    if (status !== CQEStatus.success) {
      must(this.excuse !== undefined, 'fails', `work ${id} has status ${status}`);
      this.failed = true;
      // The peer may still use its memory, so it is not used again.
      return;
    }
    // An unsignalled success before a failure has no completion to show its order.
    if (!named && this.failed) return;
    must(!this.failed, 'order', `work ${id} succeeds after work that failed`);
    if (arrival !== UNREACHED) {
      this.peer.poll();
      must(this.peer.arrived > arrival, 'arrived', `work ${id} has not arrived at the peer`);
    }
    // Of several unsignalled ones whose memory is gone, only one completes.
    const closed = own?.region.closed === true;
    const sure = !closed && (named || this.excuse === undefined);
    if (remote?.region.closed === false && work.opcode !== SQOpcode.read) {
      const same = Buffer.compare(remote.bytes(data.length), data) === 0;
      const { tier, lost } = remote.region.area;
      const where = `${lost ? 'lost ' : ''}${tier} memory`;
      must(same, 'arrived', `the data of Write ${id} are not in ${where}, excuse ${this.excuse}`);
    }
    if (work.opcode === SQOpcode.read && own !== undefined && sure) {
      const same = Buffer.compare(own.bytes(data.length), data) === 0;
      must(same, 'arrived', `Read ${id} completed without its data`);
    }
    if (original !== undefined && own !== undefined && sure) {
      const result = Buffer.from(own.bytes(WORD_BYTES)).readBigUInt64LE();
      must(result === original, 'atomic', `atomic ${id} gave ${result}, not ${original}`);
      this.#certain = sum;
    }
    if (own !== undefined) own.region.give(own);
    if (remote !== undefined) remote.region.give(remote);
  }

  #handleReceive(id: number, status: number, bytes: number, immediate: bigint | undefined): void {
    const pieces = this.program.shared?.pieces ?? this.#ownReceives;
    const piece = pieces.get(id);
    must(piece !== undefined, 'once', `receive ${id} completes, but is not outstanding`);
    pieces.delete(id);
    if (piece === undefined) return;
    this.completed += 1;
    if (status === CQEStatus.success) this.#checkArrival(piece, bytes, immediate);
    else must(this.excuse !== undefined, 'fails', `receive ${id} has status ${status}`);
    piece.region.give(piece);
  }

  #checkArrival(piece: Piece, bytes: number, immediate: bigint | undefined): void {
    const due = this.#due[this.arrived];
    this.arrived += 1;
    must(due !== undefined, 'once', 'a message that was not sent arrived');
    if (due === undefined) return;
    const { data, length } = due;
    must(bytes === length, 'payload', `a message has ${bytes} bytes, not ${length}`);
    const { closed } = piece.region;
    const same = closed || Buffer.compare(piece.bytes(data.length), data) === 0;
    must(same, 'payload', `message ${this.arrived} has other data`);
    must(immediate === due.immediate, 'payload', 'the immediate data differ');
  }

  // The end

  /** Checks what can be checked only after everything has completed. */
  finish(): void {
    must(this.idle, 'once', `work has no completion: ${this.unfinished}`);
    const { arrived, excuse } = this;
    must(excuse !== undefined || arrived === this.#due.length, 'once', 'a message did not arrive');
    // The peer's additions: all of them, or those before the failure.
    const word = Buffer.from(this.word.bytes(WORD_BYTES)).readBigUInt64LE();
    const { peer } = this;
    const whole = word === peer.#added;
    const part = excuse !== undefined && word >= peer.#certain && word <= peer.#added;
    must(whole || part, 'atomic', `the word is ${word}, not ${peer.#added}`);
    if (this.program.shared === undefined && this.#over) {
      const { size } = this.#ownReceives;
      must(size === 0, 'once', `${size} receives have no completion`);
    }
  }

  close(): void {
    this.program.noteCommand();
    this.qp.close(this.#host.now());
    this.#host.drain();
    this.cq.close();
  }
}

/** So that no piece is shorter than a message. */
must(PIECE_BYTES >= MESSAGE_BYTES_MAX, 'model', 'a piece holds a message');
