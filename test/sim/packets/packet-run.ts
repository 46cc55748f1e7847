/** One run of whole hosts over RoCE, determined only by its seed. */
import { QPState, QPType } from '#contract/verbs/enums';
import { must } from '../rules.ts';
import type { RunResult } from '../run.ts';
import { PacketActions } from './packet-operations.ts';
import type { PacketId } from './packet-program.ts';
import type { Life } from './packet-queue-pair.ts';
import { PacketWorld } from './packet-world.ts';

/** How long programs wait between two operations when nothing happens: usually, and sometimes. */
const SLEEP_MICROS = 5_000;
const LONG_SLEEP_MICROS = 2_000_000;
const LONG_SLEEP_ONE_IN = 100;
const WARM_JOINS_MAX = 3;
const WARM_MICROS = 20_000;
/** Virtual time in which some of the work on healthy connections must complete. */
const SETTLE_MICROS = 60_000_000;
const SHORT_MICROS = 100_000;
/** Eight timeouts of a queue pair whose program has slow memory. */
const QUIET_MICROS = 10_000_000;
/** A message of connection management is repeated for 103 s, and after an MRA for nine minutes. */
const OUTCOME_MICROS = 700_000_000;
const END_MICROS = 200_000_000;
/** Answers are kept for 275 s, a REP is repeated for 69 s, a DREQ for 103 s. */
const FORGET_MICROS = 400_000_000;

/** Runs a seed over RoCE and logs its steps to `log`. Rejects with `BrokenRule` if a rule is broken. */
export async function runPackets(seed: number, log?: (text: string) => void): Promise<RunResult> {
  const run = new PacketRun(seed, log);
  await run.act();
  await run.settle();
  await run.endConnections();
  await run.endPrograms();
  return run.result(seed);
}

class PacketRun {
  readonly #world: PacketWorld;
  readonly #actions: PacketActions;

  constructor(seed: number, log: ((text: string) => void) | undefined) {
    this.#world = new PacketWorld(seed, log);
    this.#actions = new PacketActions(this.#world);
  }

  async act(): Promise<void> {
    const { plan, prng, time } = this.#world;
    for (let joins = prng.between(1, WARM_JOINS_MAX); joins > 0; joins -= 1) this.#actions.join();
    const warm = time.now + WARM_MICROS;
    while (await this.#world.step(warm)) this.#actions.answer();
    for (let action = 0; action < plan.actions; action += 1) {
      this.#actions.act();
      const patience = prng.oneIn(LONG_SLEEP_ONE_IN) ? LONG_SLEEP_MICROS : SLEEP_MICROS;
      const until = time.now + patience;
      for (let steps = prng.below(plan.stepsMax + 1); steps > 0; steps -= 1) {
        if (!(await this.#world.step(until))) break;
      }
    }
  }

  /** Programs handle everything that arrives, and start nothing new. */
  async settle(): Promise<void> {
    const world = this.#world;
    world.log?.('settle');
    world.datagrams.heal();
    for (const { host } of world.hosts) host.faults.clear();
    const busy = (): boolean => this.#lives((life) => life.healthy && hasWork(life)).length > 0;
    for (let before = -1; before !== world.completions && busy(); ) {
      before = world.completions;
      await this.#until(world.time.now + SETTLE_MICROS, () => {
        return world.completions !== before || !busy();
      });
    }
    for (const life of this.#lives()) {
      const open = life.sends.filter(({ signalled }) => signalled);
      must(!life.healthy || open.length === 0, 'progress', () => {
        const { wrId, what } = open[0] ?? { wrId: 0, what: '' };
        const { program, name } = life.qp;
        return `${open.length} of ${program.name} ${name} are open, first ${wrId}, a ${what}`;
      });
    }
  }

  async endConnections(): Promise<void> {
    const world = this.#world;
    world.log?.('end of connections');
    const pending = () => this.#ids(({ asked, outcome }) => asked && outcome === undefined);
    await this.#until(world.time.now + OUTCOME_MICROS, () => pending().length === 0);
    must(pending().length === 0, 'outcome', () => `${pending().length} ids have no outcome`);
    const open = () => this.#ids(({ outcome, ended }) => outcome === 'established' && !ended);
    const end = (): boolean => {
      const left = open();
      for (const id of left) if (!id.endAsked) this.#actions.disconnect(id);
      return left.length === 0;
    };
    await this.#until(world.time.now + END_MICROS, end);
    must(open().length === 0, 'ends', () => `${open().length} connections have not ended`);
    // The last copies of packets, retransmissions to queue pairs that are gone, and agents' work
    // may be in progress.
    await this.#until(world.time.now + QUIET_MICROS, () => false);
    const idle = (): boolean => world.programs.every(({ memory }) => memory.idle);
    await this.#until(world.time.now + END_MICROS, idle);
    await this.#until(world.time.now + SHORT_MICROS, () => false);
    for (const life of this.#lives()) {
      life.qp.program.poll();
      this.#actions.checkFlushed(life);
      if (life.current) life.check();
    }
    for (const { shared } of world.programs) shared.check();
  }

  async endPrograms(): Promise<void> {
    const world = this.#world;
    world.log?.('end of programs');
    for (const program of world.programs) {
      if (world.prng.oneIn(2)) {
        for (const qp of [...program.qps]) program.destroyQp(qp);
        for (const id of [...program.ids.values()]) program.destroyId(id);
      }
      world.kill(program);
    }
    world.users.exit();
    world.pipelines.end();
    for (const host of world.hosts) host.list();
    const over = (): boolean => world.hosts.every(({ forgotten }) => forgotten);
    await this.#until(world.time.now + FORGET_MICROS, over);
    // The last packets may wait for room, or be in flight.
    await this.#until(world.time.now + SHORT_MICROS, () => false);
    for (const host of world.hosts) host.checkEmpty();
    const closing = world.hosts.map((host) => host.close());
    await this.#until(world.time.now + SHORT_MICROS, () => false);
    await Promise.all(closing);
    for (const host of world.hosts) host.checkClosed();
    world.recycle();
  }

  result(seed: number): RunResult {
    const { completions, pairs, trace } = this.#world;
    const both = [...pairs.values()].filter(({ lives }) => {
      return lives.length === 2 && lives.every(({ up }) => up);
    });
    return { seed, completions, flows: pairs.size, established: both.length, trace };
  }

  /** The present lives of queue pairs. */
  #lives(wanted: (life: Life) => boolean = () => true): readonly Life[] {
    const lives: Life[] = [];
    for (const { qps } of this.#world.programs) {
      for (const { life } of qps) if (wanted(life)) lives.push(life);
    }
    return lives;
  }

  #ids(wanted: (id: PacketId) => boolean): readonly PacketId[] {
    const found: PacketId[] = [];
    for (const { ids } of this.#world.programs) {
      for (const id of ids.values()) if (wanted(id)) found.push(id);
    }
    return found;
  }

  /** Steps until `done` or `time`, while programs handle everything that arrives. */
  async #until(time: number, done: () => boolean): Promise<void> {
    const world = this.#world;
    for (;;) {
      this.#react();
      if (done()) return;
      if (!world.time.busy) {
        const { nextDue } = world.time;
        if (nextDue === undefined || nextDue > time) return;
      }
      await world.step();
    }
  }

  /** Programs handle everything that has arrived. */
  #react(): void {
    const { programs } = this.#world;
    for (const program of programs) {
      while (program.inbox.length > 0) program.handleEvent();
      program.poll();
    }
    this.#actions.answer();
    for (const { qps } of this.#world.programs) {
      for (const { life } of qps) this.#continue(life);
    }
  }

  /** A program posts what its peer waits for, and starts its send queue again. */
  #continue(life: Life): void {
    const { qp, stopped, over, up, receives } = life;
    if (over || !up) return;
    if (stopped === 'drained') this.#actions.resume(life);
    qp.ring();
    const { srq, receiveDepth } = qp;
    const missing = srq === undefined ? receives.length < receiveDepth : srq.posted < srq.count;
    if (!missing || qp.type !== QPType.rc || qp.state === QPState.ERR) return;
    const { post } = this.#world;
    post.receives(life, srq === undefined ? receiveDepth : srq.count - srq.posted);
  }
}

function hasWork({ sends }: Life): boolean {
  return sends.some(({ signalled }) => signalled);
}
