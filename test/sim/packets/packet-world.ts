/** A simulated world of hosts with RoCE devices: programs, the network between them, and a clock. */
import { Prng } from '#test/support/prng';
import { VirtualTime } from '#test/support/virtual-time';
import { checkMemoryBounds } from '../bounds.ts';
import type { SimMemory } from '../sim-memory.ts';
import { SimNetwork } from '../sim-network.ts';
import { DatagramNetwork } from './datagram-network.ts';
import { PacketHost, type PacketSetting } from './packet-host.ts';
import { drawPacketPlan, type PacketPlan } from './packet-plan.ts';
import { PacketPosting } from './packet-posting.ts';
import { type PacketId, PacketProgram } from './packet-program.ts';
import { type Life, Pair, type QpProgram } from './packet-queue-pair.ts';
import { Pipelines } from './pipelines.ts';
import { PortUsers } from './port-users.ts';

/** RoCE needs TCP's network only for its routes. */
const STREAM_TRAITS = {
  delayMin: 1,
  delayMax: 200,
  bufferBytes: 16_000,
  deliverMax: 3000,
  emssBytes: 1448,
} as const;

export class PacketWorld implements PacketSetting {
  readonly prng: Prng;
  readonly plan: PacketPlan;
  readonly time = new VirtualTime();
  readonly streams: SimNetwork;
  readonly datagrams: DatagramNetwork;
  readonly hosts: PacketHost[] = [];
  readonly post: PacketPosting;
  readonly users: PortUsers;
  readonly pipelines: Pipelines;
  /** Every life of a queue pair. */
  readonly lives = new Set<Life>();
  readonly pairs = new Map<number, Pair>();
  readonly listeners = new Set<PacketId>();
  /** Unanswered connect requests. */
  readonly requests = new Set<PacketId>();
  /** Queue pairs that were ever attached to a group, by its name. */
  readonly members = new Map<string, Set<Life>>();
  completions = 0;
  /** A hash of everything that was reported to programs, in order. */
  trace = 0x811c9dc5;
  readonly log: ((text: string) => void) | undefined;
  #programs: readonly PacketProgram[] = [];
  /** The memory of every program, including ended ones. */
  readonly #memories: SimMemory[] = [];
  #nextProgram = 1;
  #nextWrId = 1;
  #nextToken = 1;

  constructor(seed: number, log?: (text: string) => void) {
    this.log = log === undefined ? undefined : (text) => log(`${this.time.now} ${text}`);
    this.prng = new Prng(seed);
    this.plan = drawPacketPlan(this.prng);
    const { plan, prng, time } = this;
    this.streams = new SimNetwork(time, prng, {
      tcp: () => STREAM_TRAITS,
      sctp: () => {
        throw new Error('no SCTP here');
      },
    });
    this.datagrams = new DatagramNetwork(time, prng, () => plan.traits(prng), plan.sockets);
    this.post = new PacketPosting(this);
    this.users = new PortUsers(this);
    this.pipelines = new Pipelines(this);
    for (let index = 0; index < plan.hosts; index += 1) {
      const host = new PacketHost(this, index);
      this.hosts.push(host);
      for (let count = 0; count < plan.programsPerHost; count += 1) this.addProgram(host);
    }
  }

  /** Programs that are alive. */
  get programs(): readonly PacketProgram[] {
    return this.#programs;
  }

  programsOf(host: PacketHost): readonly PacketProgram[] {
    return this.#programs.filter((program) => program.host === host);
  }

  addProgram(host: PacketHost): void {
    const program = new PacketProgram(this, host);
    this.#memories.push(program.memory);
    this.#programs = [...this.#programs, program];
  }

  /** Ends a program without closing anything first. */
  kill(program: PacketProgram): void {
    program.kill();
    this.#programs = this.#programs.filter((each) => each !== program);
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

  /** Creates the pair of a life that connects, or of one whose program asks for a service. */
  newPair(initiator: Life, make: (token: number) => Uint8Array, connects = true): Pair {
    const token = this.#nextToken++;
    const pair = new Pair(token, initiator, make(token));
    this.pairs.set(token, pair);
    if (connects) initiator.pair = pair;
    pair.use(initiator.qp);
    this.excuseAt(pair, initiator.qp.program);
    return pair;
  }

  /** Excuses the pair for failures that this end already has. */
  excuseAt(
    pair: Pair,
    { damaged, host, address }: Pick<QpProgram, 'damaged' | 'host' | 'address'>,
  ): void {
    if (damaged) pair.excuse('lost memory');
    if (host.faulty) pair.excuse('fault');
    if (!host.addresses.includes(address)) pair.excuse('lost address');
  }

  /** Excuses every pair of these lives. */
  excuse(why: string, wanted: (life: Life) => boolean): void {
    for (const pair of this.pairs.values()) if (pair.lives.some(wanted)) pair.excuse(why);
  }

  isMember(life: Life, group: string): boolean {
    return this.members.get(group)?.has(life) === true;
  }

  note(...numbers: readonly number[]): void {
    for (const number of numbers) {
      this.trace = Math.imul(this.trace ^ number, 0x01000193) >>> 0;
    }
  }

  /** Runs the next event, lets some programs handle theirs, and checks everything. */
  async step(until = Number.POSITIVE_INFINITY): Promise<boolean> {
    if (!this.time.busy && (this.time.nextDue ?? until) >= until) return false;
    this.pipelines.beginTurn();
    const went = this.time.step();
    this.pipelines.beginTurn();
    // Memory used up in a turn is dropped after that turn.
    await undefined;
    for (const program of this.#programs) this.#wake(program);
    this.#check();
    return went;
  }

  #wake(program: PacketProgram): void {
    const { prng, plan } = this;
    if (program.inbox.length > 0 && prng.oneIn(2)) program.handleEvent();
    for (const cq of program.cqs) {
      if (!cq.notified || !prng.oneIn(plan.slowness)) continue;
      cq.notified = false;
      cq.arm();
      program.poll();
    }
  }

  #check(): void {
    for (const host of this.hosts) {
      if (host.checkDue()) this.#checkBounds(host);
      if (host.wakesLost || host.clock.turns > 0) continue;
      for (const program of this.#programs) {
        if (program.host === host) for (const cq of program.cqs) cq.checkWake();
      }
    }
  }

  #checkBounds(host: PacketHost): void {
    const programs = this.programsOf(host);
    for (const { memory, qps } of programs) checkMemoryBounds(memory, 0, qps.size);
    const ids = programs.reduce((sum, { ids, inbox }) => sum + ids.size + inbox.length, 0);
    host.check(ids + this.users.mostAt(host));
  }
}
