/** Every operation that a run over RoCE can draw. */
import type { FaultSpec } from '#contract/protocol/faults';
import { QPState, QPType } from '#contract/verbs/enums';
import type { QPModification } from '#contract/verbs/qp-attributes';
import { gidText } from '#daemon/host/host-addresses';
import { tokenData } from '../flow-token.ts';
import { drawWeighted } from '../plan.ts';
import { must } from '../rules.ts';
import { DeepQueue } from './deep-queue.ts';
import { GROUP_QPN } from './packet-accounts.ts';
import { GROUPS_MAX, type PacketHost } from './packet-host.ts';
import { HostileSenders, wireOf } from './packet-hostile.ts';
import { PACKET_OPERATIONS, type PacketOperation } from './packet-plan.ts';
import { addressOf, QKEY } from './packet-posting.ts';
import type { PacketId, PacketProgram } from './packet-program.ts';
import {
  ALL_RIGHTS,
  type Life,
  type Listener,
  type PacketQp,
  type Pair,
  type QpProgram,
} from './packet-queue-pair.ts';
import type { PacketWorld } from './packet-world.ts';
import { putWord, wordAt } from './pieces.ts';
import { newId } from './program-id.ts';

const QPS_MAX = 8;
/** Limit of the queue pairs that a program connects itself. */
const OWN_QPS_MAX = 4;
const IDS_MAX = 10;
const LISTENERS_MAX = 4;
const BACKLOG_MAX = 8;
/** After the header of rdma_cm. */
const REQUEST_DATA_MAX_BYTES = 56;
const REPLY_DATA_MAX_BYTES = 196;
const SERVICE_DATA_MAX_BYTES = 136;
const PSN_MASK = 0xff_ffff;
/** Programs that connect a queue pair again use packet numbers far from the old ones. */
const PSN_STEP = 1 << 21;
const RETRIES = 7;
/** The longest time by which a program moves its queue pair later than its peer. */
const LATE_MICROS = 100_000;
/** An interruption that connections survive, and one that they may not survive. */
const SHORT_MICROS = 250_000;
const LONG_MICROS = 20_000_000;
/** Hosts list their addresses once a second. */
const LIST_MICROS = 1_000_000;
const FAULTS_MAX = 3;
const PORT = 1;
const DEEP_MICROS = 100;
/** Messages and Writes over UC that are posted together. */
const LOSSY_MAX = 4;

/** A listener, and an address at which it receives requests. */
interface Destination extends Pick<QpProgram, 'damaged' | 'host' | 'address'> {
  readonly datagrams: boolean;
  readonly port: number;
  readonly listener: Listener;
}

/** Faults that must not make anything fail. */
const HARMLESS = [
  'drop',
  'duplicate',
  'delay',
  'reorder',
  'corrupt-icrc',
  'nak',
  'rnr',
  'completion-event-lost',
  'completion-event-late',
  'srq-limit',
] as const;
const HARMFUL = ['nak', 'port-down', 'qp-fatal', 'device-fatal'] as const;

export class PacketActions {
  readonly #world: PacketWorld;
  readonly #hostile: HostileSenders;
  readonly #all: Readonly<Record<PacketOperation, () => void>>;
  /** Address handles, by program and destination. */
  readonly #handles = new WeakMap<PacketProgram, Map<string, number>>();
  #nextPsn = 0;

  constructor(world: PacketWorld) {
    this.#world = world;
    this.#hostile = new HostileSenders(world);
    this.#all = {
      join: () => this.join(),
      serve: () => this.#listen(true),
      ask: () => this.#ask(),
      listen: () => this.#listen(),
      share: () => this.#world.users.act(),
      pipeline: () => this.#world.pipelines.act(),
      connect: () => this.#connect(),
      answer: () => this.answer(),
      post: () => this.#post(),
      receive: () => this.#receive(),
      poll: () => this.#poll(),
      tick: () => this.#tick(),
      disconnect: () => this.#disconnect(),
      destroyId: () => this.#destroyId(),
      destroyQp: () => this.#destroyQp(),
      drain: () => this.#drain(),
      fail: () => this.#fail(),
      reuse: () => this.#reuse(),
      kill: () => this.#kill(),
      bind: () => this.#bind(),
      stale: () => this.#stale(),
      lose: () => this.#lose(),
      deregister: () => this.#deregister(),
      fault: () => this.#fault(),
      heal: () => this.#heal(),
      interrupt: () => this.#interrupt(),
      address: () => this.#address(),
      blind: () => this.#hostile.blind(),
      seeing: () => this.#hostile.seeing(),
      group: () => this.#group(),
      datagram: () => this.#datagram(),
      lossy: () => this.#lossy(),
      limit: () => this.#limit(),
      deep: () => this.#deep(),
      query: () => this.#query(),
    };
  }

  /** Draws an operation by the plan's weights and runs it. */
  act(): void {
    const { prng, plan } = this.#world;
    const name = drawWeighted(prng, PACKET_OPERATIONS, plan.operations);
    this.#world.log?.(name);
    this.#all[name]();
  }

  // Connections that programs make themselves

  /** Two programs connect queue pairs: they have exchanged the numbers. */
  join(): void {
    const { prng, plan } = this.#world;
    const [one, other] = [this.#program(), this.#program()];
    if (one === undefined || other === undefined || one.iwarp || other.iwarp) return;
    const type = this.#connectedType();
    const first = this.#idle(one, type)?.life;
    if (first === undefined) return;
    const pair = this.#world.newPair(first, () => new Uint8Array(0));
    const second = this.#idle(other, type)?.life;
    if (second === undefined) {
      first.pair = undefined;
      return;
    }
    pair.responder = second;
    second.pair = pair;
    this.#world.excuseAt(pair, other);
    this.#excuseInterrupted(pair);
    // Packet numbers must be far from those of an earlier life, whose packets may arrive late.
    const wraps = first.qp.lives === 1 && second.qp.lives === 1 && prng.oneIn(3);
    const psns = [this.#psn(wraps), this.#psn(wraps)] as const;
    if (type === QPType.rc && plan.kinds.noRight > 0) second.rights = !prng.oneIn(4);
    this.#cross(pair, second);
    this.#world.log?.(`  ${one.name} ${first.qp.name} joins ${other.name} ${second.qp.name}`);
    this.#move(first, psns[0], psns[1]);
    const follow = (): void => {
      if (second.current && !second.over && second.pair === pair) {
        this.#move(second, psns[1], psns[0]);
      }
    };
    if (prng.oneIn(3)) this.#world.time.after(prng.below(LATE_MICROS), follow);
    else follow();
  }

  #connectedType(): QPType {
    const { prng, plan } = this.#world;
    return plan.operations.lossy > 0 && prng.oneIn(4) ? QPType.uc : QPType.rc;
  }

  /** A queue pair in RESET, of a program that connects it itself. */
  #idle(program: PacketProgram, type: QPType): PacketQp | undefined {
    for (const qp of program.qps) {
      const { pair, over } = qp.life;
      if (qp.byId || qp.type !== type || pair !== undefined || over) continue;
      if (qp.state === QPState.RESET) return qp;
    }
    const own = [...program.qps].filter((qp) => !qp.byId).length;
    return own < OWN_QPS_MAX ? program.createQp(type, false) : undefined;
  }

  /** A program may mix up the addresses of its peer: the pair must not carry anything. */
  #cross(pair: Pair, { qp }: Life): void {
    const { prng, plan } = this.#world;
    if (
      !plan.open ||
      qp.type !== QPType.rc ||
      !prng.oneIn(12) ||
      qp.program.host.roceAddresses.length < 2
    )
      return;
    pair.crossed = true;
    pair.excuse('crossed addresses');
  }

  #otherAddress({ qp }: Life): string {
    const { address, host } = qp.program;
    return host.roceAddresses.find((each) => each !== address) ?? address;
  }

  #psn(wraps: boolean): number {
    this.#nextPsn = (this.#nextPsn + PSN_STEP + this.#world.prng.below(PSN_STEP)) & PSN_MASK;
    return wraps ? PSN_MASK - this.#world.prng.below(40) : this.#nextPsn;
  }

  /** Moves a queue pair to RTS, towards its peer. */
  #move(life: Life, sqPsn: number, rqPsn: number): void {
    const { prng, plan } = this.#world;
    const { qp, peer, pair } = life;
    const { program } = qp;
    const { sgidIndex } = program;
    if (peer === undefined || sgidIndex === undefined) {
      pair?.excuse('lost address');
      return;
    }
    const grh = {
      dgid: gidText(pair?.crossed === true ? this.#otherAddress(peer) : peer.qp.program.address),
      sgidIndex,
      trafficClass: prng.below(256) & ~3,
    };
    const reliable = qp.type === QPType.rc;
    const { depth: maxDestRdAtomic, minRnrTimer, pathMtu, timeout } = plan;
    const steps = [
      [QPState.INIT, { accessFlags: life.rights ? ALL_RIGHTS : 0, pkeyIndex: 0, portNum: PORT }],
      [
        QPState.RTR,
        {
          ahAttr: { grh, portNum: PORT },
          pathMtu,
          destQpNum: peer.qp.qpn,
          rqPsn,
          ...(reliable ? { maxDestRdAtomic, minRnrTimer } : {}),
        },
      ],
      [
        QPState.RTS,
        {
          sqPsn,
          ...(reliable
            ? { timeout, retryCnt: RETRIES, rnrRetry: RETRIES, maxRdAtomic: plan.depth }
            : {}),
        },
      ],
    ] as const;
    for (const [state, attributes] of steps) {
      if (this.#modify(life, state, attributes)) continue;
      pair?.excuse('lost address');
      return;
    }
    life.up = true;
    if (!plan.lateReceives) this.#world.post.fill(life);
  }

  /** False if an address that the host has lost prevents it. */
  #modify(life: Life, state: QPState, attributes: Omit<QPModification, 'state'>): boolean {
    const { qp } = life;
    const { program } = qp;
    const given = program.iwarp ? undefined : attributes;
    const moved = program.attempt('modifyQP', { qp: qp.handle, state, attributes: given });
    const excused = this.#world.hosts.some((host) => host.moved) || program.host.faulty;
    must(typeof moved !== 'string' || excused, 'refused', () => `to ${state}: ${String(moved)}`);
    return typeof moved !== 'string';
  }

  #drain(): void {
    const life = this.#life(({ qp, stopped }) => !qp.byId && stopped !== 'draining');
    if (life === undefined || life.qp.type !== QPType.rc) return;
    if (life.stopped === 'drained') this.resume(life);
    else if (life.qp.state === QPState.RTS) {
      life.stopped = 'draining';
      this.#modify(life, QPState.SQD, {});
    }
  }

  /** The program starts its send queue again. */
  resume(life: Life): void {
    if (life.qp.state !== QPState.SQD) return;
    if (this.#modify(life, QPState.RTS, {})) life.stopped = 'no';
    life.qp.ring();
  }

  // Connections of ids

  #listen(datagrams = false): void {
    const { prng, listeners } = this.#world;
    const program = this.#program();
    if (program === undefined || listeners.size >= LISTENERS_MAX) return;
    if (program.sgidIndex === undefined || (datagrams && program.iwarp)) return;
    const made = program.call('cmCreateId', { datagrams });
    const id = newId(program, made.id, 'listener', datagrams);
    program.ids.set(id.handle, id);
    const address = { address: program.address, port: 0 };
    const { localAddress } = program.call('cmBindAddr', { id: id.handle, address });
    program.call('cmListen', { id: id.handle, backlog: prng.between(1, BACKLOG_MAX) });
    id.port = localAddress?.port ?? 0;
    id.listens = true;
    listeners.add(id);
  }

  #connect(): void {
    const { plan } = this.#world;
    const program = this.#program();
    const listener = program && this.#destination(program, false);
    const type = program?.iwarp === true ? QPType.rc : this.#connectedType();
    const life = listener && this.#idleById(program, type)?.life;
    if (program === undefined || listener === undefined || life === undefined) return;
    const id = this.#begin(program, listener, life);
    const { pair } = id ?? {};
    if (id === undefined || pair === undefined) return;
    id.life = life;
    this.#world.log?.(`  ${program.name} connects id ${id.handle} with ${life.qp.name}`);
    program.call('cmConnect', {
      id: id.handle,
      qp: life.qp.handle,
      privateData: pair.request,
      ...this.#depths(),
      wire: undefined,
    });
    if (!plan.lateReceives) this.#world.post.fill(life);
  }

  /** Looks up a datagram service. */
  #ask(): void {
    const program = this.#program();
    const listener = program && this.#destination(program, true);
    const life = listener && this.#datagramLife(program);
    if (program === undefined || listener === undefined || life === undefined) return;
    const id = this.#begin(program, listener, life);
    if (id?.pair === undefined) return;
    program.call('cmConnect', {
      id: id.handle,
      qp: undefined,
      privateData: id.pair.request,
      initiatorDepth: undefined,
      responderResources: undefined,
      wire: undefined,
    });
  }

  /** A listener that the program may connect to. */
  #destination(program: PacketProgram, datagrams: boolean): Destination | undefined {
    const { prng, listeners, users } = this.#world;
    if (program.ids.size >= IDS_MAX || program.sgidIndex === undefined) return undefined;
    const fitting: Destination[] = [];
    const shared: Destination[] = [];
    for (const listener of listeners) {
      const { program: to, port } = listener;
      if (listener.datagrams !== datagrams || to.iwarp !== program.iwarp) continue;
      const { damaged, host, address } = to;
      fitting.push({ datagrams, damaged, host, address, port, listener });
    }
    for (const listener of users.listeners) {
      const { user, port } = listener;
      if (listener.datagrams !== datagrams) continue;
      const address = users.addressOf(listener);
      shared.push({ datagrams, damaged: false, host: user.host, address, port, listener });
    }
    if (shared.length > 0 && prng.oneIn(2)) return prng.choose(shared);
    return fitting.length === 0 ? undefined : prng.choose(fitting);
  }

  /** Makes an id whose route is resolved, and its pair; undefined if there is no route. */
  #begin(program: PacketProgram, to: Destination, life: Life): PacketId | undefined {
    const { prng } = this.#world;
    const { datagrams, address, port } = to;
    const made = program.call('cmCreateId', { datagrams });
    const id = newId(program, made.id, 'initiator', datagrams);
    program.ids.set(id.handle, id);
    const wrong = prng.oneIn(20);
    const resolved = program.attempt('cmResolveAddr', {
      id: id.handle,
      destination: { address, port: wrong ? 9 : port },
      source: { address: program.address, port: 0 },
      timeoutMs: 1000,
    });
    if (typeof resolved === 'string' || id.device === undefined) {
      program.destroyId(id);
      return undefined;
    }
    program.call('cmResolveRoute', { id: id.handle });
    const more = new Uint8Array(prng.below(REQUEST_DATA_MAX_BYTES - 8)).fill(7);
    const pair = this.#world.newPair(life, (token) => tokenData(token, more), !datagrams);
    if (wrong) pair.excuse('nothing listens');
    else pair.addressee = to.listener;
    this.#world.excuseAt(pair, to);
    this.#excuseInterrupted(pair, to.host);
    id.pair = pair;
    id.asked = true;
    return id;
  }

  /** Answers a connect request. */
  answer(): void {
    const { prng, requests, plan, users } = this.#world;
    users.answer();
    if (requests.size === 0) return;
    const id = prng.choose([...requests]);
    requests.delete(id);
    const { program, pair } = id;
    const most = id.datagrams ? SERVICE_DATA_MAX_BYTES : REPLY_DATA_MAX_BYTES;
    const privateData = new Uint8Array(prng.below(most)).fill(9);
    if (prng.oneIn(10)) {
      program.destroyId(id);
      return;
    }
    const type = pair?.initiator.qp.type ?? QPType.rc;
    const life = id.datagrams ? this.#datagramLife(program) : this.#idleById(program, type)?.life;
    if (life === undefined || prng.oneIn(10)) {
      pair?.excuse('rejected');
      program.attempt('cmReject', { id: id.handle, privateData: privateData.subarray(0, 100) });
      program.destroyId(id);
      return;
    }
    if (pair !== undefined) {
      pair.responder = life;
      pair.use(life.qp);
      pair.reply = privateData;
      this.#world.excuseAt(pair, program);
    }
    if (!id.datagrams) life.pair = pair;
    const accepted = program.attempt('cmAccept', {
      id: id.handle,
      qp: life.qp.handle,
      ...(id.datagrams ? { qkey: QKEY } : {}),
      privateData,
      ...this.#depths(),
      wire: undefined,
    });
    if (typeof accepted === 'string') {
      const moved = this.#world.hosts.some((host) => host.moved);
      const gone = accepted === 'ECONNRESET' || moved || id.hostile;
      must(gone, 'refused', () => `accept: ${accepted}`);
      pair?.excuse('the peer gave up before it was accepted');
      if (!id.datagrams) life.over = true;
      program.destroyId(id);
      return;
    }
    if (id.datagrams) {
      program.destroyAnswered(id);
      return;
    }
    this.#world.log?.(`  ${program.name} accepts id ${id.handle} with ${life.qp.name}`);
    id.life = life;
    id.asked = true;
    if (!plan.lateReceives) this.#world.post.fill(life);
  }

  /** A queue pair in INIT that an id may connect. */
  #idleById(program: PacketProgram, type: QPType): PacketQp | undefined {
    const bound = new Set<PacketQp>();
    for (const { life, outcome, ended } of program.ids.values()) {
      if (life !== undefined && outcome !== 'failed' && !ended) bound.add(life.qp);
    }
    for (const qp of program.qps) {
      const { pair, over } = qp.life;
      const free = qp.byId && qp.type === type && pair === undefined && !over && !bound.has(qp);
      if (free && qp.state === QPState.INIT) return qp;
    }
    return program.qps.size < QPS_MAX ? program.createQp(type, true) : undefined;
  }

  #depths(): { initiatorDepth: number | undefined; responderResources: number | undefined } {
    const { prng } = this.#world;
    const depth = (): number | undefined => (prng.oneIn(2) ? undefined : prng.between(1, 4));
    return { initiatorDepth: depth(), responderResources: depth() };
  }

  #disconnect(): void {
    const open = this.#world.programs.flatMap(({ ids }) =>
      [...ids.values()].filter(({ outcome, ended, endAsked }) => {
        return outcome === 'established' && !ended && !endAsked;
      }),
    );
    if (open.length > 0) this.disconnect(this.#world.prng.choose(open));
  }

  /** Asks for the end of a connection. */
  disconnect(id: PacketId): void {
    const { program, pair } = id;
    this.#world.log?.(`  ${program.name} disconnects id ${id.handle}`);
    pair?.excuse('disconnected');
    program.attempt('cmDisconnect', { id: id.handle });
    id.endAsked = true;
  }

  #destroyId(): void {
    const program = this.#program();
    if (program === undefined || program.ids.size === 0) return;
    program.destroyId(this.#world.prng.choose([...program.ids.values()]));
  }

  // Work

  #post(): void {
    const { plan } = this.#world;
    const life = this.#life(({ qp }) => qp.type === QPType.rc);
    if (life !== undefined) this.#world.post.batch(life, plan.queueDepth);
  }

  #receive(): void {
    const { prng } = this.#world;
    const program = this.#program();
    const lives = [...(program?.qps ?? [])].map(({ life }) => life).filter(({ over }) => !over);
    if (lives.length > 0) this.#world.post.receives(prng.choose(lives), prng.between(1, 8));
  }

  #poll(): void {
    const { prng, plan } = this.#world;
    const program = this.#program();
    if (program === undefined) return;
    program.poll(prng.oneIn(plan.slowness) ? undefined : prng.between(1, 3));
    for (const cq of program.cqs) if (prng.oneIn(2)) cq.arm();
  }

  #tick(): void {
    const { tick } = this.#program() ?? {};
    if (tick !== undefined) putWord(tick.area.bytes, 0, wordAt(tick.area.bytes, 0) + 1n);
  }

  #bind(): void {
    const life = this.#life(({ qp }) => qp.type === QPType.rc && !qp.program.iwarp);
    if (life !== undefined) this.#world.post.bind(life);
  }

  #stale(): void {
    for (const { windows } of this.#world.programs) {
      for (const window of windows) {
        const { life, open } = window;
        const { peer } = life;
        if (open || !life.current || life.over || peer?.current !== true || peer.over) continue;
        // Its bind may be in progress.
        if (!window.target.forged && peer.up && life.sends.length === 0) {
          this.#world.post.stale(peer, window);
          return;
        }
      }
    }
  }

  // Queue pairs and programs that end

  #destroyQp(): void {
    const program = this.#program();
    if (program === undefined || program.qps.size === 0) return;
    program.destroyQp(this.#world.prng.choose([...program.qps]));
  }

  #fail(): void {
    const life = this.#life(() => true);
    if (life === undefined) return;
    const { program } = life.qp;
    this.#world.log?.(`  ${program.name} moves ${life.qp.name} to ERR`);
    life.pair?.excuse('queue pair moved to ERR');
    life.over = true;
    // Work posted to a queue pair in error is flushed some milliseconds later.
    const failed = life.qp.state === QPState.ERR;
    this.#modify(life, QPState.ERR, {});
    program.poll();
    if (!failed) this.checkFlushed(life);
  }

  /** Checks that everything posted to a queue pair in error has completed. */
  checkFlushed(life: Life): void {
    if (this.#world.plan.tiers.includes('agent') || !life.current) return;
    if (life.qp.state !== QPState.ERR) return;
    const left = [...life.sends.filter(({ signalled }) => signalled), ...life.receives];
    must(left.length === 0, 'once', () => {
      return `${left.length} work requests of ${life.qp.name} in ERR, first ${left[0]?.wrId}`;
    });
  }

  #reuse(): void {
    const over = this.#world.programs.flatMap(({ qps }) =>
      [...qps].filter(({ life, state }) => life.over || state === QPState.ERR),
    );
    if (over.length === 0) return;
    const { prng } = this.#world;
    const qp = prng.choose(over);
    if (qp.type === QPType.ud || (qp.byId && prng.oneIn(2))) qp.program.destroyQp(qp);
    else qp.program.resetQp(qp);
  }

  #kill(): void {
    const program = this.#program();
    if (program === undefined) return;
    this.#world.kill(program);
    if (this.#world.prng.oneIn(2) || this.#world.programs.length === 0) {
      this.#world.addProgram(program.host);
    }
  }

  #lose(): void {
    const { prng } = this.#world;
    const program = this.#program();
    if (program === undefined || program.qps.size === 0) return;
    const { life } = prng.choose([...program.qps]);
    const { target, sink, inbox = sink } = life;
    const { area } = prng.choose([target, sink, inbox]).registered;
    if (area.tier === 'local') return;
    area.lost = true;
    this.#world.log?.(`  ${program.name} loses memory of ${life.qp.name}`);
    this.#damage(program, 'lost memory');
  }

  #deregister(): void {
    const program = this.#program();
    if (program === undefined) return;
    this.#damage(program, 'memory deregistered');
    program.attempt('deregMR', { mr: program.source.mr });
  }

  #damage(program: PacketProgram, why: string): void {
    program.damaged = true;
    this.#world.excuse(why, ({ qp }) => qp.program === program);
    for (const { pair } of program.ids.values()) pair?.excuse(why);
  }

  // Failures of hosts and the network

  #fault(): void {
    const { prng, hosts, plan } = this.#world;
    const host = prng.choose(hosts);
    if (host.host.faults.injector.faults.length >= FAULTS_MAX) return;
    const harmful = prng.oneIn(4);
    const spec = this.#faultSpec(harmful ? prng.choose(HARMFUL) : prng.choose(HARMLESS), harmful);
    if (spec.kind.startsWith('completion-event')) host.wakesLost = true;
    if (harmful) {
      host.faulty = true;
      this.#world.excuse(`fault ${spec.kind}`, ({ qp }) => qp.program.host === host);
      for (const pair of this.#world.pairs.values()) {
        if (pair.responder === undefined) pair.excuse(`fault ${spec.kind}`);
      }
    }
    if (spec.kind === 'srq-limit') host.faulty = true;
    this.#world.log?.(`  ${host.name}: ${JSON.stringify(spec)}`);
    const fault = host.host.faults.add(spec, undefined);
    host.accounts.noteFault(fault, host.host.faults.injector.faults);
    // A port that is down counts nothing; iWARP's segments meet the same faults.
    if (spec.kind === 'port-down' || plan.iwarp) host.accounts.open = true;
  }

  #faultSpec(kind: FaultSpec['kind'], harmful: boolean): FaultSpec {
    const { prng } = this.#world;
    const trigger = { probability: prng.choose([0.02, 0.05]), seed: prng.next() };
    switch (kind) {
      case 'delay':
      case 'completion-event-late':
        return { kind, ms: prng.between(1, 20), ...trigger };
      case 'nak':
        return { kind, syndrome: harmful ? 'invalid-request' : 'psn-sequence', ...trigger };
      case 'port-down':
      case 'qp-fatal':
      case 'device-fatal':
        return { kind };
      default:
        return { kind, ...trigger };
    }
  }

  #heal(): void {
    for (const { host } of this.#world.hosts) host.faults.clear();
  }

  #interrupt(): void {
    const { prng, hosts, datagrams } = this.#world;
    const [one, other] = [prng.choose(hosts), prng.choose(hosts)];
    if (one === other) return;
    const long = prng.oneIn(4);
    const micros = prng.below(long ? LONG_MICROS : SHORT_MICROS);
    const path = datagrams.pathOf(one.udp, other.udp);
    // Successive interruptions count as one long interruption.
    const again = path.closedUntil + LIST_MICROS > this.#world.time.now;
    datagrams.interrupt(one.udp, other.udp, micros);
    if (!long && !again) return;
    for (const pair of this.#world.pairs.values()) this.#excuseInterrupted(pair);
  }

  /** Excuses a pair whose path is interrupted. `host`: the host that it connects to. */
  #excuseInterrupted(pair: Pair, host?: PacketHost): void {
    const { datagrams, time, hosts } = this.#world;
    const here = pair.initiator.qp.program.host;
    const there = pair.responder?.qp.program.host ?? host;
    for (const other of there === undefined ? hosts : [there]) {
      if (other === here) continue;
      if (datagrams.pathOf(here.udp, other.udp).closedUntil > time.now) {
        pair.excuse('path interrupted');
      }
    }
  }

  /** A host loses an address, or gets one back. */
  #address(): void {
    const { prng, hosts, plan, time } = this.#world;
    if (!plan.open) return;
    const host = prng.choose(hosts);
    host.moved = true;
    const lost = host.lostAddresses;
    const known = lost[0];
    if (known !== undefined && (prng.oneIn(2) || host.roceAddresses.length === 1)) {
      lost.shift();
      host.addresses.push(known);
      this.#world.log?.(`  ${host.name} gets ${known}`);
    } else if (host.roceAddresses.length > 1) {
      const address = prng.choose(host.roceAddresses);
      host.addresses.splice(host.addresses.indexOf(address), 1);
      lost.push(address);
      this.#world.log?.(`  ${host.name} loses ${address}`);
      this.#world.excuse('lost address', ({ qp }) => {
        return qp.program.host === host && qp.program.address === address;
      });
      for (const pair of this.#world.pairs.values()) {
        if (pair.responder === undefined) pair.excuse('lost address');
      }
    }
    const list = (): void => host.list();
    time.after(prng.below(LIST_MICROS), list);
  }

  // Datagrams

  #group(): void {
    const { prng, plan, members } = this.#world;
    const program = this.#program();
    const life = program && this.#datagramLife(program);
    if (program === undefined || life === undefined) return;
    const name = groupName(prng.below(GROUPS_MAX), plan.six);
    const gid = gidText(name);
    if (prng.oneIn(3)) {
      program.attempt('detachMcast', { qp: life.qp.handle, gid });
      return;
    }
    program.call('attachMcast', { qp: life.qp.handle, gid });
    const known = members.get(name) ?? new Set();
    members.set(name, known.add(life));
    const { host, deviceName } = program;
    const near = [...known].filter(({ qp }) => {
      return qp.alive && qp.program.host === host && qp.program.deviceName === deviceName;
    });
    host.accounts.noteMembers(near.length);
    // Slow memory drops copies.
    if (plan.tiers.includes('agent')) host.accounts.open = true;
  }

  /** A program sends messages and Writes over UC. */
  #lossy(): void {
    const { prng, post } = this.#world;
    const life = this.#life(({ qp }) => qp.type === QPType.uc);
    if (life?.peer === undefined) return;
    for (let count = prng.between(1, LOSSY_MAX); count > 0; count -= 1) {
      if (prng.oneIn(3)) post.letter(life, addressOf(life.peer));
      else post.lossyWrite(life, life.peer);
    }
    life.qp.ring();
  }

  /** A program sends a datagram. */
  #datagram(): void {
    const { prng, plan } = this.#world;
    const program = this.#program();
    if (program === undefined) return;
    const life = this.#datagramLife(program);
    const other = this.#program();
    const target = other && this.#datagramLife(other);
    if (life === undefined || other === undefined || target === undefined) return;
    const grouped = plan.operations.group > 0 && prng.oneIn(3);
    const group = groupName(prng.below(GROUPS_MAX), plan.six);
    const ah = this.#handle(program, grouped ? group : other.address);
    if (ah === undefined) return;
    if (grouped) this.#world.post.letter(life, group, { ah, qpn: GROUP_QPN });
    else this.#world.post.letter(life, addressOf(target), { ah, qpn: target.qp.qpn });
    life.qp.ring();
  }

  /** The program's queue pair for datagrams. */
  #datagramLife(program: PacketProgram): Life | undefined {
    for (const { type, life } of program.qps) {
      if (type === QPType.ud && life.up && !life.over) return life;
    }
    if (program.qps.size > QPS_MAX || program.iwarp) return undefined;
    const { life } = program.createQp(QPType.ud, false);
    this.#modify(life, QPState.INIT, { pkeyIndex: 0, portNum: PORT, qkey: QKEY });
    this.#modify(life, QPState.RTR, {});
    this.#modify(life, QPState.RTS, { sqPsn: 0 });
    life.up = true;
    const wire = wireOf(life);
    if (wire !== undefined) program.host.accounts.watch(wire);
    this.#world.post.fill(life);
    return life;
  }

  #handle(program: PacketProgram, address: string): number | undefined {
    const known = this.#handles.get(program) ?? new Map<string, number>();
    this.#handles.set(program, known);
    const handle = known.get(address);
    const { sgidIndex } = program;
    if (handle !== undefined || sgidIndex === undefined) return handle;
    const attributes = { grh: { dgid: gidText(address), sgidIndex }, portNum: PORT };
    const made = program.attempt('createAH', { pd: program.pd, attributes });
    const excused = typeof made !== 'string' || this.#world.hosts.some((host) => host.moved);
    must(excused, 'refused', () => `createAH: ${String(made)}`);
    if (typeof made === 'string') return undefined;
    known.set(address, made.number);
    return made.number;
  }

  #limit(): void {
    const program = this.#program();
    const { srq } = program ?? {};
    if (program === undefined || srq === undefined) return;
    program.call('modifySRQ', { srq: srq.handle, srqLimit: this.#world.prng.between(1, 8) });
    srq.asked += 1;
  }

  /** Moves a queue pair with a deep queue to ERR: its receives are flushed in several turns. */
  #deep(): void {
    const { prng, time } = this.#world;
    const program = this.#program();
    if (program === undefined || program.iwarp || !prng.oneIn(4)) return;
    const deep = new DeepQueue(program);
    deep.fail();
    const poll = (): void => {
      if (!program.alive || deep.poll()) return;
      time.after(DEEP_MICROS, poll);
    };
    poll();
  }

  #query(): void {
    const program = this.#program();
    if (program === undefined) return;
    for (const { handle } of program.qps) program.call('queryQP', { qp: handle });
    for (const { host } of this.#world.hosts) host.connections();
  }

  // Choices

  #program(): PacketProgram | undefined {
    const { programs, prng } = this.#world;
    return programs.length === 0 ? undefined : prng.choose(programs);
  }

  /** A life whose program may post, and that is connected. */
  #life(wanted: (life: Life) => boolean): Life | undefined {
    const lives: Life[] = [];
    for (const { qps } of this.#world.programs) {
      for (const { life } of qps) {
        if (life.up && !life.over && life.peer !== undefined && wanted(life)) lives.push(life);
      }
    }
    return lives.length === 0 ? undefined : this.#world.prng.choose(lives);
  }
}

function groupName(number: number, six: boolean): string {
  return six ? `ff0e::1:${number + 1}` : `239.1.1.${number + 1}`;
}
