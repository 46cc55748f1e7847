/** One run of the simulation: everything in it follows from its seed. */
import { ChunkPool } from '../../daemon/engine/chunk-pool.ts';
import { Stream } from '../../daemon/engine/stream.ts';
import type { StreamEvent, StreamOptions } from '../../daemon/engine/stream-api.ts';
import { crc32c } from '../../daemon/wire/crc32c.ts';
import { Conversation, Party, type Weights } from './conversation.ts';
import { SimLink } from './link.ts';
import { SimNode } from './node.ts';
import { Prng } from './prng.ts';

/** What happened in a run. Two runs of one seed have equal results. */
export interface RunResult {
  readonly seed: number;
  readonly steps: number;
  readonly completions: number;
  readonly faults: number;
  /** A sum over every event in order. */
  readonly trace: number;
}

const CONNECTIONS_MAX = 3;
/** Steps without any event after which a run counts as hung. */
const IDLE_STEPS_MAX = 20_000;
const READ_DEPTHS = [1, 2, 8] as const;

interface Connection {
  readonly conversation: Conversation;
  readonly link: SimLink;
  established: number;
  ended: number;
}

/** Runs a seed for about `actions` posts. Throws `BrokenRule` when a rule is broken. */
export function run(seed: number, actions = 300): RunResult {
  return new Run(seed).go(actions);
}

class Run {
  readonly #seed: number;
  readonly #prng: Prng;
  readonly #nodes: readonly [SimNode, SimNode];
  readonly #connections: Connection[] = [];
  readonly #weights: Weights;
  readonly #faultEvery: number;
  #now = 0;
  #steps = 0;
  #completions = 0;
  #faults = 0;
  #trace = 0x811c9dc5;

  constructor(seed: number) {
    this.#seed = seed;
    const prng = new Prng(seed);
    this.#prng = prng;
    this.#nodes = [new SimNode('a', prng.next()), new SimNode('b', prng.next())];
    const weight = (): number => (prng.oneIn(3) ? 0 : prng.between(1, 10));
    this.#weights = {
      send: 1 + weight(),
      write: weight(),
      read: weight(),
      atomic: weight(),
      immediate: weight(),
    };
    this.#faultEvery = prng.oneIn(3) ? prng.between(50, 2000) : 0;
    const pool = new ChunkPool();
    const count = prng.between(1, CONNECTIONS_MAX);
    for (let index = 0; index < count; index++) this.#connect(pool, index);
  }

  go(actions: number): RunResult {
    for (let action = 0; action < actions; action++) {
      const { conversation, established } = this.#pick();
      if (established === 2) conversation.act(this.#weights, this.#now);
      for (let step = this.#prng.below(6); step > 0; step--) this.#step();
    }
    this.#settle();
    for (const { conversation } of this.#connections) conversation.checkEnd();
    return {
      seed: this.#seed,
      steps: this.#steps,
      completions: this.#completions,
      faults: this.#faults,
      trace: this.#trace,
    };
  }

  #connect(pool: ChunkPool, index: number): void {
    const prng = this.#prng;
    const base = 0x1000_0000 * (index + 1);
    const parties = [
      new Party(this.#nodes[0], prng, base),
      new Party(this.#nodes[1], prng, base),
    ] as const;
    const environment = { pool, crc32c };
    const ends = [
      new Stream(this.#options(), environment),
      new Stream(this.#options(), environment),
    ] as const;
    const conversation = new Conversation(parties, prng);
    const link = new SimLink(ends, prng, (side, event) => this.#onEvent(connection, side, event));
    const connection: Connection = { conversation, link, established: 0, ended: 0 };
    this.#connections.push(connection);
    parties[0].pair.qp.attach(ends[0]);
    parties[1].pair.qp.attach(ends[1]);
    ends[1].listen(this.#now);
    ends[0].connect(new Uint8Array(prng.below(64)), parties[0].pair.qp, this.#now);
    link.drain(this.#now);
  }

  #options(): StreamOptions {
    const prng = this.#prng;
    const depth = READ_DEPTHS[prng.below(READ_DEPTHS.length)] ?? 1;
    const emssBytes = prng.oneIn(2) ? 1448 : prng.between(256, 65_483);
    return {
      mpaRevision: 2,
      enhancedSupported: true,
      // A run with faults needs CRCs, or a flipped bit is nobody's to find.
      crcRequested: true,
      markersRequested: prng.oneIn(3),
      peerToPeer: prng.oneIn(2),
      rtrKinds: { send: false, write: true, read: prng.oneIn(2) },
      ird: depth,
      ord: depth,
      irdMax: 8,
      ordMax: 8,
      emssBytes,
      fpduSize: prng.oneIn(3) ? { kind: 'large' } : { kind: 'emss' },
      startupTimeoutMicros: 1e9,
      closeTimeoutMicros: 1e6,
    };
  }

  #pick(): Connection {
    const connection = this.#connections[this.#prng.below(this.#connections.length)];
    if (connection === undefined) throw new RangeError('a run has connections');
    return connection;
  }

  #step(): void {
    this.#steps++;
    this.#now += this.#prng.between(1, 500);
    const connection = this.#pick();
    if (this.#faultEvery > 0 && connection.established === 2) this.#maybeFault(connection);
    connection.link.step(this.#now);
    for (const end of connection.link.ends) {
      if (end.nextDeadline() <= this.#now) end.handleDeadline(this.#now);
    }
    connection.link.drain(this.#now);
    for (const node of this.#nodes) node.drain(this.#now);
    this.#poll();
    connection.link.drain(this.#now);
  }

  #maybeFault(connection: Connection): void {
    if (!this.#prng.oneIn(this.#faultEvery)) return;
    connection.conversation.faulty = true;
    this.#faults++;
    if (this.#prng.oneIn(2)) connection.link.cut(this.#now);
    else connection.link.corrupt();
  }

  #poll(): void {
    for (const node of this.#nodes) {
      for (let wc = node.poll(); wc !== undefined; wc = node.poll()) {
        const { qpNum } = wc;
        for (const { conversation } of this.#connections) {
          const party = conversation.parties.find(
            (each) => each.node === node && each.pair.qp.qpn === qpNum,
          );
          if (party !== undefined) conversation.complete(party, wc);
        }
        this.#completions++;
        this.#note(qpNum, Number(wc.wrId), wc.status, wc.byteLen);
      }
    }
  }

  /** Lets everything that is under way come to its end. */
  #settle(): void {
    let idle = 0;
    while (idle < IDLE_STEPS_MAX) {
      const before = this.#completions;
      this.#step();
      const done = this.#connections.every(
        ({ link, conversation }) =>
          link.quiet && conversation.parties.every((party) => party.sends.every(unsignalled)),
      );
      if (done && idle > 200) return;
      idle = this.#completions === before ? idle + 1 : 0;
    }
  }

  #onEvent(connection: Connection, side: 0 | 1, event: StreamEvent): void {
    const end = connection.link.ends[side];
    const { qp } = connection.conversation.parties[side].pair;
    this.#note(side, event.type.length, 0, 0);
    switch (event.type) {
      case 'request':
        end.accept(new Uint8Array(0), qp, { ird: 4, ord: 4 }, this.#now);
        break;
      case 'established':
        connection.established++;
        qp.established({ ird: event.ird, ord: event.ord }, this.#now);
        break;
      case 'terminated':
        qp.terminated(event.by, event.failure, this.#now);
        break;
      case 'closed':
        connection.ended++;
        // A fault in front of Full Operation leaves a QP that was never connected.
        qp.streamEnded(event.failure, this.#now);
        break;
      case 'rejected':
      case 'nudged':
      case 'peer-closed':
      case 'finish':
      case 'abort':
        break;
      default:
        event satisfies never;
    }
  }

  #note(...numbers: readonly number[]): void {
    for (const number of numbers) {
      this.#trace = Math.imul(this.#trace ^ number, 0x01000193) >>> 0;
    }
  }
}

function unsignalled(send: { readonly signalled: boolean }): boolean {
  return !send.signalled;
}
