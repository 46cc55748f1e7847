/**
 * Two communication managers over a bad network, under one seed: programs connect, accept, reject,
 * disconnect, look up services and exit, at random. In the end both ends agree, and nothing is left. In
 * some runs a hostile peer takes part.
 */
import type { CmConnection } from '#daemon/roce/cm/cm-connection';
import type { IbCmEvent } from '#daemon/roce/cm/cm-events';
import { NO_BYTES } from '#test/support/hex';
import { CmEnd, FACTS, SERVICE } from '#test/support/ib-cm-pair';
import { Prng } from '#test/support/prng';
import { HostilePeer } from './hostile-peer.ts';
import { LossyNetwork } from './lossy-network.ts';
import { must } from './rules.ts';

const STEPS_MAX = 100_000;
/** A message is lost only if all of its 16 attempts are. */
const LOST = [0, 0, 20, 8, 4] as const;
/** A network keeps no packet for longer than the path says: 1.07 s. */
const LIFE_MICROS = 1_000_000;
/** A request is given up after nine minutes if its peer has asked for more time. */
const OUTCOME_MICROS = 700_000_000;
/** In one run of this many a hostile peer takes part. Its draws are its own: other runs keep their meaning. */
const HOSTILE_ONE_IN = 4;
const HOSTILE_SEEDS = 0x4057_11e0;

/** Events of a connection to its program. */
interface Story {
  readonly dialed: boolean;
  readonly service: boolean;
  readonly since: number;
  /** The queue pair at the other end, once it is known. */
  peerQpn: number | undefined;
  readonly ownQpn: number;
  /** Types of its events. */
  readonly received: IbCmEvent['type'][];
  /** The last action of its program on it. */
  did: 'nothing' | 'accept' | 'reject' | 'establish' | 'disconnect' | 'destroy';
}

/** How long programs take, in microseconds; at times longer, if an MRA covers it. */
const USUAL = 10_000_000;
const SLOW: Readonly<Partial<Record<IbCmEvent['type'], number>>> = {
  request: 150_000_000,
  // The RTU must arrive within 69 s of the first REP, whatever is lost.
  reply: 30_000_000,
};

/** A host and its programs. */
class Programs {
  readonly end: CmEnd;
  readonly stories = new Map<CmConnection, Story>();
  readonly #prng: Prng;
  readonly #numbers: { next: number };
  readonly #stalls: (connection: CmConnection) => boolean;
  /** Connections that wait for their program, and until when. */
  readonly #due: { readonly at: number; readonly run: () => void }[] = [];

  /** `stalls`: see `HostilePeer`. */
  constructor(
    number: number,
    prng: Prng,
    numbers: { next: number },
    stalls: (connection: CmConnection) => boolean,
  ) {
    this.end = new CmEnd(number);
    this.#stalls = stalls;
    this.#prng = prng;
    this.#numbers = numbers;
    this.end.listen(1000);
  }

  get nextDue(): number {
    return this.#due.reduce((least, { at }) => Math.min(least, at), Number.POSITIVE_INFINITY);
  }

  act(now: number): void {
    for (let index = 0; index < this.#due.length; ) {
      const due = this.#due[index];
      if (due === undefined || due.at > now) index += 1;
      else {
        this.#due.splice(index, 1);
        due.run();
      }
    }
  }

  connectionOf(localCommId: number): CmConnection | undefined {
    for (const connection of this.stories.keys()) {
      if (connection.localCommId === localCommId) return connection;
    }
    return undefined;
  }

  dial(peer: CmEnd, now: number): void {
    this.#clock = now;
    const { manager } = this.end;
    const service = this.#prng.oneIn(5);
    const qpn = this.#newQpn();
    const connection = service
      ? manager.askService(SERVICE, this.end.pathTo(peer), NO_BYTES, 'asker', now)
      : this.end.connect(peer, now, { qpn });
    this.#note(connection, { dialed: true, service, qpn });
    if (this.#prng.oneIn(10)) {
      this.#later(connection, now, () => this.#destroy(connection, this.#clock));
    }
  }

  handle(event: IbCmEvent, now: number): void {
    this.#clock = now;
    const { connection } = event;
    if (event.type === 'request' || event.type === 'service-request') {
      must(!this.stories.has(connection), 'once', 'a request is reported once');
      this.#note(connection, {
        dialed: false,
        service: event.type === 'service-request',
        qpn: this.#newQpn(),
      });
    }
    const story = this.stories.get(connection);
    if (story === undefined) throw new Error('an event of an unknown connection');
    must(story.did !== 'destroy', 'owner', 'a connection without an owner reports no event');
    must(!story.received.includes(event.type), 'once', `${event.type} is reported once`);
    if (event.type === 'unreachable') {
      must(this.#stalls(connection), 'patience', 'a live peer is reached');
      must(now - story.since < OUTCOME_MICROS, 'patience', 'a peer gets more time only once');
    }
    if (event.type === 'disconnected') {
      must(!event.timedOut, 'patience', 'the end of a connection is confirmed');
    }
    story.received.push(event.type);
    if (event.type === 'request') story.peerQpn = event.request.qpn;
    if (event.type === 'reply') story.peerQpn = event.reply.qpn;
    if (event.type === 'service-reply') story.peerQpn = event.service.qpn;
    this.#later(connection, now, () => this.#answer(event, story), SLOW[event.type]);
  }

  #clock = 0;

  #answer({ type, connection }: IbCmEvent, story: Story): void {
    const { manager } = this.end;
    const now = this.#clock;
    if (story.did === 'destroy') return;
    const { state } = connection;
    if (type === 'request' && state === 'req-rcvd') {
      if (this.#prng.oneIn(4)) {
        story.did = 'reject';
        manager.reject(connection, 28, NO_BYTES, now);
      } else {
        story.did = 'accept';
        manager.accept(connection, { ...FACTS, qpn: story.ownQpn }, now);
      }
    } else if (type === 'service-request' && state === 'sidr-req-rcvd') {
      story.did = 'accept';
      const service = { status: 0, qpn: story.ownQpn, qkey: 1, privateData: NO_BYTES };
      manager.answerService(connection, service, now);
    } else if (type === 'reply' && state === 'rep-rcvd') {
      story.did = 'establish';
      manager.establish(connection);
      this.#later(connection, now, () => this.#disconnect(connection, story));
    } else if (type === 'established') {
      this.#later(connection, now, () => this.#disconnect(connection, story));
    } else if (type === 'disconnect-requested') this.#disconnect(connection, story);
  }

  #disconnect(connection: CmConnection, story: Story): void {
    if (story.did === 'destroy') return;
    if (this.#prng.oneIn(4)) {
      this.#destroy(connection, this.#clock);
      return;
    }
    story.did = 'disconnect';
    this.end.manager.disconnect(connection, this.#clock);
  }

  #destroy(connection: CmConnection, now: number): void {
    const story = this.stories.get(connection);
    if (story !== undefined) story.did = 'destroy';
    this.end.manager.destroy(connection, now);
  }

  /** Programs take up to ten seconds, and at times up to `slow`. */
  #later(connection: CmConnection, now: number, run: () => void, slow = USUAL): void {
    const thinks = this.#prng.below(this.#prng.oneIn(4) ? slow : USUAL);
    const at = now + thinks;
    this.#due.push({
      at,
      run: () => {
        this.#clock = at;
        if (this.stories.has(connection)) run();
      },
    });
  }

  #note(
    connection: CmConnection,
    { dialed, service, qpn }: { dialed: boolean; service: boolean; qpn: number },
  ): void {
    const did = 'nothing';
    const since = this.#clock;
    const known = { dialed, service, since, ownQpn: qpn };
    this.stories.set(connection, { ...known, peerQpn: undefined, received: [], did });
  }

  #newQpn(): number {
    this.#numbers.next += 1;
    return this.#numbers.next;
  }
}

/** Counts of a run, so tests know it was not idle. */
interface ConnectionsResult {
  established: number;
  rejected: number;
  services: number;
  repeats: number;
}

/** See the module's comment. Throws when a rule is broken. */
export function runConnections(seed: number): ConnectionsResult {
  const prng = new Prng(seed);
  const numbers = { next: 16 };
  const stalls = (connection: CmConnection): boolean => hostile?.stalls(connection) === true;
  const newSide = (number: number) => new Programs(number, prng, numbers, stalls);
  const sides = [newSide(1), newSide(2)] as const;
  const manners = {
    lost: prng.choose(LOST),
    repeated: prng.choose([0, 5, 2]),
    damaged: 0,
    delay: prng.choose([10, 100_000, LIFE_MICROS]),
  };
  const networks = [new LossyNetwork(prng, manners), new LossyNetwork(prng, manners)] as const;
  const hostile = hostilePeer(seed, sides, networks);
  let now = 0;
  let dials = 0;
  for (let step = 0; ; step += 1) {
    must(step < STEPS_MAX, 'progress', 'the run ends');
    if (dials < 12 && prng.oneIn(3)) {
      dials += 1;
      const [from, to] = prng.oneIn(2) ? sides : [sides[1], sides[0]];
      from.dial(to.end, now);
    }
    settle(sides, networks, now, hostile);
    const next = Math.min(nextTime(sides, networks), hostile?.nextDue ?? Number.POSITIVE_INFINITY);
    if (next === Number.POSITIVE_INFINITY) {
      if (dials === 12) break;
      continue;
    }
    now = Math.max(now, next);
    for (const { end } of sides) end.manager.handleDeadline(now);
    for (const side of sides) side.act(now);
    hostile?.act(now);
    networks.forEach((network, index) => {
      const [from, to] = index === 0 ? sides : [sides[1], sides[0]];
      for (const mad of network.arrive(now)) {
        to.end.manager.handleMad(mad, to.end.port, from.end.gid, to.end.gid, now);
      }
    });
  }
  return check(sides);
}

type Sides = readonly [Programs, Programs];
type Networks = readonly [LossyNetwork, LossyNetwork];

function hostilePeer(seed: number, sides: Sides, networks: Networks): HostilePeer | undefined {
  const prng = new Prng(seed ^ HOSTILE_SEEDS);
  if (!prng.oneIn(HOSTILE_ONE_IN)) return undefined;
  return new HostilePeer(prng, {
    connectionOf: (index, localCommId) => sides[index]?.connectionOf(localCommId),
    send: (index, mad, now) => networks[1 - index]?.send(mad, now),
  });
}

/** Carries out the managers' actions of this instant. */
function settle(sides: Sides, networks: Networks, now: number, hostile?: HostilePeer): void {
  for (let any = true; any; ) {
    any = false;
    sides.forEach((side, index) => {
      for (;;) {
        const effect = side.end.manager.pollEffect();
        if (effect === undefined) break;
        any = true;
        if (effect.type === 'event') side.handle(effect.event, now);
        else if (hostile?.takes(index, effect.mad, now) !== true) {
          networks[index]?.send(effect.mad, now);
        }
      }
      side.end.manager.assertInvariants();
    });
  }
}

function nextTime(sides: Sides, networks: Networks): number {
  return Math.min(
    ...sides.map(({ end, nextDue }) => Math.min(end.manager.nextDeadline(), nextDue)),
    ...networks.map(({ next }) => next),
  );
}

/** A listener gets a request once, however often it is repeated. */
function checkRequests(side: Programs, other: Programs): void {
  const came = [...side.stories.values()].filter(({ dialed }) => !dialed);
  const dialed = [...other.stories.values()].filter((story) => story.dialed);
  for (const service of [true, false]) {
    const received = came.filter((story) => story.service === service);
    const asked = dialed.filter((story) => story.service === service);
    must(received.length <= asked.length, 'once', 'no request is reported twice');
  }
}

const OUTCOMES = ['reply', 'rejected', 'unreachable', 'service-reply'] as const;

/** The rules at the end. */
function check([a, b]: Sides): ConnectionsResult {
  const result = { established: 0, rejected: 0, services: 0, repeats: 0 };
  for (const [side, other] of [
    [a, b],
    [b, a],
  ] as const) {
    const peers = new Map([...other.stories.values()].map((story) => [story.ownQpn, story]));
    for (const story of side.stories.values()) {
      const { received, did, dialed, service, peerQpn, ownQpn } = story;
      const first = received.find((type) => OUTCOMES.includes(type as (typeof OUTCOMES)[number]));
      if (dialed && did !== 'destroy')
        must(first !== undefined, 'outcome', 'every connect has one');
      const up = received.includes('established') || did === 'establish' || did === 'disconnect';
      if (up && !service) {
        result.established += 1;
        const peer = peers.get(peerQpn ?? 0);
        must(peer?.peerQpn === ownQpn, 'agree', 'both ends of a connection name each other');
        const ended = received.some((type) => type.startsWith('disconnect') || type === 'rejected');
        must(ended || did === 'destroy', 'end', 'both ends learn of the end');
      }
      if (received.includes('service-reply')) {
        result.services += 1;
        must(peers.has(peerQpn ?? 0), 'agree', 'a service belongs to the peer');
      }
      if (received.includes('rejected')) result.rejected += 1;
    }
    checkRequests(side, other);
    const { manager } = side.end;
    result.repeats += manager.counters.repeats;
    const { ibListeners, ...held } = manager.heldCounts();
    const left = Object.entries(held).filter(([, count]) => count !== 0);
    must(left.length === 0, 'left', `nothing is left: ${left.join()} (${ibListeners} listeners)`);
  }
  return result;
}
