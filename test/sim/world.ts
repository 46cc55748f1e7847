/** A simulated world: hosts, programs, the network between them, hostile peers, and a clock. */

import { Prng } from '../support/prng.ts';
import { VirtualTime } from '../support/virtual-time.ts';
import { checkMemoryBounds } from './bounds.ts';
import type { HostilePeer } from './hostile.ts';
import { type Carrier, drawPlan, type Plan } from './plan.ts';
import { must } from './rules.ts';
import type { HostileAssociation } from './sctp/hostile-association.ts';
import { type ClientId, SimClient } from './sim-client.ts';
import { type Setting, SimHost } from './sim-host.ts';
import type { SimMemory } from './sim-memory.ts';
import { SimNetwork } from './sim-network.ts';
import type { Party } from './sim-qp.ts';
import { Flow } from './sim-qp.ts';

/** The address of hostile peers, which no host has. */
export const HOSTILE_ADDRESS = '10.9.9.9';
/** Longest time a requested disconnect may take: twice the close timeout, and stalls. */
const END_BOUND_MICROS = 40_000_000;
/** Longest time a connect may take: the timeouts of TCP and of MPA startup. */
const OUTCOME_BOUND_MICROS = 40_000_000;

/** See the module's comment. */
export class World implements Setting {
  readonly prng: Prng;
  readonly plan: Plan;
  readonly time = new VirtualTime();
  readonly network: SimNetwork;
  readonly hosts: SimHost[] = [];
  /** Every life of a queue pair. */
  readonly parties = new Set<Party>();
  readonly flows = new Map<number, Flow>();
  readonly listeners = new Set<ClientId>();
  /** Unanswered connect requests. */
  readonly requests = new Set<ClientId>();
  readonly hostiles = new Set<HostilePeer | HostileAssociation>();
  readonly hostileHost;
  completions = 0;
  /** A hash of everything that was reported to programs, in order. */
  trace = 0x811c9dc5;
  #clients: readonly SimClient[] = [];
  /** The memory of every program, including ended ones. */
  readonly #memories: SimMemory[] = [];
  #nextProgram = 1;
  #nextWrId = 1;
  #nextToken = 1;

  /** Logs each step; undefined when the run is not logged. */
  readonly log: ((text: string) => void) | undefined;

  constructor(seed: number, carrier: Carrier, log?: (text: string) => void) {
    this.log = log === undefined ? undefined : (text) => log(`${this.time.now} ${text}`);
    this.prng = new Prng(seed);
    this.plan = drawPlan(this.prng, carrier);
    const { plan, prng, time } = this;
    this.network = new SimNetwork(time, prng, {
      tcp: () => plan.traits(prng),
      sctp: () => plan.messageTraits(prng),
    });
    this.hostileHost = this.network.host([HOSTILE_ADDRESS]);
    for (let index = 0; index < plan.hosts; index += 1) {
      const host = new SimHost(this, index);
      this.hosts.push(host);
      for (let client = 0; client < plan.clientsPerHost; client += 1) this.addClient(host);
    }
  }

  /** Programs that are alive. */
  get clients(): readonly SimClient[] {
    return this.#clients;
  }

  /** Those of one host. */
  clientsOf(host: SimHost): SimClient[] {
    return this.#clients.filter((client) => client.host === host);
  }

  removeClient(client: SimClient): void {
    this.#clients = this.#clients.filter((each) => each !== client);
  }

  addClient(host: SimHost): SimClient {
    const client = new SimClient(this, host);
    this.#memories.push(client.memory);
    this.#clients = [...this.#clients, client];
    return client;
  }

  /** The run has succeeded: another one may reuse its buffers. */
  recycle(): void {
    for (const memory of this.#memories) memory.recycle();
  }

  nextProgram(): number {
    return this.#nextProgram++;
  }

  nextWrId(): number {
    return this.#nextWrId++;
  }

  /** Creates the flow of a connect by `initiator`. */
  newFlow(initiator: Party, hostile: boolean, make: (token: number) => Uint8Array): Flow {
    const token = this.#nextToken++;
    const flow = new Flow(token, initiator, make(token), hostile);
    if (initiator.tainted) flow.excuse('work of an earlier attempt');
    if (initiator.qp.client.damaged) flow.excuse('lost memory');
    if (initiator.qp.client.host.faulty) flow.excuse('fault');
    this.flows.set(token, flow);
    return flow;
  }

  /** Creates the flow of a connect by a hostile peer. */
  hostileFlow(): Flow {
    return new Flow(0, undefined, new Uint8Array(0), true);
  }

  /** A connect failed: its queue pair may try again. */
  release(id: ClientId): void {
    const { party } = id;
    if (party === undefined || party.established) return;
    party.flow = undefined;
    party.tainted ||= party.sends.length > 0;
  }

  note(...numbers: readonly number[]): void {
    for (const number of numbers) {
      this.trace = Math.imul(this.trace ^ number, 0x01000193) >>> 0;
    }
  }

  /** Runs the next event, lets some programs handle theirs, and checks everything. */
  async step(until = Number.POSITIVE_INFINITY): Promise<boolean> {
    if (!this.time.busy && (this.time.nextDue ?? until) >= until) return false;
    const went = this.time.step();
    // The daemon defers some housekeeping to the end of a turn.
    await undefined;
    for (const client of this.#clients) this.#wake(client);
    this.check();
    return went;
  }

  #wake(client: SimClient): void {
    const { prng, plan } = this;
    if (client.inbox.length > 0 && prng.oneIn(2)) client.handleEvent();
    for (const cq of client.cqs) {
      if (!cq.notified || !prng.oneIn(plan.slowness)) continue;
      cq.notified = false;
      cq.arm();
      client.poll();
    }
  }

  check(): void {
    for (const host of this.hosts) {
      if (host.check()) this.#checkBounds(host);
      if (host.wakesLost) continue;
      if (host.clock.turns > 0) continue;
      for (const client of this.#clients) {
        if (client.host !== host) continue;
        for (const cq of client.cqs) cq.checkWake();
      }
    }
    for (const hostile of this.hostiles) {
      if (hostile.gone) this.hostiles.delete(hostile);
      else hostile.check();
    }
  }

  #checkBounds(host: SimHost): void {
    const clients = this.clientsOf(host);
    host.checkBounds(clients.reduce((sum, { ids, inbox }) => sum + ids.size + inbox.length, 0));
    const connections = host.host.connections().length;
    for (const { memory, qps } of clients) checkMemoryBounds(memory, connections, qps.size);
  }

  /** Checks that nothing requested is overdue. */
  checkLiveness(): void {
    const { now } = this.time;
    for (const { ids } of this.clients) {
      for (const id of ids.values()) {
        const { party, askedAt } = id;
        if (askedAt !== undefined && id.outcome === undefined) {
          const waited = now - askedAt;
          must(waited < OUTCOME_BOUND_MICROS, 'outcome', () => `no outcome after ${waited} µs`);
        }
        const endAsked = party?.disconnectAskedAt;
        if (id.outcome !== 'established' || id.ended || endAsked === undefined) continue;
        if (id.client.inbox.length > 0) continue;
        const waited = now - endAsked;
        must(
          waited < END_BOUND_MICROS,
          'ends',
          () => `still open ${waited} µs after the disconnect`,
        );
      }
    }
  }
}
