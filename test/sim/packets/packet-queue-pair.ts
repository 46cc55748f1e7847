/**
 * A queue pair of a simulated program on RoCE; the model of each of its lives, from RESET to RESET; and a pair
 * of lives that are connected.
 */
import type {
  CommandName,
  CommandReply,
  CommandRequest,
  MappingRef,
} from '#contract/protocol/commands';
import { Access, QPState, QPType } from '#contract/verbs/enums';
import type { ErrnoCode } from '#contract/verbs/errors';
import type { PD } from '#contract/verbs/provider';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import type { ClientContext } from '#daemon/ipc/verbs/client-context';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { SendRing } from '#verbs-api/client/send-ring';
import { must } from '../rules.ts';
import type { SimCq } from '../sim-cq.ts';
import type { Registered } from '../sim-memory.ts';
import { MAX_SGE } from '../sim-srq.ts';
import { LossyPieces } from './lossy-pieces.ts';
import type { PacketHost, PacketSetting } from './packet-host.ts';
import type { PacketSrq } from './packet-srq.ts';
import { Counter, Pieces, type SharedCounter, WORD_BYTES } from './pieces.ts';

export const MAX_INLINE = 64;
/** Concurrent Writes of a peer. */
const TARGET_PIECES = 6;
/** Memory for Writes over UC: each is used once. */
const LOSSY_PIECES = 16;
const LOSSY_PIECE_BYTES = 2048;
/** GRH in front of a datagram. */
export const GRH_BYTES = 40;
/** The longest message over UC, or datagram. */
export const LETTER_BYTES = 1024;
export const ALL_RIGHTS =
  Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic;

/** The program of a queue pair. */
export interface QpProgram {
  readonly world: PacketSetting & { readonly lives: Set<Life> };
  readonly host: PacketHost;
  readonly name: string;
  readonly deviceName: string;
  readonly address: string;
  readonly sgidIndex: number | undefined;
  readonly iwarp: boolean;
  readonly damaged: boolean;
  readonly context: ClientContext;
  readonly pd: number;
  readonly domain: object;
  readonly source: Registered;
  readonly tick: Registered;
  readonly shared: SharedCounter;
  readonly letters: Pieces;
  readonly windows: Set<PacketWindow>;
  readonly records: Map<number, SendRecord | ReceiveRecord>;
  call<N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N>;
  attempt<N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N> | ErrnoCode;
  poll(): void;
  destroyQp(qp: PacketQp): void;
  resetQp(qp: PacketQp): void;
  view(mapping: MappingRef): Uint8Array;
  register(lengthBytes: number, access: number): Registered;
  registerWord(access: number): Registered;
  deregister(registered: Registered): void;
}

/** A memory window. */
export interface PacketWindow {
  readonly mw: number;
  readonly region: Registered;
  readonly target: Pieces;
  readonly rkey: number;
  /** The life of the queue pair that bound it. */
  readonly life: Life;
  /** Peers may use it: bound, and not invalidated since. */
  open: boolean;
}

/** A message to the next receive of the peer. */
export interface Message {
  /** Offset in the pattern; not used for a Write. */
  readonly offset: number;
  readonly lengthBytes: number;
  readonly immediate: bigint | undefined;
  readonly invalidates: number | undefined;
  /** A Write with immediate data: checks its data. */
  readonly checkWrite: (() => void) | undefined;
}

/** A posted send. */
export interface SendRecord {
  readonly queue: 'send';
  readonly wrId: number;
  readonly life: Life;
  readonly signalled: boolean;
  readonly what: string;
  /** Its place among the life's messages; undefined for other work. */
  readonly message: number | undefined;
  /** Checks the effects of a success, and gives back memory. */
  readonly succeed: () => void;
}

/** A posted receive. */
export interface ReceiveRecord {
  readonly queue: 'receive';
  readonly wrId: number;
  /** Undefined for a shared receive queue. */
  readonly life: Life | undefined;
  readonly pieces: Pieces;
  readonly at: number;
}

export class PacketQp {
  readonly program: QpProgram;
  readonly handle: number;
  readonly qpn: number;
  readonly type: QPType;
  readonly cq: SimCq;
  readonly srq: PacketSrq | undefined;
  /** Connected by an id. */
  readonly byId: boolean;
  readonly depth: number;
  readonly receiveDepth: number;
  readonly #send: SendRing;
  readonly #receive: ReceiveRing | undefined;
  life: Life;
  /** The pairs of its earlier lives. */
  readonly earlier: Pair[] = [];
  lives = 0;
  alive = true;

  constructor(
    program: QpProgram,
    made: CommandReply<'createQP'>,
    given: {
      readonly type: QPType;
      readonly cq: SimCq;
      readonly srq: PacketSrq | undefined;
      readonly byId: boolean;
    },
  ) {
    this.program = program;
    this.handle = made.qp;
    this.qpn = made.qpNum;
    this.type = given.type;
    this.cq = given.cq;
    this.srq = given.srq;
    this.byId = given.byId;
    this.depth = made.sqCount;
    this.receiveDepth = given.srq === undefined ? made.rqCount : 0;
    const ring = program.view(made.ring);
    this.#send = new SendRing(ring, {
      count: made.sqCount,
      maxSge: MAX_SGE,
      maxInline: MAX_INLINE,
      sqSigAll: false,
      roce: !program.iwarp,
      datagramsOf: given.type === QPType.ud ? (program.domain as PD) : undefined,
    });
    if (given.srq === undefined) {
      this.#receive = new ReceiveRing(ring, made.rqOffset, made.rqCount, MAX_SGE);
    }
    this.life = this.begin();
  }

  begin(): Life {
    this.lives += 1;
    this.life = new Life(this);
    this.program.world.lives.add(this.life);
    return this.life;
  }

  get name(): string {
    return `QP ${this.qpn}`;
  }

  /** Its state in the device. */
  get state(): QPState {
    const { host, deviceName } = this.program;
    return host.queuePair(deviceName, this.qpn)?.state ?? QPState.ERR;
  }

  post(wr: SendFields): boolean {
    return this.#send.post(wr) === undefined;
  }

  ring(): void {
    if (this.#send.doorbellDue()) this.program.context.doorbell(this.handle);
  }

  postReceive(wr: RecvWR): boolean {
    return this.#receive?.post(wr) === undefined;
  }
}

/**
 * A message whose arrival was reported to the peer: its completion is among the first `written`
 * ones.
 */
interface Promised {
  readonly index: number;
  readonly written: number;
}

export class Life {
  readonly qp: PacketQp;
  pair: Pair | undefined;
  /** Its program may post. */
  up = false;
  /** The peer may access memory through it. */
  rights = true;
  /** The program ended it: it moved the queue pair, destroyed it, or is gone. */
  over = false;
  /** It is gone, and all its completions have been taken. */
  ended = false;
  readonly sends: SendRecord[] = [];
  readonly receives: ReceiveRecord[] = [];
  readonly messages: Message[] = [];
  /** Number of the peer's messages that arrived. */
  delivered = 0;
  sendFailed = false;
  /** The program has stopped its send queue; it drains, and is drained. */
  stopped: 'no' | 'draining' | 'drained' = 'no';
  readonly target: Pieces;
  /** The target of a UC queue pair. */
  readonly lossy: LossyPieces | undefined;
  readonly counter: Counter;
  readonly sink: Pieces;
  readonly inbox: Pieces | undefined;
  readonly #promised: Promised[] = [];

  constructor(qp: PacketQp) {
    this.qp = qp;
    const { program } = qp;
    const { plan } = program.world;
    const rights = Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.mwBind;
    const bytes = plan.messageBytes;
    if (qp.type === QPType.uc) {
      const region = program.register(LOSSY_PIECES * LOSSY_PIECE_BYTES, rights);
      this.lossy = new LossyPieces(region, LOSSY_PIECE_BYTES);
    }
    this.target = this.lossy ?? new Pieces(program.register(TARGET_PIECES * bytes, rights), bytes);
    this.counter = new Counter(program.registerWord(ALL_RIGHTS));
    const sinkBytes = Math.max(bytes, WORD_BYTES);
    this.sink = new Pieces(program.register(qp.depth * sinkBytes, Access.localWrite), sinkBytes);
    if (qp.srq !== undefined) return;
    const slot = qp.type === QPType.rc ? bytes : LETTER_BYTES + GRH_BYTES;
    const inbox = program.register(qp.receiveDepth * slot, Access.localWrite);
    this.inbox = new Pieces(inbox, slot);
  }

  get peer(): Life | undefined {
    return this.pair?.peerOf(this);
  }

  /** The queue pair is still in this life. */
  get current(): boolean {
    return this.qp.alive && this.qp.life === this;
  }

  get healthy(): boolean {
    const { pair, peer } = this;
    if (pair === undefined || peer === undefined || pair.excuses.size > 0) return false;
    return this.up && peer.up && !this.over && !peer.over && this.current && peer.current;
  }

  get registered(): readonly Registered[] {
    const { target, counter, sink, inbox } = this;
    const all = [target.registered, counter.registered, sink.registered];
    return inbox === undefined ? all : [...all, inbox.registered];
  }

  /** The peer's work request for its message `index` succeeded: the message has arrived here. */
  promise(index: number): void {
    const { cq } = this.qp;
    this.#promised.push({ index, written: cq.written });
    this.checkPromises();
  }

  /** Checks promises that the completions taken so far must have fulfilled. */
  checkPromises(): void {
    while (this.#promiseDue()) this.#checkPromise();
  }

  #promiseDue(): boolean {
    const promised = this.#promised[0];
    if (promised === undefined) return false;
    return this.ended || ((this.qp.cq.taken - promised.written) | 0) >= 0;
  }

  #checkPromise(): void {
    const { program, name } = this.qp;
    const promised = this.#promised.shift();
    const unsure = this.ended && program.world.plan.tiers.includes('agent');
    if (promised === undefined || unsure || this.pair?.forged === true) return;
    must(this.delivered > promised.index, 'arrived', () => {
      return `message ${promised.index} is acknowledged, ${this.delivered} arrived at ${program.name} ${name}`;
    });
  }

  /** Checks its memory. */
  check(): void {
    this.target.check();
    this.sink.check();
    this.inbox?.check();
    this.counter.check();
  }
}

export interface Listener {
  readonly listens: boolean;
  /** Who may have several at one port; undefined for one who does not. */
  readonly user?: object;
}

/** Two lives that are connected, or about to be. */
export class Pair {
  readonly token: number;
  initiator: Life;
  responder: Life | undefined;
  /** Private data of the request, and of the reply. */
  readonly request: Uint8Array;
  reply: Uint8Array | undefined;
  /**
   * A queue pair's last peer had not noticed the end when this pair began: it may be rejected as
   * stale.
   */
  stale = false;
  /** Its ends name different addresses: it carries nothing. */
  crossed = false;
  /** How many of its ends know that the other one has ended, too. */
  ends = 0;
  /** Whom its request is for. */
  addressee: Listener | undefined;
  /** How often its request was reported. */
  requests = 0;
  /** Reasons why it may fail. */
  readonly excuses = new Set<string>();
  /** A hostile sender that sees its traffic may forge its data. */
  forged = false;

  constructor(token: number, initiator: Life, request: Uint8Array) {
    this.token = token;
    this.initiator = initiator;
    this.request = request;
  }

  get lives(): readonly Life[] {
    return this.responder === undefined ? [this.initiator] : [this.initiator, this.responder];
  }

  peerOf(life: Life): Life | undefined {
    return life === this.initiator ? this.responder : this.initiator;
  }

  /** Notes that a queue pair is to be connected. */
  use({ earlier }: PacketQp): void {
    if (earlier.some(({ ends }) => ends < 2)) this.stale = true;
  }

  /** The queue pair of its initiator was reset before it was connected: `next` is its new life. */
  handOver(next: Life): void {
    this.initiator.pair = undefined;
    this.initiator = next;
    next.pair = this;
  }

  /** Its request was reported to `listener`. */
  checkAddressee(listener: Listener): void {
    const { addressee } = this;
    // One that is gone may have left its port to another.
    if (addressee === undefined || addressee === listener || !addressee.listens) return;
    const same = listener.user !== undefined && listener.user === addressee.user;
    must(same, 'alone', 'a request for another listener');
  }

  excuse(why: string): void {
    this.excuses.add(why);
  }

  /** Notes that a hostile sender knows its numbers and keys. */
  forge(): void {
    this.excuse('a hostile sender that sees its traffic');
    this.forged = true;
    for (const { target, counter, sink, inbox, qp } of this.lives) {
      for (const memory of [target, counter, sink, inbox, qp.program.shared]) {
        if (memory !== undefined) memory.forged = true;
      }
    }
  }
}
