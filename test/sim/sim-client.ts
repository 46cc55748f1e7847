/**
 * A simulated program: a client of its host, through the objects and rings that the daemon's IPC
 * uses. It checks every completion and event.
 */
import type {
  CMEventRecord,
  CommandName,
  CommandReply,
  CommandRequest,
  DeviceEvent,
  MappingRef,
} from '#contract/protocol/commands';
import type { AsyncEvent, WC } from '#contract/verbs/completion';
import {
  Access,
  AsyncEventType,
  CMEventType,
  WCFlag,
  WCOpcode,
  WCStatus,
} from '#contract/verbs/enums';
import { type ErrnoCode, isVerbsError } from '#contract/verbs/errors';
import type { CopyLoop } from '#daemon/clients/objects/direct-copies';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { Prng } from '../support/prng.ts';
import { tokenOf } from './flow-token.ts';
import { holdsPattern, PATTERN, PATTERN_BYTES } from './pattern.ts';
import { must } from './rules.ts';
import { SimCq } from './sim-cq.ts';
import type { Setting, SimHost } from './sim-host.ts';
import { SimId } from './sim-id.ts';
import { type Registered, SimMemory, type Tier } from './sim-memory.ts';
import type { Party, ReceiveRecord, SendRecord, SimWindow } from './sim-qp.ts';
import { type Flow, MAX_INLINE, type QpClient, SimQp } from './sim-qp.ts';
import { MAX_SGE, SimSrq } from './sim-srq.ts';

/** Makes generators of programs' numbers. */
const COPIES_SALT = 77_777;
/** A program polls before half of these are in use. */
const CQ_ENTRIES = 512;
const SRQ_ENTRIES = 32;
/** Events by which a host gives a connection up before it is established. */
const FAILED_STARTUPS: ReadonlySet<CMEventType> = new Set([
  CMEventType.addrError,
  CMEventType.routeError,
  CMEventType.connectError,
  CMEventType.unreachable,
  CMEventType.rejected,
]);

/** A connection id of a program. */
export type ClientId = SimId<SimClient>;

/** The world of a program. */
interface ClientWorld extends Setting {
  readonly parties: Set<Party>;
  readonly flows: ReadonlyMap<number, Flow>;
  readonly listeners: Set<ClientId>;
  readonly requests: Set<ClientId>;
  completions: number;
  nextProgram(): number;
  hostileFlow(): Flow;
  /** A connect failed: its queue pair may try again. */
  release(id: ClientId): void;
  /** Adds to the hash of events reported to programs. */
  note(...numbers: readonly number[]): void;
}

/** See the module's comment. */
export class SimClient implements QpClient {
  readonly world: ClientWorld;
  readonly host: SimHost;
  readonly memory: SimMemory;
  readonly context: ClientContext;
  readonly name: string;
  readonly #device: number;
  readonly deviceName: string;
  readonly address: string;
  readonly pd: number;
  readonly #channel: number;
  readonly source: Registered;
  readonly cqs: SimCq[] = [];
  readonly qps = new Set<SimQp>();
  readonly ids = new Map<number, ClientId>();
  readonly windows = new Set<SimWindow>();
  srq: SimSrq | undefined;
  /** Work requests that have not completed, by id. */
  readonly records = new Map<number, SendRecord | ReceiveRecord>();
  /** Events that it has received and not handled. */
  readonly inbox: DeviceEvent[] = [];
  alive = true;
  /** Some of its memory is lost: any of its work may fail. */
  damaged = false;
  /** A fault may have lost completions. */
  overrun: boolean;

  constructor(world: ClientWorld, host: SimHost) {
    this.world = world;
    this.host = host;
    this.overrun = host.overruns;
    const number = world.nextProgram();
    this.name = `${host.name} program ${number}`;
    const { prng, plan, time } = world;
    this.memory = new SimMemory(time, prng);
    if (plan.copiesFromBytes !== undefined) this.#copyDirectly(number);
    this.context = new ClientContext({
      directory: host.directory,
      memory: this.memory,
      sendEvent: (event) => this.#received(event),
      sendCompletion: (_channel, cq) => this.#cqFired(cq),
      label: `program of ${host.name}`,
      pid: 1,
    });
    this.memory.epoch = () => this.context.workEpoch();
    this.memory.afterReply = () => host.host.drain();
    const device = prng.below(host.host.devices.length);
    this.deviceName = host.host.devices[device]?.name ?? '';
    this.address = host.addresses[device] ?? '';
    this.#device = this.call('openDevice', { name: this.deviceName }).context;
    this.pd = this.call('allocPD', { context: this.#device }).pd;
    this.#channel = this.call('createCompChannel', { context: this.#device }).channel;
    const tier = prng.choose(plan.tiers);
    const area = this.memory.allocate(PATTERN_BYTES, tier, PATTERN);
    this.source = this.#registerArea(area, Access.remoteRead);
    for (let count = prng.between(1, 2); count > 0; count -= 1) this.#createCq();
    if (prng.oneIn(3)) this.srq = this.#createSrq();
  }

  #copyDirectly(number: number): void {
    const { host } = this;
    const { time } = this.world;
    const loop: CopyLoop = {
      soon: (run) => time.soon(run),
      after: (delay, run) => time.after(delay, run),
      drain: () => host.host.drain(),
      yieldCore: () => undefined,
      readClock: () => undefined,
    };
    // Not drawn from the run's own generator: other runs stay as they were.
    this.memory.copyDirectly(loop, host.processes, time, new Prng(COPIES_SALT + number), number);
  }

  // Commands

  /** A command that must succeed. */
  call<N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N> {
    const reply = this.attempt(name, request);
    must(typeof reply !== 'string', 'refused', () => `${name}: ${String(reply)}`);
    return reply as CommandReply<N>;
  }

  /** Executes a command. Returns its reply, or the error code of a refusal. */
  attempt<N extends CommandName>(name: N, request: CommandRequest<N>): CommandReply<N> | ErrnoCode {
    try {
      return this.context.execute(name, request);
    } catch (error) {
      if (!isVerbsError(error)) throw error;
      return error.code;
    }
  }

  view(mapping: MappingRef): Uint8Array {
    const view = this.memory.shared.get(mapping.token);
    if (view === undefined) throw new RangeError('no such shared memory');
    return view;
  }

  tier(): Tier {
    return this.world.prng.choose(this.world.plan.tiers);
  }

  register(lengthBytes: number, tier: Tier, access: number): Registered {
    return this.#registerArea(this.memory.allocate(lengthBytes, tier), access);
  }

  deregister({ area, mr }: Registered): void {
    this.attempt('deregMR', { mr });
    this.memory.free(area);
  }

  createQp(): SimQp {
    const { prng, plan } = this.world;
    const cq = prng.choose(this.cqs);
    const srq = prng.oneIn(2) ? this.srq : undefined;
    const made = this.call('createQP', {
      pd: this.pd,
      sendCQ: cq.handle,
      recvCQ: cq.handle,
      srq: srq?.handle,
      capabilities: {
        maxSendWr: plan.queueDepth,
        maxRecvWr: srq === undefined ? plan.queueDepth : 0,
        maxSendSge: MAX_SGE,
        maxRecvSge: MAX_SGE,
        maxInlineData: MAX_INLINE,
      },
      sqSigAll: false,
      initialised: true,
    });
    const qp = new SimQp(this, made, { cq, srq, tier: () => this.tier() });
    this.qps.add(qp);
    srq?.users.add(qp);
    return qp;
  }

  /** Some memory is written later than data arrives. */
  get #lags(): boolean {
    const { tiers, copiesFromBytes } = this.world.plan;
    return tiers.includes('agent') || copiesFromBytes !== undefined;
  }

  /** Ends a life of a queue pair: drops work that was posted and not polled. */
  endLife(qp: SimQp): void {
    const { party } = qp;
    party.unsure = this.#lags;
    this.#forgetEvents((event) => event.type === 'async' && event.event.qpNum === qp.qpn);
    party.abandoned = true;
    for (const record of [...party.sends, ...party.receives]) this.records.delete(record.wrId);
    for (const { giveBack } of party.receives) giveBack();
    party.sends.length = 0;
    party.receives.length = 0;
    for (const window of this.windows) if (window.party === party) window.state = 'over';
  }

  destroyQp(qp: SimQp): void {
    this.poll();
    this.world.log?.(`  ${this.name} destroys ${qp.name}`);
    qp.party.flow?.excuse('queue pair destroyed');
    qp.party.abandoned = true;
    this.call('destroyQP', { qp: qp.handle });
    // Everything that was posted has been flushed, including work that waited for an agent.
    this.poll();
    if (!this.overrun) {
      const left = [...qp.party.sends.filter((each) => each.signalled), ...qp.party.receives];
      const held = this.#lags;
      must(held || left.length === 0, 'once', `${left.length} work requests of a destroyed queue`);
    }
    qp.alive = false;
    this.endLife(qp);
    this.qps.delete(qp);
    qp.srq?.users.delete(qp);
    qp.free();
  }

  destroyId(id: ClientId): void {
    this.world.log?.(`  ${this.name} destroys ${id.name}`);
    if (id.outcome === 'established' && !id.ended) {
      id.party?.flow?.excuse('id destroyed');
      if (id.party !== undefined) id.party.disconnectAskedAt ??= this.world.time.now;
    } else if (!id.ended) id.flow?.excuse('id destroyed');
    this.call('cmDestroyId', { id: id.handle });
    this.ids.delete(id.handle);
    this.world.requests.delete(id);
    this.#forgetEvents((each) => {
      if (each.type !== 'cm') return false;
      return each.event.id === id.handle || each.event.listenId === id.handle;
    });
    if (id.kind === 'listener') this.world.listeners.delete(id);
  }

  /** Ends the program without closing anything first. */
  kill(): void {
    if (!this.alive) return;
    this.world.log?.(`  ${this.name} is killed`);
    this.poll();
    for (const { party } of this.qps) {
      party.flow?.excuse('program killed');
      party.abandoned = true;
      party.unsure = this.#lags;
    }
    for (const id of this.ids.values()) {
      id.flow?.excuse('program killed');
      this.world.requests.delete(id);
      this.world.listeners.delete(id);
    }
    this.memory.die();
    this.alive = false;
    this.context.close();
    this.records.clear();
    this.inbox.length = 0;
    must(this.memory.shared.size === 0, 'left', 'shared memory of a killed program');
    must(this.memory.opened === 0, 'left', 'memory of a killed program');
  }

  // Events

  #received(event: DeviceEvent): void {
    must(this.alive, 'events', 'an event for a program that is gone');
    // The peer may see the failure before this program handles the event.
    if (event.type === 'cm') {
      this.#excuseStartup(event.event);
      this.#noteResolved(event.event);
    }
    this.inbox.push(event);
  }

  #excuseStartup({ type, id, text }: CMEventRecord): void {
    if (FAILED_STARTUPS.has(type)) this.ids.get(id)?.flow?.excuse(`startup: ${text}`);
  }

  /** Emulated devices resolve within the command; this is the command's outcome. */
  #noteResolved({ type, id, state }: CMEventRecord): void {
    const resolved = type === CMEventType.addrResolved ? this.ids.get(id) : undefined;
    if (resolved !== undefined) resolved.device = state.device;
  }

  #cqFired(handle: number): void {
    must(this.alive, 'events', 'a completion event for a program that is gone');
    const cq = this.cqs.find((each) => each.handle === handle);
    must(cq !== undefined, 'events', 'a completion event of a queue that is gone');
    cq.fire();
  }

  #forgetEvents(which: (event: DeviceEvent) => boolean): void {
    for (let at = this.inbox.length - 1; at >= 0; at -= 1) {
      const event = this.inbox[at];
      if (event !== undefined && which(event)) this.inbox.splice(at, 1);
    }
  }

  /** Handles the oldest event. */
  handleEvent(): void {
    const event = this.inbox.shift();
    if (event === undefined) return;
    if (event.type === 'failure') {
      this.world.log?.(`  ${this.name}: QP ${event.failure.qpNum}: ${event.failure.sentence}`);
      return;
    }
    this.world.note(event.type === 'cm' ? event.event.type : 100 + event.event.type);
    this.world.log?.(`  ${this.name}: ${describe(event)}`);
    if (event.type === 'cm') this.#handleCm(event.event);
    else this.#handleAsync(event.event);
  }

  #handleCm(event: CMEventRecord): void {
    if (event.type === CMEventType.connectRequest) {
      this.#handleRequest(event);
      return;
    }
    const id = this.ids.get(event.id);
    must(id !== undefined, 'events', () => `event ${event.type} for an id that is destroyed`);
    switch (event.type) {
      case CMEventType.addrResolved:
      case CMEventType.routeResolved:
        return;
      case CMEventType.established:
        this.#handleEstablished(id, event);
        return;
      case CMEventType.disconnected:
        this.#handleDisconnected(id, event);
        return;
      default:
        must(id.outcome === undefined, 'outcome', () => `${event.type} after ${id.outcome}`);
        id.outcome = 'failed';
        // The flow was unknown if the request was still in the inbox when the host gave up.
        this.#excuseStartup(event);
        if (id.kind === 'initiator') this.world.release(id);
    }
  }

  #handleRequest(event: CMEventRecord): void {
    const listener = this.ids.get(event.listenId ?? -1);
    must(listener?.kind === 'listener', 'events', 'a connect request without its listener');
    must(!this.ids.has(event.id), 'events', 'a connect request with an id that is in use');
    const id = new SimId(this, event.id, 'responder');
    const flow = this.world.flows.get(tokenOf(event.privateData));
    if (flow !== undefined) {
      const same = Buffer.compare(flow.request, event.privateData) === 0;
      must(same, 'private', 'those of a Request');
    }
    id.flow = flow ?? this.world.hostileFlow();
    this.ids.set(event.id, id);
    this.world.requests.add(id);
  }

  #handleEstablished(id: ClientId, event: CMEventRecord): void {
    must(id.outcome === undefined, 'outcome', () => `established after ${id.outcome}`);
    const { flow, party } = id;
    must(
      party !== undefined && flow !== undefined,
      'outcome',
      'established without a connect or accept',
    );
    id.outcome = 'established';
    party.established = true;
    if (id.kind !== 'initiator' || flow.reply === undefined) return;
    const same = Buffer.compare(flow.reply, event.privateData) === 0;
    must(same, 'private', 'those of a Reply');
  }

  #handleDisconnected(id: ClientId, event: CMEventRecord): void {
    must(id.outcome === 'established', 'outcome', 'disconnected but never established');
    must(!id.ended, 'outcome', 'disconnected twice');
    id.ended = true;
    const { party } = id;
    if (party === undefined) return;
    const graceful = event.text === 'disconnected' && !party.abandoned;
    party.ended = graceful ? 'graceful' : 'failed';
    party.endedWhy = event.text;
    const { flow } = party;
    excuseMarkers(flow, event.text);
    const excused = graceful || (flow?.excuses.size ?? 0) > 0;
    must(excused, 'quiet', () => `a healthy connection ended: ${event.text}`);
  }

  #handleAsync(event: AsyncEvent): void {
    const { type, qpNum } = event;
    if (type === AsyncEventType.cqErr) {
      must(this.overrun, 'quiet', event.text);
      return;
    }
    if (qpNum === undefined) return;
    const qp = [...this.qps].find((each) => each.qpn === qpNum);
    must(qp !== undefined, 'events', () => `event ${type} of a queue pair that is destroyed`);
    const fatal =
      type === AsyncEventType.qpFatal ||
      type === AsyncEventType.qpReqErr ||
      type === AsyncEventType.qpAccessErr;
    if (!fatal) return;
    qp.party.fatal = event.text;
    excuseMarkers(qp.party.flow, event.text);
    const { flow, abandoned } = qp.party;
    const excused = flow === undefined || flow.excuses.size > 0 || abandoned;
    must(excused, 'quiet', () => `a healthy queue pair failed: ${event.text}`);
  }

  // Completions

  /** Takes up to `most` completions of each queue. */
  poll(most = Number.POSITIVE_INFINITY): number {
    let taken = 0;
    for (const cq of this.cqs) {
      for (let count = 0; count < most; count += 1) {
        const wc = cq.take();
        if (wc === undefined) break;
        this.#complete(wc);
        taken += 1;
      }
    }
    return taken;
  }

  #complete(wc: WC): void {
    const wrId = Number(wc.wrId);
    this.world.note(wrId, wc.status, wc.byteLen, wc.qpNum);
    this.world.completions += 1;
    const record = this.records.get(wrId);
    this.world.log?.(`  ${this.name}: QP ${wc.qpNum} completes ${wrId}, status ${wc.status}`);
    must(record !== undefined, 'once', () => `a completion of ${wrId}, which is not posted`);
    if (record.queue === 'send') this.#completeSend(record, wc);
    else this.#completeReceive(record, wc);
  }

  #completeSend(record: SendRecord, wc: WC): void {
    const { party } = record;
    const success = wc.status === WCStatus.success;
    for (;;) {
      const oldest = party.sends.shift();
      must(oldest !== undefined, 'once', 'a completion without a work request');
      this.records.delete(oldest.wrId);
      if (oldest === record) break;
      must(this.overrun || !oldest.signalled, 'once', () => `${oldest.what} was skipped`);
      // With an agent, work that waits for memory may fail after unsignalled work before it.
      const waits = this.#lags;
      must(this.overrun || waits || !party.sendFailed, 'once', 'a failed queue skipped one');
      if (success) party.succeed(oldest);
    }
    if (success) {
      must(record.signalled, 'once', () => `${record.what} asked for no completion`);
      must(!party.sendFailed, 'order', 'a success after a failure');
      party.succeed(record);
    } else {
      party.sendFailed = true;
      this.#checkCause(party, wc, record.what);
    }
  }

  #completeReceive(record: ReceiveRecord, wc: WC): void {
    this.records.delete(record.wrId);
    const qp = [...this.qps].find((each) => each.qpn === wc.qpNum);
    const party = record.party ?? qp?.party;
    must(party !== undefined, 'events', 'a receive of a queue pair that is destroyed');
    if (record.party !== undefined) {
      for (;;) {
        const oldest = party.receives.shift();
        if (oldest === record) break;
        must(this.overrun && oldest !== undefined, 'once', 'receives complete in order');
        this.records.delete(oldest.wrId);
      }
    }
    if (wc.status === WCStatus.success) this.#checkMessage(party, record, wc);
    else this.#checkCause(party, wc, 'a receive');
    record.giveBack();
  }

  #checkMessage(party: Party, record: ReceiveRecord, wc: WC): void {
    const { peer } = party;
    if (peer === undefined) {
      must(party.flow?.hostile === true, 'order', 'a message without a peer');
      return;
    }
    const message = peer.messages[party.delivered];
    party.delivered += 1;
    must(message !== undefined, 'order', 'a message that was never sent');
    if (!this.overrun) {
      must(!message.late, 'stopped', 'received a message that was posted after the disconnect');
    }
    if (this.overrun) return;
    must(wc.byteLen === message.lengthBytes, 'payload', () => {
      return `${message.lengthBytes} bytes arrived as ${wc.byteLen}`;
    });
    const immediate = (wc.wcFlags & WCFlag.withImm) !== 0 ? wc.immData : undefined;
    must(immediate === message.immediate, 'payload', 'Immediate Data');
    must((wc.opcode === WCOpcode.recvImmediate) === (immediate !== undefined), 'payload', 'opcode');
    const invalidated = (wc.wcFlags & WCFlag.withInv) !== 0 ? wc.invalidatedRkey : undefined;
    must(invalidated === message.invalidates, 'payload', 'the STag that was invalidated');
    if (immediate === undefined) {
      const { area, at } = record;
      const whole = holdsPattern(area.bytes, at, message.offset, message.lengthBytes);
      must(whole, area.lost ? 'placed' : 'payload', () => {
        return `${message.lengthBytes} bytes of a message${area.lost ? ' to lost memory' : ''}`;
      });
    }
    party.checkPlaced(message.writesBefore);
  }

  #checkCause(party: Party, wc: WC, what: string): void {
    const { flow } = party;
    if (wc.status !== WCStatus.wrFlushErr) party.failed = true;
    const known =
      party.abandoned ||
      flow === undefined ||
      flow.excuses.size > 0 ||
      (wc.status === WCStatus.wrFlushErr && flow.ending);
    must(known, 'quiet', () => `${what} failed with status ${wc.status}`);
  }

  // Steps

  #registerArea(area: Registered['area'], access: number): Registered {
    const { mr, lkey, rkey } = this.call('regMR', {
      pd: this.pd,
      source: { kind: 'process', address: BigInt(area.address) },
      lengthBytes: area.bytes.length,
      address: undefined,
      iova: undefined,
      access,
      key: undefined,
    });
    return { area, mr, lkey, rkey };
  }

  #createCq(): void {
    const made = this.call('createCQ', {
      context: this.#device,
      cqe: CQ_ENTRIES,
      channel: this.#channel,
    });
    this.cqs.push(new SimCq(made, this.view(made.ring)));
  }

  #createSrq(): SimSrq {
    const { plan } = this.world;
    const request = { pd: this.pd, maxWr: SRQ_ENTRIES, maxSge: MAX_SGE, srqLimit: 2 };
    const made = this.call('createSRQ', request);
    const inbox = this.register(plan.messageBytes * made.count, this.tier(), Access.localWrite);
    return new SimSrq(made, this.view(made.ring), inbox);
  }
}

/** The program of a queue pair. */
export function programOf({ client }: SimQp): SimClient {
  if (!(client instanceof SimClient)) throw new TypeError('a queue pair without a program');
  return client;
}

/** A peer that refuses markers closes before it sends anything, and the event says so. */
function excuseMarkers(flow: Flow | undefined, text: string): void {
  if (text.includes('siw-refuses-markers')) flow?.excuse('no FPDU came before the end');
}

function describe(event: Exclude<DeviceEvent, { type: 'failure' }>): string {
  const { type, text } = event.event;
  return event.type === 'cm'
    ? `id ${event.event.id} event ${type}: ${text}`
    : `QP ${event.event.qpNum ?? '-'} asynchronous event ${type}: ${text}`;
}
