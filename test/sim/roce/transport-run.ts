/**
 * Two reliable transports over a bad network, under one seed, against a model.
 *
 * Both sides post Sends, Writes, Reads and atomics. Each Write has separate memory at the peer,
 * which the peer overwrites once the Write has arrived, so a repeated Write is detected.
 */
import { QPState } from '#contract/verbs/enums';
import { OutboundKind } from '#daemon/rnic/wire-port';
import {
  type Arrival,
  addressAt,
  type Done,
  REMOTE_KEY,
  type Work,
} from '#test/support/model-user';
import { Prng } from '#test/support/prng';
import { pathOf, TransportSide } from '#test/support/transport-pair';
import { LossyNetwork } from './lossy-network.ts';
import { must } from './rules.ts';

const MEMORY_BYTES = 1 << 20;
/** The first words of memory are targets of atomics, then bytes that only Reads touch. */
const COUNTERS = 4;
const READABLE_AT = 64;
const READABLE_BYTES = 16_384;
const WRITES_AT = 32_768;
/** The peer's replacement of a Write's data. */
const TAKEN = 0xee;
const STEPS_MAX = 200_000;
/** No answer for so long means that the two wait for each other. */
const MICROS_MAX = 600_000_000;
const RETRIES = 7;
/** Maximum messages that a requester may hold: its own limit. */
const OPEN_MAX = 128;

/** Posted work of a side, and its expected results. */
interface Expectation {
  readonly work: Work;
  /** The arrival at the peer, for work that causes one. */
  readonly arrival?: { readonly bytes: Uint8Array; readonly immediate: number | undefined };
  readonly arrivalIndex?: number;
  /** Where a Write's payload is at the peer. */
  readonly at?: number;
  /** The original value of an atomic. */
  readonly original?: number;
  readonly read?: Uint8Array;
}

/** One side with its model. */
class Program {
  readonly side: TransportSide;
  readonly expectations: Expectation[] = [];
  readonly arrivalsDue: { bytes: Uint8Array; immediate: number | undefined }[] = [];
  #completed = 0;
  #arrived = 0;
  #writesAt = WRITES_AT;
  readonly #counters = new Array<number>(COUNTERS).fill(0);
  readonly #prng: Prng;
  #peer: Program | undefined = undefined;

  constructor(prng: Prng, windowPackets: number, wholeBytes: number) {
    this.#prng = prng;
    this.side = new TransportSide(MEMORY_BYTES, { windowPackets }, wholeBytes);
    prng.fill(this.side.user.memory.subarray(READABLE_AT, READABLE_AT + READABLE_BYTES));
    this.side.user.onDone = (done) => this.#handleDone(done);
    this.side.user.onArrival = (arrival) => this.#handleArrival(arrival);
  }

  meet(peer: Program): void {
    this.#peer = peer;
  }

  get peer(): Program {
    if (this.#peer === undefined) throw new Error('a program has a peer');
    return this.#peer;
  }

  get idle(): boolean {
    return this.#completed === this.expectations.length;
  }

  post(): void {
    const kind = this.#prng.choose([
      OutboundKind.send,
      OutboundKind.sendWithImmediate,
      OutboundKind.write,
      OutboundKind.write,
      OutboundKind.writeWithImmediate,
      OutboundKind.readRequest,
      OutboundKind.atomic,
    ]);
    const expectation = this.#make(kind);
    this.expectations.push(expectation);
    if (expectation.arrival !== undefined) this.peer.arrivalsDue.push(expectation.arrival);
    this.side.user.work.push(expectation.work);
  }

  #make(kind: OutboundKind): Expectation {
    const id = this.expectations.length;
    const prng = this.#prng;
    const fenced = prng.oneIn(4);
    if (kind === OutboundKind.readRequest) return this.#makeRead(id, fenced);
    if (kind === OutboundKind.atomic) return this.#makeAtomic(id, fenced);
    const payload = new Uint8Array(prng.length(4000));
    prng.fill(payload);
    const immediateLo = prng.next();
    const arrivalIndex = this.peer.arrivalsDue.length;
    if (kind === OutboundKind.send || kind === OutboundKind.sendWithImmediate) {
      const immediate = kind === OutboundKind.send ? undefined : immediateLo;
      const work = { id, message: { kind, immediateLo }, payload, fenced };
      return { work, arrival: { bytes: payload, immediate }, arrivalIndex };
    }
    const at = this.#writesAt;
    this.#writesAt += payload.length;
    must(this.#writesAt <= MEMORY_BYTES, 'model', 'the memory for Writes is used up');
    const message = { kind, immediateLo, remoteStag: REMOTE_KEY, ...addressAt(at) };
    const work = { id, message, payload, fenced };
    if (kind === OutboundKind.write) return { work, at };
    const arrival = { bytes: new Uint8Array(0), immediate: immediateLo };
    return { work, at, arrival, arrivalIndex };
  }

  #makeRead(id: number, fenced: boolean): Expectation {
    const length = this.#prng.length(6000);
    const at = READABLE_AT + this.#prng.below(READABLE_BYTES - length);
    const sink = new Uint8Array(length);
    const message = { kind: OutboundKind.readRequest, remoteStag: REMOTE_KEY, ...addressAt(at) };
    const read = this.peer.side.user.memory.slice(at, at + length);
    return { work: { id, message, sink, fenced }, read };
  }

  #makeAtomic(id: number, fenced: boolean): Expectation {
    const which = this.#prng.below(COUNTERS);
    const original = this.#counters[which] ?? 0;
    const add = this.#prng.oneIn(2);
    const operand = 1 + this.#prng.below(1000);
    // Some comparisons fail.
    const compare = this.#prng.oneIn(3) ? original + 1 : original;
    if (add) this.#counters[which] = original + operand;
    else if (compare === original) this.#counters[which] = operand;
    const message = {
      kind: OutboundKind.atomic,
      atomicOperation: add ? 0 : 2,
      atomicOperandLo: operand,
      atomicCompareLo: compare,
      remoteStag: REMOTE_KEY,
      ...addressAt(8 * which),
    };
    return { work: { id, message, fenced }, original };
  }

  /** Completions: in order, each once, and only for what the peer has. */
  #handleDone({ id, original }: Done): void {
    must(id === this.#completed, 'order', `work ${id} completes after ${this.#completed} others`);
    this.#completed += 1;
    const expectation = this.expectations[id];
    if (expectation === undefined) return;
    const { user } = this.peer.side;
    const { at, work, arrivalIndex } = expectation;
    if (arrivalIndex !== undefined) {
      must(user.arrivals.length > arrivalIndex, 'acknowledged', `work ${id} has not arrived`);
    }
    if (at !== undefined && work.payload !== undefined) {
      const place = user.memory.subarray(at, at + work.payload.length);
      must(Buffer.compare(place, work.payload) === 0, 'placed', `Write ${id} is not in place`);
      place.fill(TAKEN);
    }
    if (expectation.read !== undefined && work.sink !== undefined) {
      must(Buffer.compare(expectation.read, work.sink) === 0, 'read', `Read ${id} has other data`);
    }
    must(original === expectation.original, 'atomic', `atomic ${id} gave ${original}`);
  }

  #handleArrival({ bytes, message }: Arrival): void {
    const due = this.arrivalsDue[this.#arrived];
    this.#arrived += 1;
    must(due !== undefined, 'once', 'a message that was not sent arrived');
    if (due === undefined) return;
    must(Buffer.compare(due.bytes, bytes) === 0, 'payload', `message ${this.#arrived - 1} differs`);
    const immediate = message.hasImmediate ? message.immediateLo : undefined;
    must(immediate === due.immediate, 'payload', 'the immediate data differ');
  }

  /** Posts this many receives, each large enough for any message. */
  postReceives(count: number): void {
    for (let index = 0; index < count; index += 1) this.side.user.receives.push(4096);
  }

  finish(): void {
    must(this.#arrived === this.arrivalsDue.length, 'once', 'a message did not arrive');
    const view = new DataView(this.side.user.memory.buffer);
    for (let index = 0; index < COUNTERS; index += 1) {
      const value = Number(view.getBigUint64(8 * index, true));
      must(value === this.peer.#counters[index], 'atomic', `counter ${index} is ${value}`);
    }
    const written = this.side.user.memory.subarray(WRITES_AT, this.peer.#writesAt);
    must(
      written.every((byte) => byte === TAKEN),
      'once',
      'a Write was carried out again',
    );
  }
}

/** Counts of a run, which reveal an idle one. */
interface TransportRunResult {
  readonly completions: number;
  readonly packets: number;
  readonly timeouts: number;
}

/**
 * Runs one seed. `wholeBytes`: see `PacketWire.pollPacket`. Throws `BrokenRoceRule`, or the model's
 * error.
 */
export function runTransports(seed: number, wholeBytes = 0): TransportRunResult {
  const prng = new Prng(seed);
  const windowPackets = prng.choose([1, 2, 5, 16, 64]);
  const makeProgram = (): Program => new Program(prng, windowPackets, wholeBytes);
  const programs = [makeProgram(), makeProgram()] as const;
  const [a, b] = programs;
  a.meet(b);
  b.meet(a);
  const [psnA, psnB] = [firstPsn(prng), firstPsn(prng)];
  const maxRdAtomic = prng.choose([1, 2, 4, 8]);
  const common = {
    pathMtu: prng.between(1, 4),
    timeout: 12,
    retryCnt: RETRIES,
    rnrRetry: 7,
    maxRdAtomic,
    maxDestRdAtomic: maxRdAtomic,
    minRnrTimer: prng.between(1, 12),
  };
  connect(a, pathOf({ ...common, sqPsn: psnA, rqPsn: psnB }), maxRdAtomic);
  connect(b, pathOf({ ...common, sqPsn: psnB, rqPsn: psnA }), maxRdAtomic);
  const manners = {
    lost: prng.choose([0, 12, 30]),
    repeated: prng.choose([0, 4, 20]),
    damaged: prng.choose([0, 50]),
    delay: prng.choose([1, 10, 200]),
  };
  const ways = [new LossyNetwork(prng, manners), new LossyNetwork(prng, manners)] as const;
  return new Run(prng, programs, ways).run(prng.between(5, 30));
}

/** A first PSN: often one that soon wraps at 2^24. */
function firstPsn(prng: Prng): number {
  return prng.oneIn(2) ? 0xff_ffff - prng.below(40) : prng.below(2 ** 24);
}

function connect(program: Program, path: ReturnType<typeof pathOf>, ord: number): void {
  program.side.user.ord = ord;
  program.side.wire.modified(path, QPState.RTR, 0);
  program.side.wire.modified(path, QPState.RTS, 0);
}

/** A run in progress. */
class Run {
  #now = 0;
  #packets = 0;
  #timeouts = 0;
  readonly #prng: Prng;
  readonly #programs: readonly [Program, Program];
  readonly #ways: readonly [LossyNetwork, LossyNetwork];

  constructor(
    prng: Prng,
    programs: readonly [Program, Program],
    ways: readonly [LossyNetwork, LossyNetwork],
  ) {
    this.#prng = prng;
    this.#programs = programs;
    this.#ways = ways;
    // Payload is sometimes not available at once.
    for (const { side } of programs) side.user.ready = () => !prng.oneIn(20);
  }

  run(messages: number): TransportRunResult {
    let left = 2 * messages;
    for (let step = 0; left > 0 || !this.#programs.every(({ idle }) => idle); step += 1) {
      must(step < STEPS_MAX && this.#now < MICROS_MAX, 'progress', 'the two are stuck');
      if (left > 0 && this.#prng.oneIn(3)) {
        this.#prng.choose(this.#programs).post();
        left -= 1;
      }
      this.#step();
    }
    this.#linger();
    for (const program of this.#programs) program.finish();
    const completions = this.#programs.reduce((sum, { side }) => sum + side.user.done.length, 0);
    return { completions, packets: this.#packets, timeouts: this.#timeouts };
  }

  /** Late copies of packets still arrive. */
  #linger(): void {
    for (let step = 0; step < 100; step += 1) this.#step();
  }

  #step(): void {
    this.#programs.forEach((program, index) => {
      const { side } = program;
      const { user } = side;
      if (user.receives.length < 3 && this.#prng.oneIn(4))
        program.postReceives(this.#prng.below(4));
      side.wire.pump(this.#now);
      // The host may be slow, and poll less than there is.
      for (let budget = this.#prng.below(20); budget > 0; budget -= 1) {
        const bytes = side.poll(this.#now);
        if (bytes === undefined) break;
        this.#packets += 1;
        this.#ways[index]?.send(bytes, this.#now);
      }
      must(side.failure === undefined, 'fails', `failed: ${side.failure?.failure.text}`);
      must(user.mostOpen <= OPEN_MAX, 'memory', `${user.mostOpen} messages are open`);
    });
    this.#advance();
    this.#ways.forEach((way, index) => {
      const receiver = this.#programs[1 - index];
      for (const bytes of way.arrive(this.#now)) receiver?.side.receive(bytes, this.#now);
    });
    for (const { side } of this.#programs) {
      side.wire.assertInvariants?.();
      if (side.wire.nextDeadline() > this.#now) continue;
      this.#timeouts += 1;
      side.deadline(this.#now);
      must(side.wire.nextDeadline() > this.#now, 'progress', 'a deadline stays due');
    }
  }

  /** Advances to the next event, or a little: programs continue whatever the network does. */
  #advance(): void {
    const deadlines = this.#programs.map(({ side }) => side.wire.nextDeadline());
    const next = Math.min(...deadlines, ...this.#ways.map((way) => way.next));
    const soon = this.#now + 1 + this.#prng.below(50);
    this.#now = this.#prng.oneIn(3) && Number.isFinite(next) ? Math.max(next, this.#now) : soon;
  }
}
