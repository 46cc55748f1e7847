/**
 * A queue pair of a simulated program, and the objects that refer to it: the model of each of its
 * lives (a party), the connection between two of them (a flow), and memory windows.
 */
import type { CommandReply, MappingRef } from '#contract/protocol/commands';
import { Access, QPState } from '#contract/verbs/enums';
import type { RecvWR, SendFields } from '#contract/verbs/work-request';
import type { ClientContext } from '#daemon/ipc/verbs/client-context';
import { ReceiveRing } from '#verbs-api/client/receive-ring';
import { SendRing } from '#verbs-api/client/send-ring';
import { holdsPattern } from './pattern.ts';
import { must } from './rules.ts';
import type { SimCq } from './sim-cq.ts';
import type { Setting, SimHost } from './sim-host.ts';
import type { Area, Registered, Tier } from './sim-memory.ts';
import { MAX_SGE, type SimSrq } from './sim-srq.ts';
import { type Message, Target, type WriteRecord } from './target.ts';

const COUNTER_BYTES = 8;
export const MAX_INLINE = 64;

/** The program that a queue pair belongs to. */
export interface QpClient {
  readonly name: string;
  readonly alive: boolean;
  readonly damaged: boolean;
  readonly overrun: boolean;
  readonly host: SimHost;
  readonly deviceName: string;
  readonly context: ClientContext;
  readonly source: Registered;
  readonly records: Map<number, SendRecord | ReceiveRecord>;
  readonly windows: Set<SimWindow>;
  readonly world: Setting & { readonly parties: Set<Party> };
  view(mapping: MappingRef): Uint8Array;
  register(lengthBytes: number, tier: Tier, access: number): Registered;
  deregister(registered: Registered): void;
}

/** A queue pair: its rings, and the model of its present life. */
export class SimQp {
  readonly client: QpClient;
  readonly handle: number;
  readonly qpn: number;
  readonly cq: SimCq;
  readonly srq: SimSrq | undefined;
  readonly depth: number;
  readonly #send: SendRing;
  readonly #receive: ReceiveRing | undefined;
  /** Sinks of reads and atomics: one stripe for each that may be outstanding. */
  readonly sink: Registered;
  readonly inbox: Registered | undefined;
  readonly freeSlots: number[] = [];
  party: Party;
  #registered: Registered[] = [];
  alive = true;

  constructor(
    client: QpClient,
    made: CommandReply<'createQP'>,
    parts: { readonly cq: SimCq; readonly srq: SimSrq | undefined; readonly tier: () => Tier },
  ) {
    this.client = client;
    this.handle = made.qp;
    this.qpn = made.qpNum;
    this.cq = parts.cq;
    this.srq = parts.srq;
    const ring = client.view(made.ring);
    this.depth = made.sqCount;
    this.#send = new SendRing(ring, {
      count: made.sqCount,
      maxSge: MAX_SGE,
      maxInline: MAX_INLINE,
      sqSigAll: false,
    });
    const { plan } = client.world;
    this.sink = client.register(plan.messageBytes * this.depth, parts.tier(), Access.localWrite);
    if (parts.srq === undefined) {
      this.#receive = new ReceiveRing(ring, made.rqOffset, made.rqCount, MAX_SGE);
      const bytes = plan.messageBytes * made.rqCount;
      this.inbox = client.register(bytes, parts.tier(), Access.localWrite);
      for (let slot = 0; slot < made.rqCount; slot += 1) this.freeSlots.push(slot);
    }
    this.party = this.begin(parts.tier);
  }

  /** A window that was bound in this life is open to the peer. */
  get hasOpenWindow(): boolean {
    return this.#windows(({ party, state }) => party === this.party && state === 'open');
  }

  /** A window that was bound in an earlier life has not been misused yet. */
  get hadWindow(): boolean {
    return this.#windows(({ party, misused }) => party !== this.party && !misused);
  }

  #windows(wanted: (window: SimWindow) => boolean): boolean {
    for (const window of this.client.windows) {
      if (window.party.qp === this && wanted(window)) return true;
    }
    return false;
  }

  /** Begins a new life, with new memory and a new model. */
  begin(tier: () => Tier): Party {
    const { client } = this;
    const all =
      Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.mwBind | Access.none;
    const target = client.register(client.world.plan.targetBytes, tier(), all);
    const mapped = client.world.prng.oneIn(2) && client.world.plan.copiesFromBytes === undefined;
    const counterTier = mapped ? 'local' : 'process_vm';
    const counter = client.register(
      COUNTER_BYTES,
      counterTier,
      Access.localWrite | Access.remoteWrite | Access.remoteRead | Access.remoteAtomic,
    );
    this.#registered.push(target, counter);
    this.party = new Party(
      this,
      new Target(target.area, target.rkey),
      new Target(counter.area, counter.rkey),
    );
    client.world.parties.add(this.party);
    return this.party;
  }

  get name(): string {
    return `QP ${this.qpn}`;
  }

  /** Its state in the device. */
  get state(): QPState {
    return this.client.host.queuePair(this.client.deviceName, this.qpn)?.state ?? QPState.ERR;
  }

  post(wr: SendFields): boolean {
    return this.#send.post(wr) === undefined;
  }

  ring(): void {
    if (this.#send.doorbellDue()) this.client.context.doorbell(this.handle);
  }

  postReceive(wr: RecvWR): boolean {
    return this.#receive?.post(wr) === undefined;
  }

  /** Deregisters its memory. */
  free(): void {
    const own = [this.sink, ...this.#registered];
    if (this.inbox !== undefined) own.push(this.inbox);
    for (const each of own) this.client.deregister(each);
    this.#registered = [];
  }
}

/** A posted send. */
export interface SendRecord {
  readonly queue: 'send';
  readonly wrId: number;
  readonly party: Party;
  readonly signalled: boolean;
  readonly what: string;
  /** Posted after a disconnect. */
  readonly late: boolean;
  /** Number of Send-type messages that the party posted up to and including this one. */
  readonly messages: number;
  readonly write: WriteRecord | undefined;
  /** Checks the effects of a success once it is reported. */
  readonly check: (() => void) | undefined;
}

/** A posted receive. */
export interface ReceiveRecord {
  readonly queue: 'receive';
  readonly wrId: number;
  /** Owner of the receive queue; undefined for a shared receive queue. */
  readonly party: Party | undefined;
  readonly area: Area;
  readonly at: number;
  readonly lengthBytes: number;
  readonly giveBack: () => void;
}

/** One connection between two programs, from connect on. */
export class Flow {
  /** Identifies the flow in the Private Data of its Request. */
  readonly token: number;
  /** Undefined when a hostile peer connects. */
  initiator: Party | undefined;
  responder: Party | undefined;
  /** Private Data of the Request, and of the Reply. */
  readonly request: Uint8Array;
  reply: Uint8Array | undefined;
  /** The other end is a hostile peer. */
  readonly hostile: boolean;
  /** Reasons why this flow may fail. */
  readonly excuses = new Set<string>();

  constructor(token: number, initiator: Party | undefined, request: Uint8Array, hostile: boolean) {
    this.token = token;
    this.initiator = initiator;
    this.request = request;
    this.hostile = hostile;
    if (hostile) this.excuses.add('hostile peer');
  }

  get parties(): readonly Party[] {
    return [this.initiator, this.responder].filter((party) => party !== undefined);
  }

  peerOf(party: Party): Party | undefined {
    return party === this.initiator ? this.responder : this.initiator;
  }

  /**
   * The queue pair of `party` was reset while its connect was in progress: `next` is its new life.
   */
  handOver(party: Party, next: Party): void {
    if (party === this.initiator) this.initiator = next;
    else this.responder = next;
    next.flow = this;
    party.flow = undefined;
  }

  excuse(why: string): void {
    this.excuses.add(why);
  }

  /** One party requested the end: unfinished work may be flushed. */
  get ending(): boolean {
    return this.parties.some(
      ({ disconnectAskedAt, ended }) => disconnectAskedAt !== undefined || ended !== undefined,
    );
  }
}

/** How a party's connection ended, as reported to its consumer. */
type Ending = 'graceful' | 'failed';

/**
 * The model of one life of a queue pair, from RESET to RESET: posted work, received messages, and
 * messages still expected.
 */
export class Party {
  readonly qp: SimQp;
  flow: Flow | undefined;
  /** Sends that have not completed, oldest first. */
  readonly sends: SendRecord[] = [];
  readonly receives: ReceiveRecord[] = [];
  readonly messages: Message[] = [];
  readonly writes: WriteRecord[] = [];
  readonly target: Target;
  /** Eight bytes on which the peer runs atomics. */
  readonly counter: Target;
  /** Value of the counter once every posted atomic is done. */
  counterModel = 0n;
  /** Number of the peer's messages that arrived, and of its Writes found in place. */
  delivered = 0;
  #placed = 0;
  /** Number of own messages that completed with success. */
  succeeded = 0;
  sendFailed = false;
  /** Reads and atomics so far; selects their stripes of the sink. */
  requests = 0;
  established = false;
  ended: Ending | undefined;
  endedWhy = '';
  /** Text of the queue pair's fatal event. */
  fatal: string | undefined;
  disconnectAskedAt: number | undefined;
  /** Its queue holds work posted for a connect that failed. */
  tainted = false;
  /** A work request failed with a status other than flushed. */
  failed = false;
  /** Input may have been flushed with its queue pair. */
  unsure = false;
  /** The consumer destroyed, reset or moved the queue pair. */
  abandoned = false;

  constructor(qp: SimQp, target: Target, counter: Target) {
    this.qp = qp;
    this.target = target;
    this.counter = counter;
  }

  /** The queue pair is still in this life. */
  get current(): boolean {
    return this.qp.alive && this.qp.party === this;
  }

  get peer(): Party | undefined {
    return this.flow?.peerOf(this);
  }

  /** A send succeeded, by its own completion or by a later one. */
  succeed(record: SendRecord): void {
    must(!record.late, 'stopped', () => `${record.what} was posted after the disconnect`);
    this.succeeded = Math.max(this.succeeded, record.messages);
    if (record.write !== undefined) record.write.done = true;
    record.check?.();
  }

  /** Checks that the peer's first `count` Writes are in place. */
  checkPlaced(count: number): void {
    const { peer } = this;
    if (peer === undefined) return;
    for (; this.#placed < count; this.#placed += 1) {
      const write = peer.writes[this.#placed];
      if (write === undefined) return;
      const { area, at, offset, lengthBytes } = write;
      must(
        holdsPattern(area.bytes, at, offset, lengthBytes),
        'placed',
        'a message arrived, and a Write before it is not in place',
      );
    }
  }

  /** Checks that a peer that saw a graceful end has everything that succeeded here. */
  checkArrived(): void {
    const { peer } = this;
    if (peer === undefined || peer.ended !== 'graceful' || peer.unsure) return;
    // It accepted its own connect from before a reset: it has no peer.
    if (peer === this) return;
    // Over SCTP it may succeed towards a peer whose connect fails, and which connects elsewhere.
    if (peer.flow !== this.flow) return;
    // Over SCTP, a silent peer also counts as ended gracefully, and a vanished path is just as
    // silent.
    const { carriers } = this.qp.client.world.plan;
    if (carriers.includes('sctp') && this.flow?.excuses.has('path gone')) return;
    // Injected faults may swallow bytes and still end a connection in a way that looks graceful.
    if (peer.failed || peer.qp.client.host.faulty || this.qp.client.host.faulty) return;
    if (peer.fatal !== undefined || peer.qp.client.overrun || this.qp.client.overrun) return;
    must(peer.delivered >= this.succeeded, 'arrived', () => {
      const [here, there] = [this, peer].map(({ qp }) => `${qp.client.name} ${qp.name}`);
      return `${this.succeeded} succeeded at ${here}, ${peer.delivered} arrived at ${there}`;
    });
    for (const { area, at, offset, lengthBytes, done } of this.writes) {
      // Lost memory cannot be checked.
      if (!done || area.lost) continue;
      must(
        holdsPattern(area.bytes, at, offset, lengthBytes),
        'arrived',
        'a Write that completed with success is not in place',
      );
    }
  }
}

/** A memory window. */
export class SimWindow {
  readonly mw: number;
  readonly region: Registered;
  readonly target: Target;
  /** The life of the queue pair that bound it. */
  readonly party: Party;
  /** `open`: peers may use it. `over`: its stream has ended, or it was invalidated. */
  state: 'binding' | 'open' | 'over' = 'binding';
  /** A peer has used its key after its stream ended. */
  misused = false;

  constructor(mw: number, region: Registered, target: Target, party: Party) {
    this.mw = mw;
    this.region = region;
    this.target = target;
    this.party = party;
  }
}
