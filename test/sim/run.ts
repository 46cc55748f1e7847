/** One run of the simulation, determined only by its seed. */
import { QPState } from '#contract/verbs/enums';
import { Operations } from './operations.ts';
import type { Carrier } from './plan.ts';
import { must } from './rules.ts';
import type { Party } from './sim-qp.ts';
import { World } from './world.ts';

/** The events of a run. Two runs of one seed have equal results. */
export interface RunResult {
  readonly seed: number;
  readonly completions: number;
  readonly flows: number;
  /** Connections that were up on both sides. */
  readonly established: number;
  /** A hash of everything that was reported to programs, in order. */
  readonly trace: number;
}

/** How long programs wait between two operations when nothing happens: usually, and sometimes. */
const SLEEP_MICROS = 10_000;
const LONG_SLEEP_MICROS = 15_000_000;
const LONG_SLEEP_ONE_IN = 300;
/** Virtual time in which some of the work on healthy connections must complete. */
const SETTLE_MICROS = 30_000_000;
const SHORT_MICROS = 100_000;
const LONG_MICROS = 1_000_000;
/** Longest virtual time for disconnects and destructions to complete. */
const END_MICROS = 80_000_000;
/** An association of SCTP may wait for its next session, on a path that has vanished meanwhile. */
const IDLE_MICROS = 200_000_000;
/** TCP itself waits longer for a vanished peer. */
const TCP_MICROS = 1_000_000_000;

/**
 * Runs a seed over `carrier` and logs its steps to `log`. Rejects with `BrokenRule` if a rule is
 * broken.
 */
export async function run(
  seed: number,
  carrier: Carrier = 'tcp',
  log?: (text: string) => void,
): Promise<RunResult> {
  const life = new Run(seed, carrier, log);
  await life.act();
  await life.settle();
  await life.endConnections();
  await life.endPrograms();
  life.recycle();
  return life.result(seed);
}

class Run {
  readonly #world: World;
  readonly #operations: Operations;

  constructor(seed: number, carrier: Carrier, log: ((text: string) => void) | undefined) {
    this.#world = new World(seed, carrier, log);
    this.#operations = new Operations(this.#world);
  }

  async act(): Promise<void> {
    const { plan, prng } = this.#world;
    if (!prng.oneIn(4)) await this.#operations.warmUp();
    for (let action = 0; action < plan.actions; action += 1) {
      this.#operations.act();
      // Few programs sleep past a timeout.
      const patience = prng.oneIn(LONG_SLEEP_ONE_IN) ? LONG_SLEEP_MICROS : SLEEP_MICROS;
      const until = this.#world.time.now + patience;
      for (let steps = prng.below(plan.stepsMax + 1); steps > 0; steps -= 1) {
        if (!(await this.#world.step(until))) break;
      }
      this.#world.checkLiveness();
    }
  }

  /** Programs handle everything that arrives and start nothing new. */
  async settle(): Promise<void> {
    const world = this.#world;
    world.log?.('settle');
    this.#operations.disturbances.heal();
    for (const { qps } of world.clients) for (const qp of qps) qp.ring();
    if (!world.plan.wire.peerToPeer || world.plan.wire.mpaRevision === 1) {
      // A responder may have to wait for an initiator that sends nothing.
      await this.#until(world.time.now + SHORT_MICROS, () => false);
      return;
    }
    const healthy = [...world.parties].filter((party) => isHealthy(party));
    // While work completes, it may be slow: an agent may lag a thousand requests behind.
    for (let before = -1; before !== world.completions && healthy.some(hasWork); ) {
      before = world.completions;
      const moved = (): boolean => world.completions !== before;
      const over = (): boolean => !healthy.some(hasWork);
      await this.#until(world.time.now + SETTLE_MICROS, () => moved() || over());
    }
    for (const party of healthy) this.#checkProgress(party);
  }

  async endConnections(): Promise<void> {
    const world = this.#world;
    world.log?.('end of connections');
    // Includes connections that are established only now.
    const open = (): boolean => {
      let any = false;
      for (const { ids } of world.clients) {
        for (const id of ids.values()) {
          if (id.outcome !== 'established' || id.ended) continue;
          any = true;
          if (!id.endAsked) this.#operations.disconnect(id);
        }
      }
      return any;
    };
    const end = world.time.now + END_MICROS;
    for (let slice = SHORT_MICROS; open() && world.time.now < end; slice = LONG_MICROS) {
      const before = world.time.now;
      await this.#until(before + slice, () => !open());
      this.#destroyErrored();
      // Nothing is due before the slice ends: advance time to the next event.
      if (world.time.now === before) await this.#until(end, () => world.time.now > before);
      if (world.time.now === before) break;
    }
    world.checkLiveness();
    must(!open(), 'ends', 'connections are open long after their disconnect');
    // Completions may wait for slow memory: an agent may lag a thousand requests behind.
    const idle = (): boolean => world.clients.every(({ memory }) => memory.idle);
    await this.#until(world.time.now + END_MICROS, idle);
    await this.#until(world.time.now + SHORT_MICROS, () => false);
    // A connection that was established only now may have given an agent more work.
    await this.#until(world.time.now + END_MICROS, idle);
    for (const party of world.parties) {
      party.target.check('payload');
      party.checkArrived();
    }
    for (const { windows } of world.clients) {
      for (const { target } of windows) target.check('window');
    }
  }

  async endPrograms(): Promise<void> {
    const world = this.#world;
    world.log?.('end of programs');
    const { prng } = world;
    for (const client of world.clients) {
      if (prng.oneIn(2)) {
        for (const qp of [...client.qps]) client.destroyQp(qp);
        for (const id of [...client.ids.values()]) client.destroyId(id);
      }
      client.kill();
      world.removeClient(client);
    }
    for (const hostile of world.hostiles) hostile.leave();
    const over = (): boolean =>
      world.hosts.every(
        ({ host, network }) => isEmpty(host.conduits()) && network.ports.length === 0,
      );
    const idle = world.plan.carriers.includes('sctp') ? IDLE_MICROS : 0;
    await this.#until(world.time.now + END_MICROS + idle, over);
    for (const host of world.hosts) host.checkEmpty();
    const closing = world.hosts.map(({ host }) => host.close());
    await this.#until(world.time.now + TCP_MICROS, () => world.network.ends.length === 0);
    await Promise.all(closing);
    const quiet = (): boolean => world.hosts.every(({ clock }) => clock.alarms === 0);
    await this.#until(world.time.now + END_MICROS, quiet);
    for (const host of world.hosts) host.checkClosed();
    must(world.network.ends.length === 0, 'left', `${world.network.ends.length} ends of wires`);
  }

  recycle(): void {
    this.#world.recycle();
  }

  result(seed: number): RunResult {
    const { completions, flows, trace } = this.#world;
    const both = [...flows.values()].filter(({ parties }) => {
      return parties.length === 2 && parties.every(({ established }) => established);
    });
    return { seed, completions, flows: flows.size, established: both.length, trace };
  }

  #checkProgress(party: Party): void {
    const { qp } = party;
    if (!isHealthy(party)) return;
    const open = party.sends.filter(({ signalled }) => signalled);
    must(open.length === 0, 'progress', () => {
      const { wrId, what } = open[0] ?? { wrId: 0, what: '' };
      return `${open.length} of ${qp.client.name} ${qp.name} are open, first ${wrId}, a ${what}`;
    });
  }

  /** Steps until `done` or `time`, while programs handle everything that arrives. */
  async #until(time: number, done: () => boolean): Promise<void> {
    const world = this.#world;
    for (;;) {
      for (const client of world.clients) {
        while (client.inbox.length > 0) client.handleEvent();
        client.poll();
      }
      this.#operations.answer();
      if (done()) return;
      if (!world.time.busy) {
        const { nextDue } = world.time;
        if (nextDue === undefined || nextDue > time) return;
      }
      await world.step();
    }
  }

  /** Destroys queue pairs in error, except some whose connection is still open. */
  #destroyErrored(): void {
    for (const client of this.#world.clients) {
      const bound = new Set<unknown>();
      for (const { outcome, ended, party } of client.ids.values()) {
        if (outcome === 'established' && !ended) bound.add(party);
      }
      for (const qp of client.qps) {
        const wanted = bound.has(qp.party) && this.#world.prng.oneIn(2);
        if (qp.state === QPState.ERR && !wanted) client.destroyQp(qp);
      }
    }
  }
}

function isHealthy({ flow, peer, established, abandoned, qp }: Party): boolean {
  if (flow === undefined || peer === undefined || flow.excuses.size > 0 || flow.ending)
    return false;
  return established && peer.established && !abandoned && !qp.client.overrun;
}

function hasWork(party: Party): boolean {
  return isHealthy(party) && party.sends.some(({ signalled }) => signalled);
}

function isEmpty(items: Iterable<unknown>): boolean {
  for (const _ of items) return false;
  return true;
}
