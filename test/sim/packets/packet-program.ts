/**
 * A simulated program on a RoCE device: a client of its host, through the objects and rings that the daemon's
 * IPC uses. It checks every completion and event.
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
  QPState,
  QPType,
  WCFlag,
  WCOpcode,
  WCStatus,
} from '#contract/verbs/enums';
import { type ErrnoCode, isVerbsError } from '#contract/verbs/errors';
import { gidText } from '#daemon/host/host-addresses';
import { ClientContext } from '#daemon/ipc/verbs/client-context';
import { tokenOf } from '../flow-token.ts';
import { holdsPattern, PATTERN, PATTERN_BYTES } from '../pattern.ts';
import { must } from '../rules.ts';
import { SimCq } from '../sim-cq.ts';
import { type Registered, SimMemory, type Tier } from '../sim-memory.ts';
import { MAX_SGE } from '../sim-srq.ts';
import type { PacketHost, PacketSetting } from './packet-host.ts';
import type { PacketPosting } from './packet-posting.ts';
import {
  ALL_RIGHTS,
  LETTER_BYTES,
  type Life,
  MAX_INLINE,
  PacketQp,
  type PacketWindow,
  type Pair,
  type QpProgram,
  type ReceiveRecord,
  type SendRecord,
} from './packet-queue-pair.ts';
import { PacketSrq } from './packet-srq.ts';
import { Pieces, SharedCounter, WORD_BYTES } from './pieces.ts';
import { newId, type ProgramId } from './program-id.ts';

/** A program polls before half of these are in use. */
const CQ_ENTRIES = 512;
const SRQ_ENTRIES = 32;
const LETTERS = 16;
/** In the text of a rejection: the backlog of the listener is full; the queue pair is in use. */
const [FULL, STALE] = ['reason 3)', 'reason 10)'];
/** The text of an end that the peer has confirmed. */
const CONFIRMED = 'disconnected';
/** Attributes of a queue pair before an id connects it. */
const NO_RIGHTS = { accessFlags: 0, pkeyIndex: 0, portNum: 1 } as const;

/** The world of a program. */
interface ProgramWorld extends PacketSetting {
  readonly lives: Set<Life>;
  readonly pairs: ReadonlyMap<number, Pair>;
  readonly listeners: Set<PacketId>;
  readonly requests: Set<PacketId>;
  readonly post: PacketPosting;
  completions: number;
  nextProgram(): number;
  /** Adds to the hash of what was reported to programs. */
  note(...numbers: readonly number[]): void;
}

export type PacketId = ProgramId<PacketProgram>;

export class PacketProgram implements QpProgram {
  readonly world: ProgramWorld;
  readonly host: PacketHost;
  readonly memory: SimMemory;
  readonly context: ClientContext;
  readonly name: string;
  readonly deviceName: string;
  /** It has an iWARP device: ids connect its queue pairs, which execute only Reads and atomics. */
  readonly iwarp: boolean;
  readonly address: string;
  readonly pd: number;
  /** The protection domain as work requests name it. */
  readonly domain: object = {};
  readonly source: Registered;
  /** A word that the program increases; peers read it. */
  readonly tick: Registered;
  readonly shared: SharedCounter;
  /** Source of datagrams. */
  readonly letters: Pieces;
  readonly cqs: SimCq[] = [];
  /** Numbers of the queue pairs of deep queues, which have no life. */
  readonly deepQpns = new Set<number>();
  readonly qps = new Set<PacketQp>();
  readonly ids = new Map<number, PacketId>();
  readonly windows = new Set<PacketWindow>();
  srq: PacketSrq | undefined;
  /** Work requests that have not completed, by id. */
  readonly records = new Map<number, SendRecord | ReceiveRecord>();
  /** Events that it has received and not handled. */
  readonly inbox: DeviceEvent[] = [];
  alive = true;
  /** Some of its memory is lost: any of its work may fail. */
  damaged = false;
  readonly #gid: string;
  readonly #device: number;
  readonly #channel: number;

  constructor(world: ProgramWorld, host: PacketHost) {
    this.world = world;
    this.host = host;
    this.name = `${host.name} program ${world.nextProgram()}`;
    const { prng, plan, time } = world;
    this.memory = new SimMemory(time, prng);
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
    this.iwarp = host.host.devices[device]?.transport === 'iwarp';
    const roce = plan.open ? prng.choose(host.roceAddresses) : host.roceAddresses[device];
    this.address = (this.iwarp ? host.iwarpAddress : roce) ?? '';
    this.#gid = gidText(this.address);
    this.#device = this.call('openDevice', { name: this.deviceName }).context;
    this.pd = this.call('allocPD', { context: this.#device }).pd;
    this.#channel = this.call('createCompChannel', { context: this.#device }).channel;
    const tier = prng.choose(plan.tiers);
    const area = this.memory.allocate(PATTERN_BYTES, tier, PATTERN);
    this.source = this.#registerArea(area, Access.remoteRead);
    this.tick = this.register(WORD_BYTES, Access.localWrite | Access.remoteRead);
    this.shared = new SharedCounter(this.registerWord(ALL_RIGHTS));
    const letters = this.memory.allocate(LETTERS * LETTER_BYTES, 'local');
    this.letters = new Pieces(this.#registerArea(letters, Access.localWrite), LETTER_BYTES);
    for (let count = prng.between(1, 2); count > 0; count -= 1) this.cqs.push(this.createCq());
    if (prng.oneIn(3)) this.srq = this.#createSrq();
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
      this.world.log?.(`  ${this.name}: ${name} fails: ${error.message}`);
      return error.code;
    }
  }

  view(mapping: MappingRef): Uint8Array {
    const view = this.memory.shared.get(mapping.token);
    if (view === undefined) throw new RangeError('no such shared memory');
    return view;
  }

  /** The index of its address in the GID table; undefined while it has none. */
  get sgidIndex(): number | undefined {
    if (this.iwarp) return 0;
    const { entries } = this.call('queryGidTable', { context: this.#device });
    return entries.find((entry) => entry.gid === this.#gid)?.gidIndex;
  }

  tier(): Tier {
    return this.world.prng.choose(this.world.plan.tiers);
  }

  register(lengthBytes: number, access: number): Registered {
    return this.#registerArea(this.memory.allocate(lengthBytes, this.tier()), access);
  }

  /** A word for atomics, which slow memory does not support. */
  registerWord(access: number): Registered {
    const { prng, plan } = this.world;
    const tier = plan.tiers.includes('process_vm') && prng.oneIn(2) ? 'process_vm' : 'local';
    return this.#registerArea(this.memory.allocate(WORD_BYTES, tier), access);
  }

  deregister({ area, mr }: Registered): void {
    this.attempt('deregMR', { mr });
    this.memory.free(area);
  }

  createCq(cqe = CQ_ENTRIES): SimCq {
    const made = this.call('createCQ', { context: this.#device, cqe, channel: this.#channel });
    return new SimCq(made, this.view(made.ring));
  }

  createQp(type: QPType, byId: boolean): PacketQp {
    const { prng, plan } = this.world;
    const cq = prng.choose(this.cqs);
    const srq = type === QPType.rc && prng.oneIn(2) ? this.srq : undefined;
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
      initialised: byId,
      type,
    });
    const qp = new PacketQp(this, made, { type, cq, srq, byId });
    this.qps.add(qp);
    return qp;
  }

  /** Ends a life of a queue pair: drops work that was posted and not polled. */
  endLife(qp: PacketQp): void {
    const { life } = qp;
    this.dropEventsOf(qp.qpn);
    life.over = true;
    life.ended = true;
    life.checkPromises();
    for (const { wrId } of [...life.sends, ...life.receives]) this.records.delete(wrId);
    life.sends.length = 0;
    life.receives.length = 0;
    for (const window of this.windows) if (window.life === life) window.open = false;
    if (!this.world.plan.tiers.includes('agent')) life.check();
    for (const each of life.registered) this.deregister(each);
  }

  /** Moves a queue pair to RESET, which begins its next life. */
  resetQp(qp: PacketQp): void {
    this.world.log?.(`  ${this.name} resets ${qp.name}`);
    this.poll();
    qp.life.pair?.excuse('queue pair reset');
    this.call('modifyQP', { qp: qp.handle, state: QPState.RESET });
    this.poll();
    this.endLife(qp);
    const { life } = qp;
    if (life.pair !== undefined) qp.earlier.push(life.pair);
    const next = qp.begin();
    for (const id of this.ids.values()) {
      if (id.kind !== 'initiator' || id.life !== life || this.#outcomeKnown(id)) continue;
      id.life = next;
      id.pair?.handOver(next);
    }
    if (!qp.byId) return;
    const attributes = this.iwarp ? undefined : NO_RIGHTS;
    this.call('modifyQP', { qp: qp.handle, state: QPState.INIT, attributes });
  }

  /** Its request has been answered, even if this program has not read so. */
  #outcomeKnown({ handle, outcome }: PacketId): boolean {
    if (outcome !== undefined) return true;
    return this.inbox.some((event) => {
      if (event.type !== 'cm' || event.event.id !== handle) return false;
      return event.event.type === CMEventType.established;
    });
  }

  destroyQp(qp: PacketQp): void {
    this.poll();
    this.world.log?.(`  ${this.name} destroys ${qp.name}`);
    qp.life.pair?.excuse('queue pair destroyed');
    qp.life.over = true;
    this.call('destroyQP', { qp: qp.handle });
    this.poll();
    qp.alive = false;
    this.endLife(qp);
    this.qps.delete(qp);
  }

  /** Destroys the id of a request for a service that is answered. */
  destroyAnswered(id: PacketId): void {
    this.ids.delete(id.handle);
    this.call('cmDestroyId', { id: id.handle });
  }

  destroyId(id: PacketId): void {
    this.world.log?.(`  ${this.name} destroys id ${id.handle}`);
    id.pair?.excuse('id destroyed');
    const gone = new Set([id.handle]);
    for (const each of this.inbox) {
      if (each.type === 'cm' && each.event.listenId === id.handle) gone.add(each.event.id);
    }
    // Before the command: the next request may get the number of this id.
    this.#forgetEvents((each) => each.type === 'cm' && gone.has(each.event.id));
    this.ids.delete(id.handle);
    this.world.requests.delete(id);
    for (const handle of gone) this.call('cmDestroyId', { id: handle });
    if (id.kind !== 'listener') return;
    this.world.listeners.delete(id);
    id.listens = false;
    // Requests that it had not taken are rejected.
    for (const pair of this.world.pairs.values()) {
      if (pair.responder === undefined) pair.excuse('listener destroyed');
    }
  }

  /** Ends the program without closing anything first. */
  kill(): void {
    if (!this.alive) return;
    this.world.log?.(`  ${this.name} is killed`);
    this.poll();
    this.alive = false;
    for (const { life } of this.qps) {
      life.pair?.excuse('program killed');
      life.over = true;
      life.ended = true;
      life.checkPromises();
    }
    for (const id of this.ids.values()) {
      id.pair?.excuse('program killed');
      this.world.requests.delete(id);
      if (this.world.listeners.delete(id)) {
        id.listens = false;
        for (const pair of this.world.pairs.values()) {
          if (pair.responder === undefined) pair.excuse('listener killed');
        }
      }
    }
    this.memory.die();
    this.context.close();
    this.records.clear();
    this.inbox.length = 0;
    must(this.memory.shared.size === 0, 'left', 'shared memory of a killed program');
    must(this.memory.opened === 0, 'left', 'memory of a killed program');
  }

  // Events

  #received(event: DeviceEvent): void {
    must(this.alive, 'events', 'an event for a program that is gone');
    if (event.type === 'cm') this.#noteEarly(event.event);
    this.inbox.push(event);
  }

  /** The peer may see a failure before this program handles the event. */
  #noteEarly({ type, id, state, text }: CMEventRecord): void {
    const known = this.ids.get(id);
    if (known === undefined) return;
    if (type === CMEventType.addrResolved) known.device = state.device;
    const failed =
      type === CMEventType.rejected ||
      type === CMEventType.unreachable ||
      type === CMEventType.connectError;
    if (failed && (this.iwarp || text.includes(FULL))) known.pair?.excuse(text);
    if (failed && known.pair?.stale === true && text.includes(STALE)) known.pair.excuse(text);
    if (type === CMEventType.disconnected) {
      const { pair } = known;
      if (pair !== undefined && text === CONFIRMED) pair.ends += 1;
      const asked = pair?.excuses.size ?? 1;
      must(asked > 0, 'quiet', () => `a healthy connection ended: ${text}`);
    }
  }

  #cqFired(handle: number): void {
    must(this.alive, 'events', 'a completion event for a program that is gone');
    const cq = this.cqs.find((each) => each.handle === handle);
    must(cq !== undefined, 'events', 'a completion event of a queue that is gone');
    cq.fire();
  }

  /** Drops events of a queue pair, as the library of programs does when it is destroyed. */
  dropEventsOf(qpn: number): void {
    this.#forgetEvents((event) => event.type === 'async' && event.event.qpNum === qpn);
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
    this.world.log?.(`  ${this.name}: event ${event.event.type}: ${event.event.text}`);
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
        // Its queue pair may fail before the connection is established.
        id.outcome ??= 'failed';
        must(!id.ended, 'outcome', 'disconnected twice');
        id.ended = true;
        if (id.life !== undefined) this.#leave(id.life);
        return;
      default: {
        must(id.outcome === undefined, 'outcome', () => `${event.type} after ${id.outcome}`);
        id.outcome = 'failed';
        const { pair } = id;
        const excused = pair === undefined || pair.excuses.size > 0;
        must(excused, 'quiet', () => `a connect failed: ${event.text}`);
        if (id.life !== undefined) id.life.over = true;
      }
    }
  }

  /** Some programs connect the queue pair again at once. */
  #leave(life: Life): void {
    life.over = true;
    if (life.current && life.qp.byId && this.world.prng.oneIn(2)) this.resetQp(life.qp);
  }

  #handleRequest(event: CMEventRecord): void {
    const listener = this.ids.get(event.listenId ?? -1);
    must(listener?.kind === 'listener', 'events', 'a connect request without its listener');
    must(!this.ids.has(event.id), 'events', 'a connect request with an id that is in use');
    const id = newId(this, event.id, 'responder', listener.datagrams);
    id.pair = this.world.pairs.get(tokenOf(event.privateData));
    if (id.pair !== undefined) {
      const { request } = id.pair;
      const same = Buffer.compare(request, event.privateData.subarray(0, request.length)) === 0;
      must(same, 'private', 'those of a request');
      id.pair.checkAddressee(listener);
      must(id.pair.requests === 0, 'outcome', 'a request is reported twice');
      id.pair.requests += 1;
    } else id.hostile = true;
    this.ids.set(event.id, id);
    this.world.requests.add(id);
  }

  #handleEstablished(id: PacketId, event: CMEventRecord): void {
    must(id.outcome === undefined, 'outcome', () => `established after ${id.outcome}`);
    const { pair, life } = id;
    id.outcome = 'established';
    if (id.datagrams) {
      id.ended = true;
      const found = pair?.responder?.qp.qpn;
      must(
        found === event.ud?.qpNum,
        'agree',
        () => `${event.ud?.qpNum} is the service, not ${found}`,
      );
    } else {
      must(life !== undefined, 'outcome', 'established without a connect or accept');
      life.up = true;
    }
    if (id.kind !== 'initiator' || pair?.reply === undefined) return;
    const { reply } = pair;
    const same = Buffer.compare(reply, event.privateData.subarray(0, reply.length)) === 0;
    must(same, 'private', 'those of a reply');
  }

  #handleAsync(event: AsyncEvent): void {
    const { type, qpNum } = event;
    must(type !== AsyncEventType.cqErr, 'quiet', event.text);
    if (type === AsyncEventType.srqLimitReached) {
      const { srq } = this;
      if (srq === undefined) return;
      srq.reached += 1;
      const asked = srq.reached <= srq.asked || this.host.faulty;
      must(asked, 'limit', 'an event that the program did not ask for');
      return;
    }
    // A fault may fail deep queues, too.
    if (qpNum === undefined || this.deepQpns.has(qpNum)) return;
    const qp = [...this.qps].find((each) => each.qpn === qpNum);
    must(qp !== undefined, 'events', () => `event ${type} of a queue pair that is destroyed`);
    const { life } = qp;
    if (type === AsyncEventType.sqDrained) {
      this.#handleDrained(life);
      return;
    }
    const fatal =
      type === AsyncEventType.qpFatal ||
      type === AsyncEventType.qpReqErr ||
      type === AsyncEventType.qpAccessErr;
    if (!fatal) return;
    const { pair, over } = life;
    const excused = pair === undefined || pair.excuses.size > 0 || over;
    must(excused, 'quiet', () => `a healthy queue pair failed: ${event.text}`);
  }

  #handleDrained(life: Life): void {
    this.poll();
    if (life.stopped === 'draining') life.stopped = 'drained';
  }

  // Completions

  /** Takes up to `most` completions of each queue. */
  poll(most = Number.POSITIVE_INFINITY): void {
    for (const cq of this.cqs) {
      for (let count = 0; count < most; count += 1) {
        const wc = cq.take();
        if (wc === undefined) break;
        this.#complete(wc);
      }
    }
    for (const { life } of this.qps) life.checkPromises();
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
    const { life } = record;
    const success = wc.status === WCStatus.success;
    const waits = this.world.plan.tiers.includes('agent');
    const drained = success && life.stopped === 'drained' && !waits;
    must(!drained, 'drained', () => `${record.what} of ${life.qp.name} completes later`);
    for (;;) {
      const oldest = life.sends.shift();
      must(oldest !== undefined, 'once', 'a completion without a work request');
      this.records.delete(oldest.wrId);
      if (oldest === record) break;
      must(!oldest.signalled, 'once', () => `${oldest.what} was skipped`);
      // Work that waits for slow memory may fail after unsignalled work before it.
      must(waits || !life.sendFailed, 'once', 'a failed queue skipped one');
      if (success) this.#succeed(oldest);
    }
    if (success) {
      must(record.signalled, 'once', () => `${record.what} asked for no completion`);
      must(!life.sendFailed, 'order', 'a success after a failure');
      this.#succeed(record);
    } else {
      life.sendFailed = true;
      this.#checkCause(life, wc, record.what);
    }
  }

  #succeed({ life, message, succeed, what }: SendRecord): void {
    const { peer, pair } = life;
    if (pair?.forged === true) return;
    const carried = what === 'bind' || pair?.crossed !== true;
    must(carried, 'agree', () => `${what} succeeds between ends that name other addresses`);
    if (message !== undefined && peer !== undefined) peer.promise(message);
    succeed();
  }

  #completeReceive(record: ReceiveRecord, wc: WC): void {
    this.records.delete(record.wrId);
    const { srq } = this;
    if (record.life === undefined && srq !== undefined) srq.posted -= 1;
    const qp = [...this.qps].find((each) => each.qpn === wc.qpNum);
    const life = record.life ?? qp?.life;
    must(life !== undefined, 'events', 'a receive of a queue pair that is destroyed');
    if (record.life !== undefined) {
      const oldest = life.receives.shift();
      must(oldest === record, 'once', 'receives complete in order');
    }
    if (wc.status !== WCStatus.success) this.#checkCause(life, wc, 'a receive');
    else if (life.pair?.forged !== true) {
      if (life.qp.type === QPType.rc) this.#checkMessage(life, record, wc);
      else this.world.post.checkLetter(life, record, wc);
    }
    record.pieces.give(record.at);
    const again = wc.status === WCStatus.success && !this.world.plan.lateReceives;
    if (again && life.current && !life.over) this.world.post.receives(life, 1);
  }

  #checkMessage(life: Life, record: ReceiveRecord, wc: WC): void {
    const { peer } = life;
    if (peer === undefined) {
      must(life.pair === undefined, 'order', 'a message without a peer');
      return;
    }
    const message = peer.messages[life.delivered];
    life.delivered += 1;
    must(message !== undefined, 'order', 'a message that was never sent');
    must(wc.byteLen === message.lengthBytes, 'payload', () => {
      return `${message.lengthBytes} bytes arrived as ${wc.byteLen}`;
    });
    const immediate = (wc.wcFlags & WCFlag.withImm) !== 0 ? wc.immData : undefined;
    must(immediate === message.immediate, 'payload', 'the immediate data');
    const written = message.checkWrite !== undefined;
    must((wc.opcode === WCOpcode.recvImmediate) === written, 'payload', 'the opcode');
    const invalidated = (wc.wcFlags & WCFlag.withInv) !== 0 ? wc.invalidatedRkey : undefined;
    must(invalidated === message.invalidates, 'payload', 'the key that was invalidated');
    if (written) {
      message.checkWrite();
      return;
    }
    const { area } = record.pieces.registered;
    const whole = holdsPattern(area.bytes, record.at, message.offset, message.lengthBytes);
    must(whole, area.lost ? 'placed' : 'payload', () => {
      return `${message.lengthBytes} bytes of a message${area.lost ? ' to lost memory' : ''}`;
    });
  }

  #checkCause(life: Life, wc: WC, what: string): void {
    const { pair, over } = life;
    const known = over || pair === undefined || pair.excuses.size > 0;
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

  #createSrq(): PacketSrq {
    const { plan } = this.world;
    const request = { pd: this.pd, maxWr: SRQ_ENTRIES, maxSge: MAX_SGE, srqLimit: 0 };
    const made = this.call('createSRQ', request);
    const inbox = this.register(plan.messageBytes * made.count, Access.localWrite);
    return new PacketSrq(made, this.view(made.ring), new Pieces(inbox, plan.messageBytes));
  }
}
