/**
 * DDP stream sessions over one association whose messages overtake each other, under one seed,
 * against a model. Each SCTP stream has several sessions, one after the other.
 */
import type { Association, AssociationUser } from '#daemon/host/sctp/association';
import { ChunkPool } from '#daemon/iwarp/engine/chunk-pool';
import type { StreamOptions } from '#daemon/iwarp/engine/stream-api';
import { DDP_ADAPTATION } from '#daemon/iwarp/sctp/sctp-layer';
import { hexOf } from '#test/support/hex';
import { Prng } from '#test/support/prng';
import { SessionEnd } from '#test/support/session-end';
import { streamOptions } from '#test/support/streams';
import { VirtualClock, VirtualTime } from '#test/support/virtual-time';
import { MessageNetwork } from './message-network.ts';
import type { MessageTraits } from './sim-association.ts';

const STEPS_MAX = 400_000;
const SOURCE_STAG = 0x111;
const TARGET_STAG = 0x222;
const SINK_STAG = 0x333;
const REGION_BYTES = 32_768;
const RECEIVE_BYTES = 8_192;
const WORK_MAX = 12;
/** For accepts, and without negotiation. */
const DEPTH = 4;

/** The end of a session. */
type Fate = 'closed by a' | 'closed by b' | 'closed by both' | 'rejected' | 'refused' | 'fault';
const FATES: readonly Fate[] = [
  'closed by a',
  'closed by b',
  'closed by both',
  'closed by both',
  'rejected',
  'refused',
  'fault',
];

/** Throws unless it `holds`. */
function must(holds: boolean, text: string): void {
  if (!holds) throw new Error(text);
}

/** Posted work of one end, and its expected results. */
class Model {
  readonly sent: string[] = [];
  readonly target = new Uint8Array(REGION_BYTES);
  reads = 0;
}

/** One session and its expected state. */
interface Session {
  readonly a: SessionEnd;
  b: SessionEnd | undefined;
  readonly fate: Fate;
  readonly privateData: Uint8Array;
  readonly answer: Uint8Array;
  /** Messages that `a` posted towards `b`, and the reverse. */
  readonly fromA: Model;
  readonly fromB: Model;
}

/** Counts of a run, for tests that must not be idle. */
interface SessionsResult {
  readonly sessions: number;
  readonly messages: number;
  readonly heldMost: number;
  readonly fates: ReadonlySet<string>;
}

/** One end of the association: gives each message to the session of its SCTP stream. */
class Demultiplexer implements AssociationUser {
  readonly ends = new Map<number, SessionEnd>();
  readonly all: SessionEnd[] = [];
  ended: string | undefined = undefined;
  /** A message for a stream without a session, or after its last. */
  newcomer: (streamId: number) => SessionEnd | undefined = () => undefined;

  add(end: SessionEnd): void {
    this.ends.set(end.streamId, end);
    this.all.push(end);
  }

  handleMessage(streamId: number, protocol: number, unordered: boolean, bytes: Uint8Array): void {
    must(unordered, 'every message is unordered');
    const current = this.ends.get(streamId);
    const end = current === undefined || current.layer.over ? this.newcomer(streamId) : current;
    must(end !== undefined, `a message arrived on stream ${streamId}, which has no session`);
    end?.handleMessage(protocol, bytes);
  }

  handleWritable(): void {
    for (const end of this.ends.values()) end.settle();
  }

  handleAcknowledged(): void {
    for (const end of this.ends.values()) end.handleAcknowledged();
  }

  handlePathChanged(): void {}
  handlePeerShutdown(): void {}

  handleEnded(end: { readonly kind: string; readonly code: string | undefined }): void {
    this.ended = end.kind;
    for (const one of this.ends.values()) one.handleEnded(end.code);
  }
}

/** Runs one seed; throws an `Error` with the broken rule. */
export function runSessions(seed: number): SessionsResult {
  return new World(seed).run();
}

class World {
  readonly #prng: Prng;
  readonly #time = new VirtualTime();
  readonly #clock: VirtualClock;
  readonly #pool = new ChunkPool({ chunkBytes: 70_000, keptMax: 4 });
  readonly #network: MessageNetwork;
  readonly #traits: MessageTraits;
  readonly #a = new Demultiplexer();
  readonly #b = new Demultiplexer();
  readonly #sessions: Session[] = [];
  #aLink: Association | undefined;
  #bLink: Association | undefined;
  readonly #fates = new Set<string>();

  constructor(seed: number) {
    const prng = new Prng(seed);
    this.#prng = prng;
    this.#clock = new VirtualClock(this.#time, prng);
    this.#traits = {
      delayMin: prng.between(1, 20),
      delayMax: prng.between(20, 2_000),
      bufferBytes: prng.between(4_000, 200_000),
      windowBytes: prng.between(4_000, 200_000),
      messageMaxBytes: prng.between(300, 9_000),
      eventsInLine: prng.oneIn(2),
    };
    this.#network = new MessageNetwork(this.#time, prng, () => this.#traits);
  }

  run(): SessionsResult {
    this.#open();
    const streams = this.#prng.between(1, 3);
    const left = Array.from({ length: streams }, () => this.#prng.between(1, 3));
    for (let step = 0; ; step += 1) {
      must(step < STEPS_MAX, 'the run becomes idle');
      for (let id = 0; id < streams; id += 1) {
        const current = this.#a.ends.get(id);
        if ((left[id] ?? 0) === 0 || (current !== undefined && !current.over)) continue;
        left[id] = (left[id] ?? 0) - 1;
        this.#begin(id);
      }
      if (!this.#time.step()) break;
    }
    must(
      left.every((count) => count === 0),
      'every session got its turn',
    );
    for (const session of this.#sessions) this.#check(session);
    this.#aLink?.shutdown();
    while (this.#time.step());
    must(this.#a.ended === 'shutdown' && this.#b.ended === 'shutdown', 'SHUTDOWN ends both');
    must(this.#pool.inUseCount === 0, 'no chunk is left in use');
    const ends = [...this.#a.all, ...this.#b.all];
    return {
      sessions: this.#sessions.length,
      messages: ends.reduce((sum, end) => sum + end.sentMessages, 0),
      heldMost: Math.max(...ends.map((end) => end.heldMost)),
      fates: this.#fates,
    };
  }

  #open(): void {
    const options = { adaptation: DDP_ADAPTATION, streamCount: 4 };
    this.#network.hold({ address: '10.0.0.2', port: 7174 }, options).listen((association) => {
      association.user = this.#b;
      this.#bLink = association;
    });
    this.#network.hold({ address: '10.0.0.1', port: 0 }, options).open(
      { address: '10.0.0.2', port: 7174 },
      (association) => {
        association.user = this.#a;
        this.#aLink = association;
      },
      () => must(false, 'the association opens'),
    );
    while (this.#time.step());
    this.#b.newcomer = (streamId) => this.#answer(streamId);
  }

  #options(): StreamOptions {
    const prng = this.#prng;
    const rtrKinds = { send: false, write: true, read: prng.oneIn(2) };
    const size = prng.oneIn(3)
      ? ({ kind: 'fixed', mulpduBytes: prng.between(128, 4_000) } as const)
      : ({ kind: prng.oneIn(2) ? 'emss' : 'large' } as const);
    const mpaRevision = prng.oneIn(3) ? 1 : 2;
    // Plain messages negotiate no depths: both ends must have the same.
    const depth = (): number => (mpaRevision === 1 ? DEPTH : prng.between(1, 8));
    return streamOptions({
      mpaRevision,
      peerToPeer: prng.oneIn(2),
      rtrKinds,
      ird: depth(),
      ord: depth(),
      emssBytes: this.#traits.messageMaxBytes,
      fpduSize: size,
      startupTimeoutMicros: 60_000_000,
      closeTimeoutMicros: 60_000_000,
    });
  }

  #end(association: Association | undefined, streamId: number): SessionEnd {
    if (association === undefined) throw new Error('the association is open');
    const options = this.#options();
    return new SessionEnd({ clock: this.#clock, pool: this.#pool, association, streamId, options });
  }

  #begin(streamId: number): void {
    const prng = this.#prng;
    const a = this.#end(this.#aLink, streamId);
    const session: Session = {
      a,
      b: undefined,
      fate: prng.choose(FATES),
      privateData: noise(prng, prng.length(508)),
      answer: noise(prng, prng.length(508)),
      fromA: new Model(),
      fromB: new Model(),
    };
    this.#fates.add(session.fate);
    this.#sessions.push(session);
    this.#a.add(a);
    a.onEvent = (event) => {
      if (event.type === 'established') this.#work(a, session.fromA, session);
      if (event.type === 'rejected') a.stream.disconnect(this.#time.now);
    };
    prepare(a);
    a.stream.connect(session.privateData, a.user, this.#time.now);
    a.settle();
  }

  /** The passive end of the session whose Initiate arrives next. */
  #answer(streamId: number): SessionEnd | undefined {
    const session = this.#sessions.find((one) => one.a.streamId === streamId && !one.b);
    if (session === undefined) return undefined;
    const b = this.#end(this.#bLink, streamId);
    session.b = b;
    this.#b.add(b);
    prepare(b);
    b.onEvent = (event) => {
      if (event.type === 'request') {
        must(hexOf(event.privateData) === hexOf(session.privateData), 'private data arrives');
        this.#time.after(this.#prng.below(3_000), () => this.#decide(session, b));
      }
      if (event.type === 'established') this.#work(b, session.fromB, session);
    };
    b.stream.listen(this.#time.now);
    return b;
  }

  #decide(session: Session, b: SessionEnd): void {
    const { now } = this.#time;
    if (session.fate === 'rejected') b.stream.reject(session.answer, now);
    else if (session.fate === 'refused') b.stream.refuse(now);
    else b.stream.accept(session.answer, b.user, { ird: DEPTH, ord: DEPTH }, now);
    if (session.fate === 'rejected' || session.fate === 'refused') b.stream.disconnect(now);
    b.settle();
  }

  /** Posts work now and later, and then ends the session as its fate says. */
  #work(end: SessionEnd, model: Model, session: Session): void {
    const prng = this.#prng;
    const count = prng.between(0, WORK_MAX);
    // A drain waits for the answers to its own Reads, but the peer's end cuts those of the other side.
    const reads = session.fate === (end === session.a ? 'closed by a' : 'closed by b');
    for (let n = 0; n < count; n += 1) {
      this.#time.after(prng.below(4_000), () => {
        if (end.closed || end.types.includes('terminated')) return;
        this.#post(end, model, reads);
        end.settle();
      });
    }
    const isA = end === session.a;
    this.#time.after(prng.between(4_000, 9_000), () => {
      const { now } = this.#time;
      const mine =
        session.fate === 'closed by both' || session.fate === (isA ? 'closed by a' : 'closed by b');
      if (session.fate === 'fault' && isA) end.user.write(noise(prng, 10), 0xdead, 0);
      else if (mine) end.stream.disconnect(now);
      end.settle();
    });
    end.onEvent = (event) => {
      // The other end hangs up in its own time.
      if (event.type === 'peer-closed') end.stream.disconnect(this.#time.now);
    };
  }

  #post(end: SessionEnd, model: Model, mayRead: boolean): void {
    const prng = this.#prng;
    const kind = prng.below(mayRead ? 3 : 2);
    if (kind === 0) {
      const payload = noise(prng, prng.length(RECEIVE_BYTES));
      model.sent.push(hexOf(payload));
      end.user.send(payload);
    } else if (kind === 1) {
      const at = prng.below(REGION_BYTES / 2);
      const payload = noise(prng, prng.between(1, REGION_BYTES / 2));
      model.target.set(payload, at);
      end.user.write(payload, TARGET_STAG, at);
    } else {
      const length = prng.between(1, REGION_BYTES);
      model.reads += 1;
      end.user.read(length, [SOURCE_STAG, 0], [SINK_STAG, 0]);
    }
  }

  #check(session: Session): void {
    const { a, b, fate } = session;
    if (b === undefined) throw new Error('every Initiate arrives');
    const where = `${fate}, stream ${a.streamId}`;
    if (fate === 'rejected') {
      const rejected = a.events.find((event) => event.type === 'rejected');
      must(rejected?.type === 'rejected', `${where}: a is notified`);
      if (rejected?.type !== 'rejected') return;
      must(hexOf(rejected.privateData) === hexOf(session.answer), `${where}: the answer arrives`);
      return;
    }
    if (fate === 'refused') {
      must(a.failure?.kind === 'refused', `${where}: a is notified, not ${a.failure?.kind}`);
      return;
    }
    must(a.closed && b.closed, `${where}: both ends close`);
    if (fate === 'fault') {
      must(a.failure?.kind === 'terminated', `${where}: a has ${a.failure?.text}`);
      must(b.failure?.kind === 'protocol', `${where}: b has ${b.failure?.text}`);
    } else {
      must(a.failure === undefined, `${where}: a ends gracefully: ${a.failure?.text}`);
      must(b.failure === undefined, `${where}: b ends gracefully: ${b.failure?.text}`);
    }
    this.#checkHalf(session, session.fromA, a, b);
    if (fate !== 'fault') this.#checkHalf(session, session.fromB, b, a);
  }

  /** Checks that `from`'s messages arrived at `to`, in order. */
  #checkHalf(session: Session, model: Model, from: SessionEnd, to: SessionEnd): void {
    const where = `${session.fate}, stream ${from.streamId}, from ${from === session.a ? 'a' : 'b'}`;
    const got = to.user.delivered.map(({ payload }) => payload);
    // After the peer's end nothing more is framed, but everything framed earlier arrives in order.
    const whole = from.user.jobCount === 0;
    const sent = whole ? model.sent : model.sent.slice(0, got.length);
    must(got.join() === sent.join(), `${where}: the Sends arrive in order, whole and once`);
    must(from.longestMessage <= Math.max(this.#traits.messageMaxBytes - 16, 518), where);
    if (!whole) return;
    const target = to.user.regions.get(TARGET_STAG)?.bytes ?? new Uint8Array(0);
    must(hexOf(target) === hexOf(model.target), `${where}: the Writes are in place, in order`);
    const reads = from.user.log.filter((line) => line === 'read').length;
    must(reads === model.reads, `${where}: ${reads} of ${model.reads} Reads complete`);
    const sink = from.user.regions.get(SINK_STAG)?.bytes ?? new Uint8Array(0);
    const source = to.user.regions.get(SOURCE_STAG)?.bytes ?? new Uint8Array(0);
    for (let at = 0; at < sink.length; at += 1) {
      must(sink[at] === 0 || sink[at] === source[at], `${where}: Reads return the source`);
    }
  }
}

function noise(prng: Prng, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  prng.fill(bytes);
  return bytes;
}

/** Memory and receives of an end. */
function prepare(end: SessionEnd): void {
  const source = end.user.register(SOURCE_STAG, REGION_BYTES);
  for (let at = 0; at < source.length; at += 1) source[at] = (at * 7 + 1) & 0xff;
  end.user.register(TARGET_STAG, REGION_BYTES);
  end.user.register(SINK_STAG, REGION_BYTES);
  end.user.postReceive(RECEIVE_BYTES, 2 * WORK_MAX);
}
